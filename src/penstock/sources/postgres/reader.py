"""A slice's rows from inside a worker: one connection and one COPY for each part, batch by batch.

Imports pyarrow and ADBC only when a part is opened, so that planning stays light.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from psycopg import sql

from penstock.core.documents import parse
from penstock.core.slices import Part
from penstock.errors import PenstockError, StreamFailed
from penstock.links.pipe import nulled
from penstock.links.postgres.column_sql import unfit_condition
from penstock.links.postgres.connection import ServerState, Target, VisibleFacts
from penstock.links.postgres.failures import connect_error, copy_error, statement_error, table_changed
from penstock.links.postgres.literals import to_text
from penstock.links.postgres.transactions import begin_statement, read_server_state, server_query, transaction_settings
from penstock.sources.postgres.content import TableContent, declared, form_of
from penstock.sources.postgres.load.block_ranges import rewritten
from penstock.sources.postgres.server.servers import Needs
from penstock.sources.postgres.statements import condition, of_part, select

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.links.postgres.conversion import Conversion

#: bytes of a batch, about; memory of a worker follows from it, not from the table
BATCH_BYTES = 16 << 20


@dataclass(frozen=True)
class PostgresReader:
    """Reads parts of one slice; small and picklable."""

    #: where the rows are read
    target: Target
    pipeline: str
    stream: str
    #: the slice's content, canonical JSON
    content: str = field(repr=False)
    #: what the server must have
    needs: Needs
    #: what it can be asked for
    tells: VisibleFacts
    #: an exported snapshot that every part reads in; None: each part sees what is there now
    snapshot: str | None = None
    statement_timeout: float | None = None

    @property
    def where(self) -> str:
        return self.target.where

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's rows. The connection is freed when the rows end, fail, or the reader is let go of."""
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_type

        content = of_part(TableContent.parse(self.content), part)
        schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in content.columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches(content, schema, part))

    def _batches(self, content: TableContent, schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
        from penstock.links.postgres.conversion import Conversion

        where = condition(content, part)
        convert = Conversion(schema, nulled if content.unfit == "null" else None)
        with self._cursor(content, where, parse(part.terms).get("settings")) as cursor:
            self._same_file(content, where, part, cursor)
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            cursor.execute(to_text(select(content, where)))
            with cursor.fetch_record_batch() as fetched:
                for batch in self._fetched(content, fetched):
                    for piece in convert.pieces(batch, BATCH_BYTES):
                        yield self._converted(content, where, convert, piece)

    def _same_file(self, content: TableContent, where: sql.Composed, part: Part, cursor: Any) -> None:
        """Whether a part that names blocks still finds them where they were; StreamFailed if not."""
        terms = parse(part.terms)
        if "file" not in terms:
            return
        # From here on nobody can put another file in its place.
        self._lock(content, where, cursor)
        now = sql.SQL("SELECT pg_catalog.pg_relation_filenode({}::pg_catalog.oid)::pg_catalog.text")
        cursor.execute(to_text(now.format(sql.Literal(terms["oid"]))))
        if cursor.fetchone()[0] != terms["file"]:
            raise rewritten(str(content.table), self.stream).at(pipeline=self.pipeline)

    def _fetched(self, content: TableContent, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
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
        """A cursor in a transaction of ours, on a server that has all that was planned.

        `where` is what will be read, and `planner` are settings for that.
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
            raise self._failed(content, error) from error

    def _begin(
        self, content: TableContent, where: sql.Composed, planner: Mapping[str, str] | None, cursor: Any
    ) -> None:
        """Set the transaction up, see who answers, and wait until it has what was planned."""
        chosen = transaction_settings(
            statement_timeout=self.statement_timeout,
            application_name=self.target.application_name,
            # Should row-level security come to hide rows, the statement fails instead of leaving them out.
            more={"row_security": "on" if content.row_security == "accept" else "off", **(planner or {})},
        )
        begin, kind = begin_statement(chosen, self.snapshot), ""

        def ask() -> ServerState:
            nonlocal kind
            cursor.executescript(begin)
            server, kind = self._who(content, cursor, self.tells)
            if server.standby != self.tells.standby:
                server, kind = self._who(content, cursor, replace(self.tells, standby=server.standby))
            return server

        try:
            self.needs.met(ask, lambda: cursor.executescript("ROLLBACK"), where=self.where)
        except PenstockError as error:
            raise error.at(pipeline=self.pipeline, stream=self.stream) from None
        if kind not in ("r", "m") and self.snapshot is None:
            self._lock(content, where, cursor)

    def _who(self, content: TableContent, cursor: Any, tells: VisibleFacts) -> tuple[ServerState, str]:
        """Who answers, and what kind of relation the table is there."""
        kind = sql.SQL(
            "(SELECT c.relkind::pg_catalog.text FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass({}))"
        ).format(sql.Literal(to_text(content.table.sql)))
        cursor.execute(to_text(server_query(tells, kind)))
        row = cursor.fetchone()
        return read_server_state(row), row[-1]

    def _lock(self, content: TableContent, where: sql.Composed, cursor: Any) -> None:
        """Lock the partitions, and the tables of a view, that will be read.

        A table is locked before the COPY takes its snapshot, because the driver prepares the statement first; a
        partition after it. Whoever holds it then may be rewriting it, and that snapshot would see none of its rows.
        """
        lock = sql.SQL("SELECT FROM {} AS t WHERE {} LIMIT 0").format(content.table.sql, where)
        cursor.executescript(to_text(lock))

    def _converted(
        self, content: TableContent, where: sql.Composed, convert: Conversion, batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        from penstock.links.postgres.conversion import Changed, Unfit

        try:
            return convert(batch)
        except Unfit as misfits:
            raise self._does_not_fit(content, where, misfits.columns) from None
        except Changed as change:
            raise table_changed(str(content.table), str(change), stream=self.stream).at(
                pipeline=self.pipeline
            ) from None

    def _does_not_fit(self, content: TableContent, where: sql.Composed, seen: Sequence[str]) -> PenstockError:
        found, example = self._misfits(content, where)
        several = ", ".join(found or seen)
        recover = f"`penstock state recover FILE --stream {self.stream}`"
        return StreamFailed(
            f"{content.table} has rows whose {several} is infinity, NaN, 24:00, not in years 1 to 9999 or no plain "
            f"list, which Arrow cannot hold{example}",
            next_step="correct these rows and run again; or set `unfit: null` or `unfit: text` on the stream and let "
            f"go of the open slice with {recover}",
            pipeline=self.pipeline,
            stream=self.stream,
        )

    def _misfits(self, content: TableContent, where: sql.Composed) -> tuple[list[str], str]:
        """The columns whose values do not fit, and one such row in words, asked on a connection of its own."""
        checks = {c.name: check for c in content.columns if (check := unfit_condition(c.name, declared(c), form_of(c)))}
        named = sql.SQL(", ").join(sql.SQL("bool_or({})").format(check) for check in checks.values())
        source = sql.SQL("FROM {} AS t WHERE {}").format(content.table.sql, where)
        with self._cursor(content, where) as cursor:
            cursor.execute(to_text(sql.SQL("SELECT {} {}").format(named, source)))
            found = [name for name, unfit_ in zip(checks, cursor.fetchone(), strict=True) if unfit_]
            if not found or not content.key:
                return found, ""
            key = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(k.column)) for k in content.key)
            one = sql.SQL(" OR ").join(checks[name] for name in found)
            cursor.execute(to_text(sql.SQL("SELECT {} {} AND ({}) LIMIT 1").format(key, source, one)))
            values = cursor.fetchone() or ()
        said = ", ".join(f"{k.column} {value}" for k, value in zip(content.key, values, strict=False))
        return found, f" (one of them: {said})" if said else ""

    def _failed(self, content: TableContent, error: Any) -> PenstockError:
        return statement_error(
            error.sqlstate, str(error), where=self.where, table=str(content.table), stream=self.stream
        ).at(pipeline=self.pipeline)
