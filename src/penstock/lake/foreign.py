"""Rows that others have put into a table: each gets its place in the order before any reader may pass it.

A snapshot that is neither ours nor a compaction is inspected. Every row that it brought gets a number, whatever it
came with, unless it is a row that the same snapshot removed and that still has its own (`origins`). Rows that it
changed under their numbers, or deleted, are counted and reported, because no reader will see them as such.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.documents import Document, Json, canonical
from penstock.core.slices import Part
from penstock.errors import StreamFailed, StreamStopped
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.metadata import read_state
from penstock.lake.table_state import GAP, UNNUMBERED, TableState
from penstock.ports import Mover, Probe

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.table import FileScanTask, Table

    from penstock.lake.foreign_rows import Overwrite

#: races lost before the turn is taken, and before it is left to the next run
RACES_BEFORE_TURN, MAX_LOST_RACES = 2, 20


@dataclass(frozen=True)
class _Job:
    """One file to be written anew."""

    task: FileScanTask
    #: rows that get a number beside those without one: [begin, end) ranges of the file's live rows
    strange: Sequence[Sequence[int]] = ()
    #: every row gets one
    all: bool = False


def stamp(
    lake: Lake,
    table: str,
    mover: Callable[[], Mover],
    probe: Probe,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Give every row its place and describe what was done. Reads only metadata when there is nothing to do.

    `say` prints at once how far it is.
    """
    state = read_state(lake, table)
    if state is None or not state.ours or state.orderly:
        return []
    return _Stamping(lake, table, mover, probe, say).run()


def accept(lake: Lake, table: str, mover: Callable[[], Mover], probe: Probe, *, dry_run: bool = False) -> list[str]:
    """On the operator's word: the same, where it can no longer be seen which rows others brought.

    Returns what was accepted, and which readers may miss rows by it. With `dry_run` nothing is changed.
    """
    state = read_state(lake, table)
    if state is None or not state.ours or state.orderly:
        return [f"nothing to accept: every row of {lake.namespace}.{table} has its place in the order"]
    from penstock.lake.upkeep.job import refuse_rolled_back

    refuse_rolled_back(f"{lake.namespace}.{table}", state)
    return _Stamping(lake, table, mover, probe, lambda _: None, accepting=True, dry_run=dry_run).run()


