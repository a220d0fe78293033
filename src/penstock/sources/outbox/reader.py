"""Reads documents of a slice inside a worker: one connection and one COPY for each part.

Those of the outbox come in the order of ids; rows of tables as documents are read by `load.reading`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from psycopg import sql

from penstock.core.documents import parse
from penstock.core.ops import FEED_COLUMNS
from penstock.core.slices import Part
from penstock.errors import PenstockError
from penstock.links.postgres.connection import ServerState, Target, VisibleFacts
from penstock.links.postgres.failures import connect_error, copy_error, statement_error
from penstock.links.postgres.literals import to_text
from penstock.links.postgres.server_checks import RequiredState
from penstock.links.postgres.transactions import begin_statement, read_server_state, server_query, transaction_settings
from penstock.sources.outbox import windows
from penstock.sources.outbox.windows import Window

if TYPE_CHECKING:
    import pyarrow as pa

#: about the bytes of a batch, which determine the memory of a worker
BATCH_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class DocumentReader:
    """Reads parts of one slice as documents; small and picklable."""

    target: Target
    pipeline: str
    stream: str
    required: RequiredState
    visible: VisibleFacts
    statement_timeout: float | None = None

    #: more settings of a transaction
    more: ClassVar[Mapping[str, str]] = {}

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's documents. The connection is closed when they end or fail, or the reader is closed."""
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_schema

        schema = arrow_schema(FEED_COLUMNS)
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema, part))

    def _batches(self, schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def _fetch(self, cursor: Any, select: sql.Composed, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of a statement, batch by batch."""
        import pyarrow as pa

        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        cursor.execute(to_text(select))
        with cursor.fetch_record_batch() as fetched:
            try:
                yield from fetched
            except (OSError, pa.ArrowException) as error:
                raise copy_error(str(error), where=self.target.where, table=table, stream=self.stream).at(
                    pipeline=self.pipeline
                ) from error

    @contextmanager
    def _cursor(self, table: str, *, writes: bool = False) -> Iterator[Any]:
        """A cursor in a transaction, on a server that has all that was planned. `writes`: temporary tables."""
        from penstock.links.postgres import arrow

        try:
            connection = arrow.connect(self.target.conninfo)
        except arrow.Error as error:
            raise connect_error(self.target.where, str(error), key=self.target.key).at(
                pipeline=self.pipeline, stream=self.stream
            ) from None
        try:
            with connection, connection.cursor() as cursor:
                self._begin(cursor, writes=writes)
                yield cursor
                # A pooler closes a connection whose transaction was left open.
                cursor.executescript("COMMIT")
        except arrow.Error as error:
            raise statement_error(
                error.sqlstate, str(error), where=self.target.where, table=table, stream=self.stream
            ).at(pipeline=self.pipeline) from error

    def _begin(self, cursor: Any, *, writes: bool) -> None:
        chosen = transaction_settings(
            statement_timeout=self.statement_timeout,
            application_name=self.target.application_name,
            more=self.more,
        )
        begin, ask_server = begin_statement(chosen, writes=writes), to_text(server_query(self.visible))

        def ask() -> ServerState:
            cursor.executescript(begin)
            cursor.execute(ask_server)
            return read_server_state(cursor.fetchone())

        try:
            self.required.wait_for(ask, lambda: cursor.executescript("ROLLBACK"), where=self.target.where)
        except PenstockError as error:
            raise error.at(pipeline=self.pipeline, stream=self.stream) from None


@dataclass(frozen=True, kw_only=True)
class OutboxReader(DocumentReader):
    """Reads windows of the outbox, in the order of ids."""

    outbox_schema: str
    window: Window

    def _batches(self, schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
        terms, table = parse(part.terms), f"{self.outbox_schema}.outbox"
        window = self.window.cut(terms["after"], terms["upto"])
        select = sql.SQL(
            "SELECT o.id AS id, o.created_at AS at, o.document::text AS document FROM {} AS o WHERE {} ORDER BY {}"
        ).format(sql.Identifier(self.outbox_schema, "outbox"), window.condition(self.stream), windows.ORDER)
        with self._cursor(table) as cursor:
            for batch in self._fetch(cursor, select, table):
                yield convert(batch, schema)


def convert(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the types of a stream of documents."""
    import pyarrow as pa

    arrays = []
    for field, array in zip(schema, batch.columns, strict=True):
        if isinstance(field.type, pa.BaseExtensionType):
            array = pa.ExtensionArray.from_storage(field.type, array.cast(field.type.storage_type))
        arrays.append(array.cast(field.type) if array.type != field.type else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
