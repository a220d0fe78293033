"""Reads a slice's rows inside a worker: one connection, one statement and one COPY for each part, batch by batch.

Imports pyarrow and ADBC only when a part is opened, so that planning stays light.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from penstock.core.content import Column
from penstock.core.documents import parse
from penstock.core.ranges import Key, Range
from penstock.core.slices import Part
from penstock.errors import PenstockError, StreamFailed
from penstock.links.pipe import nulled
from penstock.links.postgres.column_sql import is_no_list, select_expression, unfit_condition
from penstock.links.postgres.connection import ServerState, Target, VisibleFacts
from penstock.links.postgres.failures import connect_error, copy_error, statement_error, table_changed
from penstock.links.postgres.literals import TableName, to_text
from penstock.links.postgres.server_checks import RequiredState
from penstock.links.postgres.transactions import begin_statement, read_server_state, server_query, transaction_settings
from penstock.sources.postgres.comparing import repair_condition, repair_relation, with_change
from penstock.sources.postgres.content import TRUE, KeyColumn, TableContent, form_of, postgres_type_of
from penstock.sources.postgres.load.block_ranges import rewrite_error
from penstock.sources.postgres.marks import to_key

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.links.postgres.conversion import Conversion

#: about the bytes of a batch, which determine the memory of a worker
BATCH_BYTES = 16 << 20
#: the last fetched column if arrays are read as lists: the number of the row's arrays that are not lists
FLAG = "_penstock_misshapen"


@dataclass(frozen=True)
class PostgresReader:
    """Reads parts of one slice; small and picklable."""

    #: the server to read from
    target: Target
    pipeline: str
    stream: str
    #: the slice's content, canonical JSON
    content: str = field(repr=False)
    #: what the server must have replayed
    required: RequiredState
    #: what it can be asked for
    visible: VisibleFacts
    #: an exported snapshot for all parts; None: each part sees the current rows
    snapshot: str | None = None
    statement_timeout: float | None = None

    @property
    def where(self) -> str:
        return self.target.where

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's rows. The connection is closed when the rows end or fail, or the reader is closed."""
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_type

        content = content_of_part(TableContent.parse(self.content), part)
        schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in content.columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches(content, schema, part))

    def _batches(self, content: TableContent, schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
        from penstock.links.postgres.conversion import Conversion

        where = part_condition(content, part)
        convert = Conversion(schema, nulled if content.unfit == "null" else None)
        with self._cursor(content, where, parse(part.terms).get("settings")) as cursor:
            self._check_file(content, where, part, cursor)
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            cursor.execute(to_text(select_statement(content, where, part)))
            with cursor.fetch_record_batch() as fetched:
                for batch in self._fetch(content, fetched):
                    for piece in convert.pieces(batch, BATCH_BYTES):
                        yield self._convert(content, where, convert, piece)

    def _check_file(self, content: TableContent, where: sql.Composed, part: Part, cursor: Any) -> None:
        """StreamFailed if a part reads blocks of a file that was replaced."""
        terms = parse(part.terms)
        if "file" not in terms:
            return
        # While the table is locked, its file cannot be replaced.
        self._lock(content, where, cursor)
        now = sql.SQL("SELECT pg_catalog.pg_relation_filenode({}::pg_catalog.oid)::pg_catalog.text")
        cursor.execute(to_text(now.format(sql.Literal(terms["oid"]))))
        if cursor.fetchone()[0] != terms["file"]:
            raise rewrite_error(str(content.table), self.stream).at(pipeline=self.pipeline)

    def _fetch(self, content: TableContent, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            yield from batches
        except (OSError, pa.ArrowException) as error:
            raise copy_error(str(error), where=self.where, table=str(content.table), stream=self.stream).at(
                pipeline=self.pipeline
            ) from error

    @contextmanager
    def _cursor(
        self, content: TableContent, where: sql.Composed, planner: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """A cursor in a transaction, on a server that has all that was planned.

        `where` is the condition of the rows that will be read, and `planner` has settings for that.
        """
        from penstock.links.postgres import arrow

        try:
            connection = arrow.connect(self.target.conninfo)
        except arrow.Error as error:
            raise connect_error(self.where, str(error), key=self.target.key).at(
                pipeline=self.pipeline, stream=self.stream
            ) from None
        try:
            with connection, connection.cursor() as cursor:
                self._begin(content, where, planner, cursor)
                yield cursor
                # A pooler closes a connection whose transaction was left open.
                cursor.executescript("COMMIT")
        except arrow.Error as error:
            raise statement_error(
                error.sqlstate, str(error), where=self.where, table=str(content.table), stream=self.stream
            ).at(pipeline=self.pipeline) from error

    def _begin(
        self, content: TableContent, where: sql.Composed, planner: Mapping[str, str] | None, cursor: Any
    ) -> None:
        """Begin the transaction, ask which server answers, and wait until it has what was planned."""
        chosen = transaction_settings(
            statement_timeout=self.statement_timeout,
            application_name=self.target.application_name,
            # If row-level security starts to hide rows, the statement fails instead of omitting them.
            more={"row_security": "on" if content.row_security == "accept" else "off", **(planner or {})},
        )
        begin, kind = begin_statement(chosen, self.snapshot), ""

        def ask() -> ServerState:
            nonlocal kind
            cursor.executescript(begin)
            server, kind = self._ask_server(content, cursor, self.visible)
            if server.standby != self.visible.standby:
                server, kind = self._ask_server(content, cursor, replace(self.visible, standby=server.standby))
            return server

        try:
            self.required.wait_for(ask, lambda: cursor.executescript("ROLLBACK"), where=self.where)
        except PenstockError as error:
            raise error.at(pipeline=self.pipeline, stream=self.stream) from None
        if kind not in ("r", "m") and self.snapshot is None:
            self._lock(content, where, cursor)

    def _ask_server(self, content: TableContent, cursor: Any, visible: VisibleFacts) -> tuple[ServerState, str]:
        """The server that answers, and the kind of the relation there."""
        kind = sql.SQL(
            "(SELECT c.relkind::pg_catalog.text FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass({}))"
        ).format(sql.Literal(to_text(content.table.sql)))
        cursor.execute(to_text(server_query(visible, kind)))
        row = cursor.fetchone()
        return read_server_state(row), row[-1]

    def _lock(self, content: TableContent, where: sql.Composed, cursor: Any) -> None:
        """Lock the partitions, and the tables of a view, that will be read.

        The driver prepares the statement first, which locks a table before the COPY takes its snapshot. A partition is
        locked only after that. If another transaction is rewriting it, the snapshot would see none of its rows.
        """
        lock = sql.SQL("SELECT FROM {} AS t WHERE {} LIMIT 0").format(content.table.sql, where)
        cursor.executescript(to_text(lock))

    def _convert(
        self, content: TableContent, where: sql.Composed, convert: Conversion, batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        from penstock.links.postgres.conversion import Changed, Unfit

        try:
            return convert(batch)
        except Unfit as misfits:
            raise self._unfit_error(content, where, misfits.columns) from None
        except Changed as change:
            raise table_changed(str(content.table), str(change), stream=self.stream).at(
                pipeline=self.pipeline
            ) from None

    def _unfit_error(self, content: TableContent, where: sql.Composed, seen: Sequence[str]) -> PenstockError:
        found, example = self._find_unfit(content, where)
        several = ", ".join(found or seen)
        recover = f"`penstock state recover FILE --stream {self.stream}`"
        return StreamFailed(
            f"{content.table} has rows whose {several} is infinity, NaN, 24:00, not in years 1 to 9999 or not a plain "
            f"list, which Arrow cannot hold{example}",
            next_step="correct these rows and run again; or set `unfit: null` or `unfit: text` on the stream and drop "
            f"the open slice with {recover}",
            pipeline=self.pipeline,
            stream=self.stream,
        )

    def _find_unfit(self, content: TableContent, where: sql.Composed) -> tuple[list[str], str]:
        """The columns with values that do not fit, and the key of one such row, asked on a connection of its own."""
        checks = {
            c.name: check
            for c in content.columns
            if (check := unfit_condition(c.name, postgres_type_of(c), form_of(c)))
        }
        named = sql.SQL(", ").join(sql.SQL("bool_or({})").format(check) for check in checks.values())
        source = sql.SQL("FROM {} AS t WHERE {}").format(content.table.sql, where)
        with self._cursor(content, where) as cursor:
            cursor.execute(to_text(sql.SQL("SELECT {} {}").format(named, source)))
            found = [name for name, unfit_ in zip(checks, cursor.fetchone(), strict=True) if unfit_]
            if not found or not content.key:
                return found, ""
            one = sql.SQL(" OR ").join(checks[name] for name in found)
            cursor.execute(to_text(sql.SQL("SELECT {} {} AND ({}) LIMIT 1").format(content.key_texts, source, one)))
            values = cursor.fetchone() or ()
        said = ", ".join(f"{k.column} {value}" for k, value in zip(content.key, values, strict=False))
        return found, f" (one of them: {said})" if said else ""


# ---------------------------------------------------------------- the statement of a part


def content_of_part(content: TableContent, part: Part) -> TableContent:
    """The content as a part reads it: from a partition, if it names one."""
    terms = parse(part.terms)
    if "repair" in terms:
        return with_change(content) if terms["repair"]["changes"] else content
    table = terms.get("table")
    return replace(content, table=TableName.read(table, "")) if table else content


def part_condition(content: TableContent, part: Part) -> sql.Composed:
    """The rows of a part, as SQL about table `t`."""
    terms = parse(part.terms)
    if "repair" in terms:
        return repair_condition(content, terms["repair"])
    if "load" in terms:
        conditions = [*_load_conditions(content, terms), *_horizon_conditions(content, tuple(terms["horizon"]))]
    elif content.mode == "keyset":
        conditions = _range_conditions(content, terms)
        if terms.get("leaves"):
            # Rows of the partitions that the slice's mark covers: any other partition gets a load of its own.
            conditions.append(sql.SQL("t.tableoid = ANY ({}::oid[])").format(sql.Literal(list(terms["leaves"]))))
    else:
        blocks = (terms["from_block"], terms["to_block"])
        conditions = _block_conditions(*((block, 0) if block is not None else None for block in blocks))
    return sql.SQL(" AND ").join([*conditions, content.filter_sql])


def _range_conditions(content: TableContent, terms: Mapping[str, Any]) -> list[sql.Composed]:
    range_ = Range(to_key(terms["after"]), to_key(terms["upto"]))
    return [content.range_sql(range_), *content.cursor_bounds(range_)]


def _load_conditions(content: TableContent, terms: Mapping[str, Any]) -> list[sql.Composed]:
    """A range of the first load's own key, or of blocks."""
    if terms["load"] == "blocks":
        return _block_conditions(terms["from"], terms["to"])
    columns = tuple(KeyColumn(*pair) for pair in zip(terms["columns"], terms["types"], strict=True))
    return _range_conditions(replace(content, key=columns), terms)


def _horizon_conditions(content: TableContent, horizon: Key) -> list[sql.Composed]:
    """Rows at or below a key; and what that implies about the cursor alone, for the planner."""
    whole = content.range_sql(Range(None, horizon))
    if len(content.key) == 1:
        return [whole]
    return [whole, sql.SQL("{} <= {}").format(content.cursor_sql, content.literals(horizon)[0])]


def _block_conditions(start: Sequence[object] | None, end: Sequence[object] | None) -> list[sql.Composed]:
    """Rows from one place of the table up to, but not including, another; each is a block and an offset in it."""
    sides = [
        sql.SQL("t.ctid {} {}::tid").format(sql.SQL(sign), sql.Literal(f"({place[0]},{place[1]})"))
        for sign, place in ((">=", start), ("<", end))
        if place is not None
    ]
    return sides or [TRUE]


def select_statement(content: TableContent, where: sql.Composed, part: Part | None = None) -> sql.Composed:
    """The statement of a part; literals only, because bound parameters switch COPY off."""
    repair = parse(part.terms).get("repair") if part else None
    source = sql.SQL("{} AS t WHERE {}").format(content.table.sql, where)
    if repair:
        source = sql.SQL("{} AS t").format(repair_relation(content, repair))
    columns = [_select_column(column) for column in content.columns]
    flags = [sql.SQL("{}::int").format(is_no_list(c.name)) for c in content.columns if form_of(c).element]
    if flags:
        columns.append(sql.SQL("{} AS {}").format(sql.SQL(" + ").join(flags), sql.Identifier(FLAG)))
    return sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(columns), source)


def _select_column(column: Column) -> sql.Composed:
    return select_expression(column.name, postgres_type_of(column), form_of(column), domain=column.base is not None)