@dataclass(frozen=True)
class _Stamping:
    lake: Lake
    table: str
    mover: Callable[[], Mover]
    probe: Probe
    say: Callable[[str], None]
    #: rows whose origin nobody can see keep their numbers; else they stop
    accepting: bool = False
    dry_run: bool = False

    @property
    def _name(self) -> str:
        return f"{self.lake.namespace}.{self.table}"

    def run(self) -> list[str]:
        from penstock.lake.landing import take_turn
        from penstock.lake.tables import LostRace, extract_state, load_table

        owner = uuid.uuid4().hex[:12]
        for lost in range(MAX_LOST_RACES):
            loaded = load_table(self.lake, self.table)
            if loaded is None:
                return []
            state = extract_state(loaded)
            if state.orderly:
                return []
            if state.gap and not self.accepting:
                raise self._untraceable(GAP)
            try:
                if lost == RACES_BEFORE_TURN:
                    take_turn(loaded, state, owner, by="a reader that numbers rows of other programs")
                    loaded = load_table(self.lake, self.table) or loaded
                    state = extract_state(loaded)
                return self._stamped(loaded, state)
            except LostRace:
                self.probe.at("lake.stamp_lost_race")
        raise StreamFailed(
            f"cannot number foreign rows of {self._name}: other writers committed first {MAX_LOST_RACES} times",
            next_step="run again",
        )

    def _stamped(self, table: Table, state: TableState) -> list[str]:
        from penstock.lake.landing import format_inspected
        from penstock.lake.parquet import FileLayout
        from penstock.lake.planning import NAME_MAPPING
        from penstock.lake.stamping import Stamper, WholeFiles, move_in_steps, remove_files, tally
        from penstock.lake.tables import LostRace, commit_snapshot
        from penstock.lake.writing import decode_files

        jobs, overwrites, doubt = self._jobs(table, state)
        said = [_reported(overwrite) for overwrite in overwrites]
        if doubt is not None:
            said += doubt.lines(self._name, state)
        if self.dry_run:
            return said
        added = []
        head, count = state.head, 0
        if jobs:
            tag = uuid.uuid4().hex[:12]
            parts = _parts(table, jobs, state.head)
            writer = Stamper(
                pipeline="",
                stream=self.table,
                layout=FileLayout.of(table),
                name=f"ps-stamp-{tag}",
                places={i: (job.task.file.partition, job.task.file.spec_id) for i, job in enumerate(jobs)},
            )
            reader = WholeFiles(table.io, table.schema(), table.properties.get(NAME_MAPPING))
            receipts = move_in_steps(self.mover(), reader, writer, parts, self._say_progress)
            added = [file for receipt in receipts for file in decode_files(receipt)]
            count, last = tally(receipts)
            head = max(head, last)
            self.probe.at("lake.stamped")
        try:
            commit_snapshot(
                table,
                kind="accept" if self.accepting else "stamp",
                head=head,
                added=added,
                removed=[job.task.file for job in jobs],
                properties=lambda new: {
                    names.INSPECTED: format_inspected(new),
                    **(doubt.remembered(state, _now()) if doubt is not None else {}),
                },
                unset=[name for name in (names.TURN, names.STOPPED, UNNUMBERED) if name in state.properties],
            )
        except LostRace:
            remove_files(table.io, added)
            raise
        self.probe.at("lake.stamp_landed")
        if count:
            said.append(f"gave {count} rows that others had put into {self._name} their place in the order")
        return said

    def _say_progress(self, done: int, of: int) -> None:
        self.say(f"{self._name}: {done} of {of} files rewritten, with numbers for the rows of other programs")

    def _jobs(self, table: Table, state: TableState) -> tuple[list[_Job], Sequence[Overwrite], UnknownOrigin | None]:
        """The files that hold rows without a place of their own; what others changed or deleted; what is accepted."""
        from penstock.lake.foreign import find_unknown_origin
        from penstock.lake.foreign_rows import ForeignRows, Untraceable, find_foreign_ranges, find_foreign_rows
        from penstock.lake.planning import make_scan_file, open_data_files, plan_files

        current, seq = table.metadata.current_snapshot_id, table.schema().find_field(names.SEQ).field_id
        since = _sequence_numbers(table)
        jobs = []
        with open_data_files(table) as files:
            try:
                origins = find_foreign_rows(table, state, files)
            except Untraceable as error:
                if not self.accepting:
                    raise self._untraceable(str(error)) from error
                origins = ForeignRows()
            for task in plan_files(table, current) if current is not None else ():
                strange = origins.strange.get(task.file.file_path)
                if strange is not None and strange.all():
                    jobs.append(_Job(task, all=True))
                elif strange is not None and strange.any():
                    dead = files.dead(make_scan_file(table, task.file, task.delete_files))
                    jobs.append(_Job(task, find_foreign_ranges(strange, dead)))
                elif _unnumbered(task, seq) or _highest(task, seq) > state.head:
                    jobs.append(_Job(task))
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
        jobs.sort(key=lambda job: (since[job.task.file.file_path], job.task.file.file_path))
        # A file that keeps numbers proves nothing: what it was compared with may be of unknown origin itself.
        new = {path for path, strange in origins.strange.items() if strange.all()}
        doubt = find_unknown_origin(table, state, new) if self.accepting else None
        return jobs, origins.overwrites, doubt

    def _untraceable(self, why: str) -> StreamStopped:
        """Said in the table too, so that those who write to it learn that nobody can read on."""
        from penstock.lake.readers import record_stop

        record_stop(self.lake, self.table, why)
        return self._stopped(
            why,
            f"put the table back as it was before; or go on from what is there: `penstock upkeep FILE --table "
            f"{self.table} --accept-foreign` says which rows readers may not be given. `penstock upkeep` itself "
            "expires only what it has looked at",
        )

    def _stopped(self, what: str, step: str) -> StreamStopped:
        return StreamStopped(
            f"{self._name}: {what}", next_step=step, safe="Nothing was changed, and no reader has passed them."
        )


