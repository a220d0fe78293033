"""A slice's rows from inside a worker: one connection and one COPY for each part, batch by batch.

Imports pyarrow and ADBC only when a part is opened, so that planning stays light.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import sql

from penstock.core.documents import parse
from penstock.core.slices import Part
from penstock.errors import PenstockError, StreamFailed
from penstock.links.postgres.connection import Identity, greeting, settings
from penstock.links.postgres.failures import broken_off, failed, lost, unreachable
from penstock.links.postgres.literals import written
from penstock.links.postgres.types import arrow_type, outside
from penstock.sources.postgres.content import Content
from penstock.sources.postgres.statements import condition, select

if TYPE_CHECKING:
    import pyarrow as pa

#: bytes of a batch, about; memory of a worker follows from it, not from the table
BATCH_BYTES = 16 << 20


@dataclass(frozen=True)
class PostgresReader:
    """Reads parts of one slice; small and picklable."""

    #: for libpq; holds the password
    conninfo: str = field(repr=False)
    #: for people: host, database, user
    where: str
    pipeline: str
    stream: str
    #: the slice's content, canonical JSON
    content: str = field(repr=False)
    #: an exported snapshot that every part reads in; None: each part sees what is there now
    snapshot: str | None = None
    statement_timeout: float | None = None

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's rows. The connection is freed when the rows end, fail, or the reader is let go of."""
        import pyarrow as pa

        content = Content.read(parse(self.content))
        schema = pa.schema([pa.field(column.name, arrow_type(column.arrow)) for column in content.columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches(content, schema, part))

    def _batches(self, content: Content, schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
        where = condition(content, part)
        with self._cursor(content) as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            cursor.execute(written(select(content, where)))
            with cursor.fetch_record_batch() as fetched:
                guarded = len(fetched.schema) > len(schema)
                for batch in self._fetched(content, fetched):
                    if guarded and batch.column(len(schema)).true_count:
                        raise self._does_not_fit(content, self._outside(content, where))
                    yield self._converted(content, schema, batch)

    def _fetched(self, content: Content, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            yield from batches
        except (OSError, pa.ArrowException) as error:
            raise broken_off(str(error), where=self.where, table=str(content.table), stream=self.stream).at(
                pipeline=self.pipeline
            ) from error

    @contextmanager
    def _cursor(self, content: Content) -> Iterator[Any]:
        """A cursor in a read-only transaction with our settings, on the database that the content names."""
        from penstock.links.postgres import arrow

        try:
            connection = arrow.connect(self.conninfo)
        except arrow.Error as error:
            raise unreachable(self.where, str(error)).at(pipeline=self.pipeline, stream=self.stream) from None
        try:
            with connection, connection.cursor() as cursor:
                self._begin(content, cursor)
                yield cursor
        except arrow.Error as error:
            raise self._failed(content, error) from error

    def _begin(self, content: Content, cursor: Any) -> None:
        """Join the snapshot, set the session up, and see who answers."""
        if self.snapshot is not None:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute(written(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self.snapshot))))
        chosen = settings(statement_timeout=self.statement_timeout)
        chosen["transaction_read_only"] = "on"
        # Should row-level security come to hide rows, the statement fails instead of leaving them out.
        chosen["row_security"] = "on" if content.row_security == "accept" else "off"
        # For this transaction alone, so that a pooler's next client does not inherit them.
        cursor.execute(written(greeting(chosen, local=True, with_system=content.identity.system is not None)))
        answer = cursor.fetchone()
        if answer is None or not Identity(*answer[:3]).same(content.identity):
            raise lost(self.where, "another database answers there now").at(pipeline=self.pipeline, stream=self.stream)

    def _converted(self, content: Content, schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns = []
        for column, wanted, array in zip(content.columns, schema, batch.columns, strict=False):
            plain = array.storage if isinstance(array, pa.ExtensionArray) else array
            try:
                columns.append(plain if plain.type == wanted.type else plain.cast(wanted.type))
            except pa.ArrowInvalid:
                # Of all that a declared numeric can hold, only NaN has no decimal.
                raise self._does_not_fit(content, [column.name]) from None
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _outside(self, content: Content, where: sql.Composed) -> list[str]:
        """The columns whose values do not fit, asked on a connection of its own."""
        checks = {column.name: check for column in content.columns if (check := outside(column.name, column.type))}
        counts = [sql.SQL("bool_or({})").format(check) for check in checks.values()]
        query = sql.SQL("SELECT {} FROM {} AS t WHERE {}").format(sql.SQL(", ").join(counts), content.table.sql, where)
        with self._cursor(content) as cursor:
            cursor.execute(written(query))
            return [name for name, found in zip(checks, cursor.fetchone(), strict=True) if found]

    def _does_not_fit(self, content: Content, names: list[str]) -> PenstockError:
        several = ", ".join(names)
        return StreamFailed(
            f"{content.table} has rows whose {several} is infinity, NaN, 24:00 or not in years 1 to 9999, "
            "which Arrow cannot hold",
            next_step=f"correct these rows and run again; to leave {several} out from the next slice on, "
            "list the other columns in `columns`",
            pipeline=self.pipeline,
            stream=self.stream,
        )

    def _failed(self, content: Content, error: Any) -> PenstockError:
        return failed(error.sqlstate, str(error), where=self.where, table=str(content.table), stream=self.stream).at(
            pipeline=self.pipeline
        )
