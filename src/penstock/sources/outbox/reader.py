"""Reads documents of a slice inside a worker: one connection and one COPY for each part, in the order of ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class OutboxReader:
    """Reads parts of one slice; small and picklable."""

    target: Target
    pipeline: str
    stream: str
    outbox_schema: str
    window: Window
    required: RequiredState
    visible: VisibleFacts
    statement_timeout: float | None = None

    @property
    def table(self) -> str:
        return f"{self.outbox_schema}.outbox"

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's documents. The connection is closed when they end or fail, or the reader is closed."""
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_schema

        schema = arrow_schema(FEED_COLUMNS)
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema, part))

    def _batches(self, schema: pa.Schema, part: Part) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        terms = parse(part.terms)
        window = self.window.cut(terms["after"], terms["upto"])
        select = sql.SQL(
            "SELECT o.id AS id, o.created_at AS at, o.document::text AS document FROM {} AS o WHERE {} ORDER BY {}"
        ).format(sql.Identifier(self.outbox_schema, "outbox"), window.condition(self.stream), windows.ORDER)
        with self._cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            cursor.execute(to_text(select))
            with cursor.fetch_record_batch() as fetched:
                try:
                    for batch in fetched:
                        yield _convert(batch, schema)
                except (OSError, pa.ArrowException) as error:
                    raise copy_error(str(error), where=self.target.where, table=self.table, stream=self.stream).at(
                        pipeline=self.pipeline
                    ) from error

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """A cursor in a transaction, on a server that has all that was planned."""
        from penstock.links.postgres import arrow

        try:
            connection = arrow.connect(self.target.conninfo)
        except arrow.Error as error:
            raise connect_error(self.target.where, str(error), key=self.target.key).at(
                pipeline=self.pipeline, stream=self.stream
            ) from None
        try:
            with connection, connection.cursor() as cursor:
                self._begin(cursor)
                yield cursor
                # A pooler closes a connection whose transaction was left open.
                cursor.executescript("COMMIT")
        except arrow.Error as error:
            raise statement_error(
                error.sqlstate, str(error), where=self.target.where, table=self.table, stream=self.stream
            ).at(pipeline=self.pipeline) from error

    def _begin(self, cursor: Any) -> None:
        chosen = transaction_settings(
            statement_timeout=self.statement_timeout, application_name=self.target.application_name
        )
        begin, ask_server = begin_statement(chosen), to_text(server_query(self.visible))

        def ask() -> ServerState:
            cursor.executescript(begin)
            cursor.execute(ask_server)
            return read_server_state(cursor.fetchone())

        try:
            self.required.wait_for(ask, lambda: cursor.executescript("ROLLBACK"), where=self.target.where)
        except PenstockError as error:
            raise error.at(pipeline=self.pipeline, stream=self.stream) from None


def _convert(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for field, array in zip(schema, batch.columns, strict=True):
        if isinstance(field.type, pa.BaseExtensionType):
            array = pa.ExtensionArray.from_storage(field.type, array.cast(field.type.storage_type))
        arrays.append(array.cast(field.type) if array.type != field.type else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
