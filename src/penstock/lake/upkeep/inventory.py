"""The data files that main shows, from its manifests: size, rows, numbers, and how much of each is deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.lake import names
from penstock.lake.data_files import read_bounds

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


@dataclass(frozen=True)
class DataFileEntry:
    """One data file."""

    file: DataFile
    #: its lowest and highest number; None: the manifest does not say
    low: int | None
    high: int | None
    #: delete files that may apply to it
    deletes: int
    #: estimate of its deleted rows
    dead: float

    @property
    def path(self) -> str:
        return self.file.file_path

    @property
    def bytes(self) -> int:
        return self.file.file_size_in_bytes

    @property
    def rows(self) -> int:
        return self.file.record_count

    @property
    def live_bytes(self) -> float:
        return self.bytes * (1 - min(1.0, self.dead / self.rows)) if self.rows else 0.0

    @property
    def partition(self) -> tuple[int, str]:
        return self.file.spec_id, str(self.file.partition)

    @property
    def bounds(self) -> tuple[int, int]:
        """Its lowest and highest number, where both are known."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high


@dataclass(frozen=True)
class FileInventory:
    """Every data file of a snapshot."""

    entries: Sequence[DataFileEntry]
    #: delete files
    deletes: int

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    @property
    def numbered(self) -> list[DataFileEntry]:
        return [entry for entry in self.entries if entry.low is not None and entry.high is not None]


def take_inventory(table: Table) -> FileInventory:
    """List the files of main; opens manifests only."""
    if table.metadata.current_snapshot() is None:
        return FileInventory((), 0)
    seq = table.schema().find_field(names.SEQ).field_id
    try:
        tasks = [(task.file, list(task.delete_files)) for task in table.scan().plan_files()]
    except (NotImplementedError, ValueError):
        # PyIceberg does not plan with equality deletes; Spark, which compacts, can read them.
        return _list_without_planning(table, seq)
    dead = _estimate_dead_rows(tasks)
    entries = [
        DataFileEntry(file, *read_bounds(file, seq), len(deletes), dead.get(file.file_path, 0.0))
        for file, deletes in tasks
    ]
    return FileInventory(entries, len({each.file_path for _, deletes in tasks for each in deletes}))


def _estimate_dead_rows(tasks: Iterable[tuple[DataFile, Sequence[DataFile]]]) -> dict[str, float]:
    """Estimate the deleted rows of each data file; those of a shared delete file are shared out by rows."""
    applies: dict[str, list[DataFile]] = defaultdict(list)
    counts: dict[str, int] = {}
    for file, deletes in tasks:
        for each in deletes:
            applies[each.file_path].append(file)
            counts[each.file_path] = each.record_count
    found: dict[str, float] = defaultdict(float)
    for path, files in applies.items():
        rows = sum(file.record_count for file in files) or 1
        for file in files:
            found[file.file_path] += counts[path] * file.record_count / rows
    return found


def _list_without_planning(table: Table, seq: int) -> FileInventory:
    """List every data file as if a delete applied to it."""
    from pyiceberg.manifest import ManifestContent

    snapshot = table.metadata.current_snapshot()
    entries, deletes = [], 0
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(table.io):
            if manifest.content == ManifestContent.DELETES:
                deletes += 1
                continue
            file = entry.data_file
            entries.append(DataFileEntry(file, *read_bounds(file, seq), 1, float(file.record_count)))
    return FileInventory(entries, deletes)
