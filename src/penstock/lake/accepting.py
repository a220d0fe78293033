"""On the operator's word: readers go on from what is in a table, although nobody can tell which rows others brought.

Others have expired snapshots, or removed files, before anyone had looked. Rows without a number get one; rows in files
of unknown origin keep the numbers that they have. What was accepted is written down in the table.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.lake import names
from penstock.lake.standing import Standing

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.table import Table

#: acceptances that a table remembers
REMEMBERED = 10


@dataclass(frozen=True, slots=True)
class Doubt:
    """The files of unknown origin, and the numbers of their rows."""

    files: int
    rows: int
    #: the least and the greatest number; 0 if there is none
    low: int
    high: int

    def lines(self, table: str, standing: Standing) -> list[str]:
        """What is accepted, and which readers may miss rows by it."""
        if not self.files:
            return [f"no row of {table} is in doubt: every one has its place in the order"]
        found = [
            f"{self.rows} rows in {self.files} files of {table} (numbers {self.low} to {self.high}) may be other "
            "programs' or penstock's own; they keep their numbers. A new reader, or one that is reset, is given them "
            "all"
        ]
        for reader in standing.readers():
            if reader.mark >= self.low:
                upto = min(reader.mark, self.high)
                found.append(
                    f"{reader.pipeline}/{reader.stream} has read up to {reader.mark}: of the rows in doubt it is not "
                    f"given those with numbers from {self.low} to {upto} that came later. To deliver all from there "
                    "again, with its own pipeline file: "
                    f"`penstock rewind FILE --to {self.low - 1} --stream {reader.stream}`"
                )
        return found

    def remembered(self, standing: Standing, at: str) -> dict[str, str]:
        """The table's property with this acceptance as its last."""
        before: list[Any] = json.loads(standing.properties.get(names.ACCEPTED, "[]"))
        said = {"at": at, "after_sequence": standing.inspected, "files": self.files, "rows": self.rows}
        last = {**said, "numbers": [self.low, self.high]}
        return {names.ACCEPTED: json.dumps([*before, last][-REMEMBERED:])}


def doubt_about(table: Table, standing: Standing, new: Collection[str]) -> Doubt:
    """Files that came since the last look and that neither penstock nor a snapshot that is still there accounts for.

    `new`: paths of files whose rows are all new, and get numbers.
    """
    from pyiceberg.manifest import ManifestContent

    seq = table.schema().find_field(names.SEQ).field_id
    current = table.metadata.current_snapshot()
    files = [
        entry.data_file
        for manifest in (current.manifests(table.io) if current else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.data_file.file_path not in new and _unaccounted(entry, standing)
    ]
    lows = [low for file in files if (low := _bound(file.lower_bounds, seq)) is not None]
    highs = [high for file in files if (high := _bound(file.upper_bounds, seq)) is not None]
    rows = sum(file.record_count for file in files)
    # A file that does not say may hold any number.
    unknown = len(lows) < len(files)
    low = 1 if unknown else max(1, min(lows, default=0))
    return Doubt(len(files), rows, low if files else 0, max(highs, default=standing.head if files else 0))


def _unaccounted(entry: ManifestEntry, standing: Standing) -> bool:
    if (entry.sequence_number or 0) <= standing.inspected or _is_ours(entry.data_file):
        return False
    maker = standing.snapshots.get(entry.snapshot_id or -1)
    return maker is None or maker.kind is None


def _is_ours(file: DataFile) -> bool:
    name = file.file_path.rpartition("/")[2]
    return names.of_file(name) is not None or name.startswith("ps-stamp-")


def _bound(bounds: dict[int, bytes] | None, field: int) -> int | None:
    raw = (bounds or {}).get(field)
    return None if raw is None else int.from_bytes(raw, "little", signed=True)
