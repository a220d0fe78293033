"""Inside a worker: one part's rows by binary COPY into the attempt's table, where nobody sees them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.documents import canonical, digest
from penstock.core.slices import Part, Receipt
from penstock.links.postgres.connection import Target
from penstock.ports import Probe
from penstock.sinks.postgres.staging import MOST_ROWS, PLACE, Staging

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PostgresWriter:
    """Puts parts aside. Small and picklable."""

    pipeline: str
    stream: str
    target: Target
    staging: Staging
    probe: Probe

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        import pyarrow as pa

        from penstock.links.postgres import arrow
        from penstock.links.postgres.failures import connect_error
        from penstock.sinks.postgres.failures import broken_off

        # Another try at this part, even one that still runs, has another number.
        attempt = random.SystemRandom().randrange(1, 1 << 31)
        counted = _Counted(batches, attempt)
        try:
            connection = arrow.connect(self.target.conninfo)
        except arrow.Error as error:
            raise connect_error(self.target.where, str(error), key=self.target.key, again=True).at(
                pipeline=self.pipeline, stream=self.stream
            ) from error
        try:
            cursor = connection.cursor()
            stream = pa.RecordBatchReader.from_batches(counted.schema, counted.batches())
            cursor.adbc_ingest(self.staging.name, stream, mode="append", db_schema_name=self.staging.schema)
        except arrow.Error as error:
            if counted.failed is not None:
                raise counted.failed from None
            connection_failed = isinstance(error, arrow.OperationalError | arrow.InterfaceError)
            raise broken_off(str(error), self, connection=connection_failed) from error
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


class _Counted:
    """Batches on their way, each row with its place."""

    def __init__(self, source: pa.RecordBatchReader, attempt: int) -> None:
        import pyarrow as pa

        from penstock.links.arrow_types import carried

        self.source = source
        self.first = attempt * MOST_ROWS
        self.rows = self.bytes = 0
        self.schema = carried(source.schema.remove_metadata()).append(pa.field(PLACE, pa.int64(), nullable=False))
        #: what the source could not give: the driver would bring only its words
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