def _sequence_numbers(table: Table) -> dict[str, int]:
    """Every data file that main shows, with the sequence number of the snapshot that added it."""
    from pyiceberg.manifest import ManifestContent

    current = table.metadata.current_snapshot()
    return {
        entry.data_file.file_path: entry.sequence_number or 0
        for manifest in (current.manifests(table.io) if current else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def _unnumbered(task: FileScanTask, seq: int) -> bool:
    """Whether a file has rows without a number, or with one that is never handed out, or does not say."""
    nulls = (task.file.null_value_counts or {}).get(seq)
    raw = (task.file.lower_bounds or {}).get(seq)
    return raw is None or bool(nulls) or int.from_bytes(raw, "little", signed=True) <= 0


def _highest(task: FileScanTask, seq: int) -> int:
    raw = (task.file.upper_bounds or {}).get(seq)
    return int.from_bytes(raw, "little", signed=True) if raw is not None else 0


def _parts(table: Table, jobs: Sequence[_Job], head: int) -> list[Part]:
    from penstock.lake.planning import make_scan_file

    parts, start = [], head + 1
    for index, job in enumerate(jobs):
        piece = make_scan_file(table, job.task.file, job.task.delete_files)
        strange: Json = [list(each) for each in job.strange]
        terms: Document = {
            "piece": piece.document(),
            "start": start,
            "all": job.all,
            "strange": strange,
            "head": head,
        }
        parts.append(Part(index, canonical(terms)))
        start += job.task.file.record_count
    return parts


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _reported(overwrite: Overwrite) -> str:
    snapshot = overwrite.snapshot
    return (
        f"snapshot {snapshot.id}, which penstock did not make, changed or deleted rows ({snapshot.operation}): it "
        f"removed {overwrite.removed} and wrote {overwrite.kept} of them again under their own numbers; readers do "
        "not get these changes"
    )


#: acceptances that a table remembers
MAX_ACCEPTANCES = 10


@dataclass(frozen=True, slots=True)
class UnknownOrigin:
    """The files of unknown origin, and the numbers of their rows."""

    files: int
    rows: int
    #: the least and the greatest number; 0 if there is none
    low: int
    high: int

    def lines(self, table: str, state: TableState) -> list[str]:
        """What is accepted, and which readers may miss rows by it."""
        if not self.files:
            return [f"no row of {table} is in doubt: every one has its place in the order"]
        found = [
            f"{self.rows} rows in {self.files} files of {table} (numbers {self.low} to {self.high}) may be other "
            "programs' or penstock's own; they keep their numbers. A new reader, or one that is reset, is given them "
            "all"
        ]
        for reader in state.readers():
            if reader.mark >= self.low:
                upto = min(reader.mark, self.high)
                found.append(
                    f"{reader.pipeline}/{reader.stream} has read up to {reader.mark}: of the rows in doubt it is not "
                    f"given those with numbers from {self.low} to {upto} that came later. To deliver all from there "
                    "again, with its own pipeline file: "
                    f"`penstock rewind FILE --to {self.low - 1} --stream {reader.stream}`"
                )
        return found

    def remembered(self, state: TableState, at: str) -> dict[str, str]:
        """The table's property with this acceptance as its last."""
        before: list[Any] = json.loads(state.properties.get(names.ACCEPTED, "[]"))
        said = {"at": at, "after_sequence": state.inspected, "files": self.files, "rows": self.rows}
        last = {**said, "numbers": [self.low, self.high]}
        return {names.ACCEPTED: json.dumps([*before, last][-MAX_ACCEPTANCES:])}


def find_unknown_origin(table: Table, state: TableState, new: Collection[str]) -> UnknownOrigin:
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
        if entry.data_file.file_path not in new and _unaccounted(entry, state)
    ]
    lows = [low for file in files if (low := _bound(file.lower_bounds, seq)) is not None]
    highs = [high for file in files if (high := _bound(file.upper_bounds, seq)) is not None]
    rows = sum(file.record_count for file in files)
    # A file that does not say may hold any number.
    unknown = len(lows) < len(files)
    low = 1 if unknown else max(1, min(lows, default=0))
    return UnknownOrigin(len(files), rows, low if files else 0, max(highs, default=state.head if files else 0))


def _unaccounted(entry: ManifestEntry, state: TableState) -> bool:
    if (entry.sequence_number or 0) <= state.inspected or _is_ours(entry.data_file):
        return False
    maker = state.snapshots.get(entry.snapshot_id or -1)
    return maker is None or maker.kind is None


def _is_ours(file: DataFile) -> bool:
    name = file.file_path.rpartition("/")[2]
    return names.parse_file_name(name) is not None or name.startswith("ps-stamp-")


def _bound(bounds: dict[int, bytes] | None, field: int) -> int | None:
    raw = (bounds or {}).get(field)
    return None if raw is None else int.from_bytes(raw, "little", signed=True)
