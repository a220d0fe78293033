"""Reads the staged parts of a slice in Spark's workers: as rows for the fold, or as entities that need none.

Beside the rows, each part says what it found: its report, a row of kind `!`.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.ops import Layout
from penstock.lake.folding.fold import fan_out_id
from penstock.lake.folding.new_entities import Beside, NewEntities, Written, is_possible, read_beside
from penstock.lake.folding.plain import rows_of
from penstock.lake.folding.plain_json import make_report_row
from penstock.lake.folding.staging import StagedPart, read_parts
from penstock.lake.parquet import FileLayout
from penstock.lake.writing import NUMBERS_PER_PART

#: documents below which a slice is folded whole
FEW_CREATING = 2_000
#: rows of the side data beyond which new entities are folded like others: every worker reads them
MOST_BESIDE = 50_000


@dataclass(frozen=True)
class PartReport:
    """What one part holds."""

    part: int
    #: rows for the fold
    rows: int
    #: documents among them that Spark must look at
    open: int
    #: None: its documents are all for the fold
    written: Written | None = None
    #: two documents create one entity, so that nothing of the part was kept
    failed: bool = False


@dataclass(frozen=True)
class PartsReader:
    """Reads staged parts. Small and picklable."""

    files: FileLayout
    layout: Layout
    parts: Sequence[StagedPart]
    #: the parts, by their place, whose new entities are written
    writing: frozenset[int] = frozenset()
    #: beginning of every file's name: stream, slice number, attempt
    name: str = ""
    #: the first number of the slice
    start: int = 1
    #: files of the side data
    beside: Sequence[str] = field(default_factory=tuple)

    def read(self, places: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for place in places:
            part = self.parts[place]
            batches = read_parts(self.files, [part])
            rows = self._write(place, batches) if place in self.writing else rows_of(self.layout, batches)
            written, failed, count, open_ = None, False, 0, 0
            for each in rows:
                if isinstance(each, pa.RecordBatch):
                    count += each.num_rows
                    open_ += pc.sum(pc.equal(each.column("t"), "?")).as_py() or 0
                    yield each
                else:
                    written, failed = each, each is None
            report = PartReport(part.part, count, open_, written, failed)
            yield make_report_row(base64.b64encode(pickle.dumps(report)).decode())

    def _write(self, place: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Written | None]:
        beside = Beside(pa.array([], pa.string()), [pa.array([], pa.string()) for _ in self.layout.fan_outs])
        if self.beside:
            ids = [fan_out_id(each) for each in self.layout.fan_outs]
            beside = read_beside(self.files, self.beside, ids)
        first = self.start + place * NUMBERS_PER_PART
        return NewEntities(self.layout, self.files, beside, self.name, first, place).write(batches)


def choose_parts(layout: Layout, parts: Sequence[StagedPart], beside: int) -> frozenset[int]:
    """The parts that look as if they only create entities; `beside`: rows of the side data."""
    found = frozenset(place for place, part in enumerate(parts) if part.creating * 10 >= part.rows * 9 > 0)
    if not is_possible(layout) or beside > MOST_BESIDE or sum(parts[i].creating for i in found) < FEW_CREATING:
        return frozenset()
    return found


def read_with(reader: PartsReader) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker runs: its row's id says which part is its own."""
    payload = pickle.dumps(reader)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader: PartsReader = pickle.loads(payload)
        for batch in batches:
            yield from reader.read(batch.column(0).to_pylist())

    return rows


def take_reports(rows: Any) -> list[PartReport]:
    """The reports among the rows of all parts."""
    found = rows.where("t = '!'").select("raw").collect()
    return sorted((pickle.loads(base64.b64decode(each["raw"])) for each in found), key=lambda each: each.part)
