"""Finds which numbers in foreign files are this table's own, by following the foreign snapshots one by one.

A number at or below 0 is never handed out: a row that has one is not stamped. What others appended has no number of
this table. What they wrote by an overwrite may be a row that the same snapshot removed, changed or not, under its own
number; any other number there is not this table's. A compaction copies rows of others with their numbers. Where rows
of both kinds have the same number, their content tells which is which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from penstock.errors import StreamFailed
from penstock.lake import names
from penstock.lake.data_files import Int64s, Mask, OpenDataFiles, ScanFile, explain_read_errors, read_bounds
from penstock.lake.planning import make_scan_file, plan_files
from penstock.lake.projection import Projection
from penstock.lake.table_state import Snapshot, TableState

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

Seen = TypeVar("Seen")


class Untraceable(Exception):
    """Foreign rows can no longer be told from this table's own; the message says why."""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Counts of what a foreign snapshot changed."""

    snapshot: Snapshot
    #: rows that it removed
    removed: int
    #: of those, rows that it wrote again under their own numbers
    kept: int


@dataclass
class ForeignRows:
    """The files that other programs wrote since the last inspection, and which of their rows need numbers."""

    #: by path: True for each row of the file, dead ones included, that must get a number
    masks: dict[str, Mask] = field(default_factory=dict)
    overwrites: list[Overwrite] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Changes:
    """The data files that a snapshot added and removed."""

    added: Sequence[DataFile]
    removed: Sequence[DataFile]


@dataclass(frozen=True, slots=True)
class _Removed:
    """Rows of one file that a snapshot removed."""

    scan_file: ScanFile
    numbers: Int64s
    #: the rows that it removed and whose numbers are this table's own
    own: Mask
    #: those whose numbers are not
    others: Mask


def find_foreign_rows(table: Table, state: TableState, files: OpenDataFiles) -> ForeignRows:
    """Follow main from the last inspection to now; Untraceable if a file that is needed is gone."""
    return _Trace(table, state, files).run()


def find_foreign_ranges(foreign: Mask, dead: Int64s) -> list[list[int]]:
    """The foreign rows of a file as [begin, end) ranges of its live rows."""
    wanted = np.concatenate(([False], np.delete(foreign, dead), [False]))
    edges = np.flatnonzero(wanted[1:] != wanted[:-1])
    return [[int(begin), int(end)] for begin, end in edges.reshape(-1, 2)]


