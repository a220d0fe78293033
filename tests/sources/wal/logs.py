"""A log as an origin of rows: batches of a few rows each, some of them chunks of a producer's slice."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.core.documents import canonical
from penstock.ports import Context, NoProbe, Source
from penstock.sources import wal
from penstock.wal.batches import Batch
from penstock.wal.folders import folder_of
from penstock.wal.ledger import Chunk, Take
from penstock.wal.log import LogOptions
from penstock.wal.opening import open_log

OPTIONS = {"columns": {"id": "int64", "note": "string", "at": "timestamptz", "more": "json"}, "primary_key": ("id",)}
#: rows in one batch
BATCH = 4


def encode(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as the receiver stores them."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as file:
        file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
    return out.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow has no types


class Orders:
    """A log with orders, whose ids grow."""

    stream = "shop/orders"

    def __init__(self, folder: Path, segment_bytes: int = 2000) -> None:
        self.folder = folder
        self.directory = folder / "wal"
        self.directory.mkdir(exist_ok=True)
        self.options: dict[str, Any] = dict(OPTIONS)
        self._ids: list[int] = []
        self._slices = 0
        self._settings = LogOptions(segment_bytes=segment_bytes)
        self._time = 1_700_000_000_000_000

    def open(self) -> Source:
        return self.open_with(self.stream, self.options)

    def open_with(self, stream: str, options: Mapping[str, Any]) -> Source:
        context = Context("contract", str(self.folder), NoProbe())
        return wal.build(wal.Options(directory="wal"), {stream: wal.StreamOptions.model_validate(options)}, context)

    def _now(self) -> int:
        self._time += 1
        return self._time

    def send(self, *batches: Batch) -> None:
        log = open_log(folder_of(str(self.directory), self.stream), self._settings, self._now)
        try:
            for batch in batches:
                assert log.append([batch]) == [Take()]
        finally:
            log.close()

    def arrive(self, count: int) -> None:
        first = len(self._ids) + 1
        ids = list(range(first, first + count))
        self._ids += ids
        groups = [ids[at : at + BATCH] for at in range(0, count, BATCH)]
        batches = []
        while groups:
            batches.append(self.batch(groups.pop(0), None))
            if len(groups) >= 2:
                batches += self._slice([groups.pop(0), groups.pop(0)])
        self.send(*batches)

    def _slice(self, groups: Sequence[Sequence[int]]) -> list[Batch]:
        self._slices += 1
        number, before = self._slices, f"s{self._slices - 1}" if self._slices > 1 else ""
        return [
            self.batch(ids, Chunk("shop", f"s{number}", number, before, k, len(groups), f"{ids}", len(ids)))
            for k, ids in enumerate(groups, start=1)
        ]

    def batch(self, ids: Sequence[int], sender: Chunk | None) -> Batch:
        rows = [
            {"id": number, "note": f"note {number}", "at": "2026-01-01T00:00:00Z", "more": {"n": [number]}, "x": 1}
            for number in ids
        ]
        return Batch(sender, len(rows), encode(rows))

    def rows(self) -> Sequence[Hashable]:
        return [(number, f"note {number}", canonical({"n": [number]})) for number in self._ids]

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        return [(row["id"], row["note"], canonical(json.loads(row["more"]))) for row in batch.to_pylist()]

    def traces(self) -> Hashable:
        return tuple((str(path), path.read_bytes()) for path in sorted(self.directory.rglob("*")) if path.is_file())
