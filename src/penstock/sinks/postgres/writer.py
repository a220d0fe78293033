"""Inside a worker: stage the rows of one part by binary COPY, where nobody sees them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.documents import canonical, digest
from penstock.core.slices import Part, Receipt
from penstock.errors import PenstockError
from penstock.links.postgres.connection import Target
from penstock.ports import Probe
from penstock.sinks.postgres.staging import MAX_PART_ROWS, PLACE, Staging

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PostgresWriter:
    """Stages parts. Small and picklable."""

    pipeline: str
    stream: str
    target: Target
    staging: Staging
    probe: Probe

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        import pyarrow as pa

        from penstock.links.postgres import arrow
        from penstock.links.postgres.failures import connect_error
        from penstock.sinks.postgres.failures import explain_copy_failure

        # Another attempt at this part, even one that still runs, has another number.
        attempt = random.SystemRandom().randrange(1, 1 << 31)
        counted = _PlacedRows(batches, attempt)
        try:
            connection = arrow.connect(self.target.conninfo)
        except arrow.Error as error:
            failure: PenstockError = connect_error(self.target.where, str(error), key=self.target.key, again=True)
            raise failure.at(pipeline=self.pipeline, stream=self.stream) from error
        try:
            cursor = connection.cursor()
            stream = pa.RecordBatchReader.from_batches(counted.schema, counted.batches())
            cursor.adbc_ingest(self.staging.name, stream, mode="append", db_schema_name=self.staging.schema)
        except arrow.Error as error:
            if counted.failed is not None:
                raise counted.failed from None
            is_connection = isinstance(error, arrow.OperationalError | arrow.InterfaceError)
            name, where = f"{self.staging.schema}.{self.staging.name}", self.target.where
            failure = explain_copy_failure(str(error), name, where=where, is_connection=is_connection)
            raise failure.at(pipeline=self.pipeline, stream=self.stream) from error
        finally:
            connection.close()
        self.probe.at("postgres.part_written", part=part.index)
        text = batches.schema.remove_metadata().to_string()
        return Receipt(
            part=part.index,
            attempt=str(attempt),
            read=counted.rows,
            rows=counted.rows,
            bytes=counted.bytes,
            schema=digest(text),
            pieces=canonical({"schema": text}),
        )


class _PlacedRows:
    """The batches of a part, each row with its place, and their totals."""

    def __init__(self, source: pa.RecordBatchReader, attempt: int) -> None:
        import pyarrow as pa

        from penstock.links.arrow_types import carried

        self.source = source
        self.first = attempt * MAX_PART_ROWS
        self.rows = self.bytes = 0
        self.schema = carried(source.schema.remove_metadata()).append(pa.field(PLACE, pa.int64(), nullable=False))
        #: the error of the source; the driver would report only its text
        self.failed: BaseException | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            for batch in self.source:
                start = self.first + self.rows
                place = pa.arange(start, start + batch.num_rows)
                self.rows += batch.num_rows
                self.bytes += batch.nbytes
                columns = (
                    column if column.type == field.type else column.cast(field.type)
                    for column, field in zip(batch.columns, self.schema, strict=False)
                )
                yield pa.RecordBatch.from_arrays([*columns, place], schema=self.schema)
        except BaseException as error:
            self.failed = error
            raise
