"""Documents of ops inside a worker: each line of the log is one document, with its place in the order.

A batch of `ops` has bare documents. One of `rows` has rows of a stream of ops, as a log in a table has them: the
document is their field `document`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.documents import parse
from penstock.core.ops import FEED_COLUMNS
from penstock.core.slices import Part
from penstock.errors import StreamFailed
from penstock.sources.wal.records import Lines, Records

if TYPE_CHECKING:
    import pyarrow as pa

#: bytes of lines that become documents at the same time
_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """Reads documents. Small and picklable."""

    records: Records

    def open(self, part: Part) -> pa.RecordBatchReader:
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_schema

        schema = arrow_schema(FEED_COLUMNS)
        return pa.RecordBatchReader.from_batches(schema, self._batches(parse(part.terms)["ranges"], schema))

    def _batches(self, ranges: Sequence[Sequence[int]], schema: pa.Schema) -> Iterator[Any]:
        group: list[Lines] = []
        size = 0
        for found in self.records.read(ranges):
            group.append(found)
            size += found.size
            if size >= _BATCH_BYTES:
                yield self._batch(group, schema)
                group, size = [], 0
        if group:
            yield self._batch(group, schema)

    def _batch(self, group: Sequence[Lines], schema: pa.Schema) -> Any:
        import numpy as np
        import pyarrow as pa

        counts = [len(each.lines) for each in group]
        ids = np.concatenate([np.arange(each.first, each.first + len(each.lines)) for each in group])
        times = np.repeat(np.array([each.head.at for each in group], dtype=np.int64), counts)
        text = pa.array([line for each in group for line in self._documents(each)], pa.binary()).cast(pa.string())
        arrays = []
        for field, made in zip(schema, (pa.array(ids), pa.array(times), text), strict=True):
            is_extension = isinstance(field.type, pa.BaseExtensionType)
            array = made.cast(field.type.storage_type if is_extension else field.type)
            arrays.append(pa.ExtensionArray.from_storage(field.type, array) if is_extension else array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _documents(self, found: Lines) -> list[bytes]:
        if found.head.kind == "ops":
            return found.lines
        import msgspec

        # The document's own text: a number that passed through a float could lose digits.
        decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        documents = [bytes(decode(line).get("document", msgspec.Raw(b""))) for line in found.lines]
        wrong = next((at for at, text in enumerate(documents) if not text.startswith(b"{")), None)
        if wrong is not None:
            raise StreamFailed(
                f"the batch at {found.segment}:{found.offset} has a row without a `document`, so it is not one of a "
                f"stream of ops: {found.lines[wrong][:100].decode(errors='replace')}",
                next_step="send documents to `/ops` of the stream, or declare `columns` instead of `entities`",
                stream=self.records.stream,
            )
        return documents