@dataclass
class _Trace:
    table: Table
    state: TableState
    files: OpenDataFiles
    found: ForeignRows = field(default_factory=ForeignRows)

    def run(self) -> ForeignRows:
        for snapshot in self.state.uninspected():
            changes = self._changes(snapshot)
            if snapshot.foreign and snapshot.operation == "append":
                for file in changes.added:
                    self.found.masks[file.file_path] = np.ones(file.record_count, np.bool_)
            elif snapshot.foreign:
                gone = list(self._gone(snapshot, changes))
                kept = self._written_again(changes, gone)
                self.found.overwrites.append(Overwrite(snapshot, sum(int(rows.sum()) for _, rows in gone), kept))
            # A landing copies no row; a compaction does, and so does a merge into a table that is written by copying.
            elif snapshot.kind != "landing" and any(self._brought_numbers(file) for file in changes.removed):
                self._written_again(changes, list(self._gone(snapshot, changes)))
        return self.found

    def _brought_numbers(self, file: DataFile) -> bool:
        """Whether a file has rows of others under numbers above 0."""
        foreign = self.found.masks.get(file.file_path)
        if foreign is None or not _has_numbers(file, self._seq):
            return False
        return bool((self._numbers(file.file_path, file.record_count)[foreign] > 0).any())

    # ------------------------------------------------------------ one snapshot

    def _written_again(self, changes: _Changes, gone: Sequence[tuple[ScanFile, Mask]]) -> int:
        """Compare the rows that a snapshot wrote with those it removed; returns how many keep their own number."""
        if not any(_has_numbers(file, self._seq) for file in changes.added):
            for file in changes.added:
                self.found.masks[file.file_path] = np.ones(file.record_count, np.bool_)
            return 0
        removed = [self._judged(scan_file, rows) for scan_file, rows in gone]
        own = np.concatenate([_NONE, *(each.numbers[each.own] for each in removed)])
        others = np.concatenate([_NONE, *(each.numbers[each.others] for each in removed)])
        numbers = [self._numbers(file.file_path, file.record_count) for file in changes.added]
        written = np.concatenate(numbers)
        foreign = ~_among(written, own)
        doubtful = _doubtful(written, own, others)
        if len(doubtful):
            at = np.isin(written, doubtful)
            foreign[at] = self._by_content(changes.added, removed, doubtful)
        ends = np.cumsum([len(each) for each in numbers])[:-1]
        for file, mask in zip(changes.added, np.split(foreign, ends), strict=True):
            self.found.masks[file.file_path] = mask
        return int((~foreign).sum())

    def _by_content(self, added: Sequence[DataFile], removed: Sequence[_Removed], doubtful: Int64s) -> Mask:
        """Find which written rows with a doubtful number are foreign: those that no removed row of ours equals.

        A row that was changed equals none, and counts as new: an extra version is better than a missing row.
        """
        own = Counter[bytes]()
        for each in removed:
            own.update(self._digests(each.scan_file, each.own & np.isin(each.numbers, doubtful)))
        found = []
        for file in added:
            wanted = np.isin(self._numbers(file.file_path, file.record_count), doubtful)
            for digest in self._digests(make_scan_file(self.table, file, ()), wanted):
                found.append(own[digest] == 0)
                own[digest] -= not found[-1]
        return np.array(found, np.bool_)

    def _digests(self, scan_file: ScanFile, wanted: Mask) -> list[bytes]:
        """The content of a file's wanted rows, number included, each as a digest."""
        return self._read(lambda: list(self._each_digest(scan_file, wanted))) if wanted.any() else []

    def _each_digest(self, scan_file: ScanFile, wanted: Mask) -> Iterator[bytes]:
        fields = self.table.schema().fields
        file = self.files.file(scan_file.path)
        projection = Projection.onto(
            fields, file.schema_arrow, names=self.files.known, constants=scan_file.constants, path=scan_file.path
        )
        at = 0
        for batch in file.iter_batches(columns=projection.read):
            here, at = wanted[at : at + batch.num_rows], at + batch.num_rows
            with explain_read_errors(scan_file.path):
                rows = projection.applied(batch.filter(pa.array(here)))
            for row in rows.to_pylist():
                yield blake2b(repr(list(row.values())).encode(), digest_size=16).digest()

    # ------------------------------------------------------------ rows and numbers

    @property
    def _seq(self) -> int:
        return self.table.schema().find_field(names.SEQ).field_id

    def _gone(self, snapshot: Snapshot, changes: _Changes) -> Iterator[tuple[ScanFile, Mask]]:
        """The files that a snapshot removed rows of, and which rows."""
        before = self._alive(snapshot.parent) if snapshot.parent in self.state.snapshots else {}
        for file in changes.removed:
            was = before.get(file.file_path) or make_scan_file(self.table, file, ())
            yield was, ~self._dead(was)
        for path, scan_file in self._alive(snapshot.id).items():
            was_alive = before.get(path)
            if scan_file.deletes and (was_alive is None or was_alive.deletes != scan_file.deletes):
                dead = self._dead(scan_file)
                yield scan_file, dead if was_alive is None else dead & ~self._dead(was_alive)

    def _judged(self, scan_file: ScanFile, gone: Mask) -> _Removed:
        numbers = self._numbers(scan_file.path, scan_file.rows)
        foreign = self.found.masks.get(scan_file.path, np.zeros(len(numbers), np.bool_))
        counted = gone & (numbers > 0)
        return _Removed(scan_file, numbers, own=counted & ~foreign, others=counted & foreign)

    def _alive(self, snapshot: int | None) -> Mapping[str, ScanFile]:
        tasks = plan_files(self.table, snapshot) if snapshot is not None else ()
        return {task.file.file_path: make_scan_file(self.table, task.file, task.delete_files) for task in tasks}

    def _dead(self, scan_file: ScanFile) -> Mask:
        """The rows of a file that are deleted."""
        mask = np.zeros(scan_file.rows, np.bool_)
        mask[self._read(lambda: self.files.find_deleted(scan_file))] = True
        return mask

    def _numbers(self, path: str, rows: int) -> Int64s:
        return self._read(lambda: self.files.numbers(path, rows))

    def _read(self, look: Callable[[], Seen]) -> Seen:
        try:
            return look()
        except StreamFailed as error:
            raise Untraceable(
                f"other programs wrote rows, and what they replaced can no longer be read ({error.what})"
            ) from error

    def _changes(self, snapshot: Snapshot) -> _Changes:
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

        current = self.table.metadata.snapshot_by_id(snapshot.id)
        added: list[DataFile] = []
        removed: list[DataFile] = []
        for manifest in current.manifests(self.table.io) if current else ():
            if manifest.content != ManifestContent.DATA or manifest.added_snapshot_id != snapshot.id:
                continue
            for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=False):
                if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.id:
                    added.append(entry.data_file)
                elif entry.status == ManifestEntryStatus.DELETED:
                    removed.append(entry.data_file)
        return _Changes(added, removed)


_NONE: Int64s = np.empty(0, np.int64)


def _among(numbers: Int64s, own: Int64s) -> Mask:
    """For each number whether it is among `own`, and above 0."""
    return np.isin(numbers, own) & (numbers > 0)


def _doubtful(written: Int64s, own: Int64s, others: Int64s) -> Int64s:
    """Own numbers that rows of others had too, or that were written more often than they were removed."""
    values, counts = np.unique(written[_among(written, own)], return_counts=True)
    had, times = np.unique(own, return_counts=True)
    more = counts > times[np.searchsorted(had, values)]
    return values[more | np.isin(values, others)]


def _has_numbers(file: DataFile, seq: int) -> bool:
    """Whether a file may hold a number above 0."""
    nulls, high = (file.null_value_counts or {}).get(seq), read_bounds(file, seq)[1]
    return (nulls is None or nulls < file.record_count) and (high is None or high > 0)
