"""Rows that others have put into a table: each gets its place in the order before any reader may pass it.

A snapshot that is neither ours nor a compaction is inspected. What it appended is numbered anew as a whole, since its
numbers, if it has any, were handed out by another table. Of what it overwrote only rows without a number of this
table are numbered; changed and deleted rows are reported, because no reader will see them as such.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.documents import Document, canonical
from penstock.core.slices import Part
from penstock.errors import StreamFailed, StreamStopped
from penstock.lake import names
from penstock.lake.peek import peek
from penstock.lake.place import Place
from penstock.lake.standing import UNNUMBERED, Snapshot, Standing
from penstock.ports import Mover, Probe

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

#: races lost before the turn is taken, and before it is left to the next run
PATIENT, TRIES = 2, 20


@dataclass(frozen=True)
class _Job:
    """One file to be written anew."""

    task: FileScanTask
    #: number every row, not only those without a number
    all: bool


def stamp(place: Place, table: str, mover: Callable[[], Mover], probe: Probe) -> list[str]:
    """Give every row its place; what was done, in words. Asks the metadata alone when there is nothing to do."""
    standing = peek(place, table)
    if standing is None or not standing.ours or _clean(standing):
        return []
    return _Stamping(place, table, mover, probe).run()


def _clean(standing: Standing) -> bool:
    return standing.orderly


@dataclass(frozen=True)
class _Stamping:
    place: Place
    table: str
    mover: Callable[[], Mover]
    probe: Probe

    @property
    def _name(self) -> str:
        return f"{self.place.namespace}.{self.table}"

    def run(self) -> list[str]:
        from penstock.lake.landing import take_turn
        from penstock.lake.tables import LostRace, load, standing_of

        owner = uuid.uuid4().hex[:12]
        for lost in range(TRIES):
            loaded = load(self.place, self.table)
            if loaded is None:
                return []
            standing = standing_of(loaded)
            if _clean(standing):
                return []
            if standing.gap:
                raise self._stopped(
                    "snapshots that others made were expired before it could be seen what rows they brought",
                    "see what wrote and expired them; `penstock upkeep` expires only what it has looked at",
                )
            try:
                if lost == PATIENT:
                    take_turn(loaded, standing, owner)
                    loaded = load(self.place, self.table) or loaded
                    standing = standing_of(loaded)
                return self._stamped(loaded, standing)
            except LostRace:
                self.probe.at("lake.stamp_lost_race")
        raise StreamFailed(
            f"rows that others put into {self._name} could not be numbered: other writers came first {TRIES} times",
            next_step="run again",
        )

    def _stamped(self, table: Table, standing: Standing) -> list[str]:
        from penstock.lake.landing import inspected
        from penstock.lake.parquet import Shape
        from penstock.lake.planning import NAME_MAPPING
        from penstock.lake.stamping import Stamper, WholeFiles, remove_files, tally
        from penstock.lake.tables import LostRace, commit
        from penstock.lake.writing import decode

        jobs = self._jobs(table, standing)
        said = [_reported(snapshot) for snapshot in standing.foreign() if snapshot.operation != "append"]
        added = []
        head, count = standing.head, 0
        if jobs:
            tag = uuid.uuid4().hex[:12]
            parts = _parts(table, jobs, standing.head)
            writer = Stamper(
                pipeline="",
                stream=self.table,
                shape=Shape.of(table),
                name=f"ps-stamp-{tag}",
                places={i: (job.task.file.partition, job.task.file.spec_id) for i, job in enumerate(jobs)},
            )
            reader = WholeFiles(table.io, table.schema(), table.properties.get(NAME_MAPPING))
            receipts = self.mover().move(reader, writer, parts)
            added = [file for receipt in receipts for file in decode(receipt)]
            count, last = tally(receipts)
            head = max(head, last)
            self.probe.at("lake.stamped")
        try:
            commit(
                table,
                kind="stamp",
                head=head,
                added=added,
                removed=[job.task.file for job in jobs],
                properties=lambda planted: {names.INSPECTED: inspected(planted)},
                unset=[name for name in (names.TURN, UNNUMBERED) if name in standing.properties],
            )
        except LostRace:
            remove_files(table.io, added)
            raise
        self.probe.at("lake.stamp_landed")
        if count:
            said.append(f"gave {count} rows that others had put into {self._name} their place in the order")
        return said

    def _jobs(self, table: Table, standing: Standing) -> list[_Job]:
        """The files that hold rows without a place of their own."""
        foreign = {snapshot.id: snapshot for snapshot in standing.foreign()}
        made_by, since = _made_by(table)
        self._must_live(table, foreign, made_by)
        seq = table.schema().find_field(names.SEQ).field_id
        jobs = []
        for task in table.scan().plan_files():
            maker = foreign.get(made_by.get(task.file.file_path, -1))
            if maker is not None and maker.operation == "append":
                jobs.append(_Job(task, all=True))
            elif _unnumbered(task, seq) or (maker is not None and _highest(task, seq) > standing.head):
                jobs.append(_Job(task, all=False))
        for job in jobs:
            if job.task.file.spec_id != table.metadata.default_spec_id:
                # PyIceberg would write the new file down under the partitioning of today, whatever it holds.
                raise self._stopped(
                    f"rows without a place in the order lie in {job.task.file.file_path}, which was written under an "
                    "older partitioning of the table",
                    "rewrite such files first, in Spark SQL: call system.rewrite_data_files(table => '…', "
                    "options => map('rewrite-all', 'true')); then run again",
                )
        # As they came in: of two versions of a row the later one gets the higher number.
        return sorted(jobs, key=lambda job: (since[job.task.file.file_path], job.task.file.file_path))

    def _must_live(self, table: Table, foreign: Mapping[int, Snapshot], made_by: Mapping[str, int]) -> None:
        """What others appended must still lie in its own files: once it is mixed with our rows, nobody can tell."""
        from pyiceberg.manifest import ManifestContent

        seq = table.schema().find_field(names.SEQ).field_id
        for snapshot in foreign.values():
            if snapshot.operation != "append":
                continue
            found = table.metadata.snapshot_by_id(snapshot.id)
            for manifest in found.manifests(table.io) if found else ():
                if manifest.content != ManifestContent.DATA or manifest.added_snapshot_id != snapshot.id:
                    continue
                for entry in manifest.fetch_manifest_entry(table.io):
                    file = entry.data_file
                    numbered = (file.null_value_counts or {}).get(seq, file.record_count) < file.record_count
                    if entry.snapshot_id == snapshot.id and file.file_path not in made_by and numbered:
                        raise self._stopped(
                            f"rows that others appended (snapshot {snapshot.id}) came with numbers of another table, "
                            "and were rewritten together with other rows before they could be told apart",
                            f"roll {self._name} back to snapshot {snapshot.id} and run again, or delete those rows",
                        )

    def _stopped(self, what: str, step: str) -> StreamStopped:
        return StreamStopped(
            f"{self._name}: {what}", next_step=step, safe="Nothing was changed, and no reader has passed them."
        )


def _made_by(table: Table) -> tuple[dict[str, int], dict[str, int]]:
    """Every data file that main shows, with the snapshot that added it and its sequence number."""
    from pyiceberg.manifest import ManifestContent

    current = table.metadata.current_snapshot()
    entries = {
        entry.data_file.file_path: entry
        for manifest in (current.manifests(table.io) if current else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    }
    makers = {path: entry.snapshot_id or -1 for path, entry in entries.items()}
    return makers, {path: entry.sequence_number or 0 for path, entry in entries.items()}


def _unnumbered(task: FileScanTask, seq: int) -> bool:
    """Whether a file has rows without a number, or does not say."""
    nulls = (task.file.null_value_counts or {}).get(seq)
    bound = (task.file.lower_bounds or {}).get(seq)
    return nulls > 0 if nulls is not None else bound is None


def _highest(task: FileScanTask, seq: int) -> int:
    raw = (task.file.upper_bounds or {}).get(seq)
    return int.from_bytes(raw, "little", signed=True) if raw is not None else 0


def _parts(table: Table, jobs: Sequence[_Job], head: int) -> list[Part]:
    from penstock.lake.planning import piece_of

    parts, start = [], head + 1
    for index, job in enumerate(jobs):
        piece = piece_of(table, job.task.file, job.task.delete_files)
        terms: Document = {"piece": piece.document(), "start": start, "all": job.all, "head": head}
        parts.append(Part(index, canonical(terms)))
        start += job.task.file.record_count
    return parts


def _reported(snapshot: Snapshot) -> str:
    return (
        f"snapshot {snapshot.id}, which penstock did not make, changed or deleted rows ({snapshot.operation}); "
        "readers are not told of such changes"
    )
