"""Rewrites files with foreign rows, so that each of these rows gets its place in the order.

At the operator's request readers can also go on where the origin of rows is unknown: other programs expired snapshots,
or removed files, before anyone had inspected them. Rows without a number then get one; rows in files of unknown origin
keep the numbers that they have. The table records what was accepted.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry
from pyiceberg.table import FileScanTask, Table

from penstock.core.documents import Document, canonical
from penstock.core.slices import Part, Receipt
from penstock.errors import StreamFailed, StreamStopped
from penstock.lake import names
from penstock.lake.data_files import read_bounds
from penstock.lake.foreign_rows import ForeignRows, Overwrite, Untraceable, find_foreign_ranges, find_foreign_rows
from penstock.lake.lake import Lake
from penstock.lake.landing import RACES_BEFORE_TURN, take_turn
from penstock.lake.parquet import FileLayout, remove
from penstock.lake.planning import NAME_MAPPING, make_scan_file, open_data_files, plan_files
from penstock.lake.readers import record_stop
from penstock.lake.stamping import Stamper, WholeFiles, count_stamped
from penstock.lake.table_state import SNAPSHOTS_EXPIRED, UNNUMBERED, TableState
from penstock.lake.tables import LOST_RACES, LostRace, commit_snapshot, extract_state, load_table
from penstock.lake.writing import decode_files
from penstock.links.pause import iterate_tries
from penstock.ports import Mover, Probe

#: how often progress is reported
PROGRESS_STEPS = 10
#: acceptances that a table remembers
MAX_ACCEPTANCES = 10


@dataclass(frozen=True)
class _Rewrite:
    """One file to rewrite."""

    task: FileScanTask
    #: rows that get a number besides those without one: [begin, end) ranges of the file's live rows
    foreign: Sequence[Sequence[int]] = ()
    #: every row gets one
    all: bool = False

    def make_part(self, index: int, table: Table, start: int, head: int) -> Part:
        scan_file: Any = asdict(make_scan_file(table, self.task.file, self.task.delete_files))
        terms: Document = {
            "scan_file": scan_file,
            "start": start,
            "all": self.all,
            "foreign": self.foreign,
            "head": head,
        }
        return Part(index, canonical(terms))


@dataclass(frozen=True)
class Numbering:
    """Numbers the foreign rows of one table."""

    lake: Lake
    table: str
    mover: Callable[[], Mover]
    probe: Probe
    say: Callable[[str], None] = lambda _: None
    #: rows of unknown origin keep their numbers; otherwise they stop it
    accepting: bool = False
    dry_run: bool = False

    @property
    def _name(self) -> str:
        return f"{self.lake.namespace}.{self.table}"

    def run(self) -> list[str]:
        owner = uuid.uuid4().hex[:12]
        for attempt in iterate_tries(LOST_RACES):
            loaded = load_table(self.lake, self.table)
            if loaded is None:
                return []
            state = extract_state(loaded)
            if state.orderly:
                return []
            if state.gap and not self.accepting:
                raise self._untraceable(SNAPSHOTS_EXPIRED)
            try:
                if attempt - 1 == RACES_BEFORE_TURN:
                    take_turn(loaded, state, owner, by="a reader that numbers rows of other programs")
                    loaded = load_table(self.lake, self.table) or loaded
                    state = extract_state(loaded)
                return self._number(loaded, state)
            except LostRace:
                self.probe.at("lake.stamp_lost_race")
        raise StreamFailed(
            f"cannot number foreign rows of {self._name}: other writers committed first {LOST_RACES.tries} times",
            next_step="run again",
        )

    def _number(self, table: Table, state: TableState) -> list[str]:
        rewrites, overwrites, unknown = self._find_rewrites(table, state)
        lines = [_describe(overwrite) for overwrite in overwrites]
        lines += unknown.describe(self._name, state) if unknown else []
        if self.dry_run:
            return lines
        receipts = self._rewrite(table, state, rewrites)
        added = [file for receipt in receipts for file in decode_files(receipt)]
        count, last = count_stamped(receipts)
        try:
            commit_snapshot(
                table,
                kind="accept" if self.accepting else "stamp",
                head=max(state.head, last),
                added=added,
                removed=[rewrite.task.file for rewrite in rewrites],
                properties=lambda new: {
                    names.INSPECTED: new.inspected,
                    **(unknown.add_to(state) if unknown else {}),
                },
                unset=(names.TURN, names.STOPPED, UNNUMBERED),
            )
        except LostRace:
            for file in added:
                remove(file.file_path, table.io)
            raise
        self.probe.at("lake.stamp_landed")
        return [*lines, *([f"numbered {count} rows that other programs wrote to {self._name}"] if count else [])]

    def _rewrite(self, table: Table, state: TableState, rewrites: Sequence[_Rewrite]) -> list[Receipt]:
        """Write new files, in at most ten groups, so that progress can be reported."""
        if not rewrites:
            return []
        parts, start = [], state.head + 1
        for index, rewrite in enumerate(rewrites):
            parts.append(rewrite.make_part(index, table, start, state.head))
            start += rewrite.task.file.record_count
        writer = Stamper(
            pipeline="",
            stream=self.table,
            layout=FileLayout.of(table),
            name=f"ps-stamp-{uuid.uuid4().hex[:12]}",
            partitions={index: rewrite.task.file.partition for index, rewrite in enumerate(rewrites)},
        )
        reader = WholeFiles(table.io, table.schema(), table.properties.get(NAME_MAPPING))
        mover = self.mover()
        step = max(mover.workers, -(-len(parts) // PROGRESS_STEPS))
        receipts: list[Receipt] = []
        for begin in range(0, len(parts), step):
            receipts += mover.move(reader, writer, parts[begin : begin + step])
            if len(parts) > step:
                done = min(begin + step, len(parts))
                self.say(f"{self._name}: rewrote {done} of {len(parts)} files, to number the rows of other programs")
        self.probe.at("lake.stamped")
        return receipts

    def _find_rewrites(
        self, table: Table, state: TableState
    ) -> tuple[list[_Rewrite], Sequence[Overwrite], UnknownOrigin | None]:
        """Find the files with rows that need a number; what others changed or deleted; what is accepted."""
        current, seq = table.metadata.current_snapshot_id, table.schema().find_field(names.SEQ).field_id
        entries = _list_entries(table)
        since = {entry.data_file.file_path: entry.sequence_number or 0 for entry in entries}
        rewrites = []
        with open_data_files(table) as files:
            try:
                found = find_foreign_rows(table, state, files)
            except Untraceable as error:
                if not self.accepting:
                    raise self._untraceable(str(error)) from error
                found = ForeignRows()
            for task in plan_files(table, current) if current is not None else ():
                foreign = found.masks.get(task.file.file_path)
                if foreign is not None and foreign.all():
                    rewrites.append(_Rewrite(task, all=True))
                elif foreign is not None and foreign.any():
                    dead = files.find_deleted(make_scan_file(table, task.file, task.delete_files))
                    rewrites.append(_Rewrite(task, find_foreign_ranges(foreign, dead)))
                elif _needs_numbers(task.file, seq, state.head):
                    rewrites.append(_Rewrite(task))
        for rewrite in rewrites:
            if rewrite.task.file.spec_id != table.metadata.default_spec_id:
                # PyIceberg would enter the new file under the current partitioning, whatever it holds.
                raise self._stopped(
                    f"rows without a number are in {rewrite.task.file.file_path}, which was written under an older "
                    "partitioning of the table",
                    "rewrite such files first, in Spark SQL: call system.rewrite_data_files(table => '…', "
                    "options => map('rewrite-all', 'true')); then run again",
                )
        # In the order of their snapshots: of two versions of a row the later one gets the higher number.
        rewrites.sort(key=lambda rewrite: (since[rewrite.task.file.file_path], rewrite.task.file.file_path))
        # A file that keeps numbers proves nothing: what it was compared with may be of unknown origin itself.
        new = {path for path, foreign in found.masks.items() if foreign.all()}
        unknown = find_unknown_origin(entries, seq, state, new) if self.accepting else None
        return rewrites, found.overwrites, unknown

    def _untraceable(self, why: str) -> StreamStopped:
        """Recorded in the table too, so that its writers learn that no reader can go on."""
        if not self.dry_run:
            record_stop(self.lake, self.table, why)
        return self._stopped(
            why,
            f"restore the table as it was before; or go on from what is there: `penstock upkeep FILE --table "
            f"{self.table} --accept-foreign` prints which rows readers may miss. `penstock upkeep` itself expires only "
            "snapshots that it has inspected",
        )

    def _stopped(self, what: str, step: str) -> StreamStopped:
        return StreamStopped(
            f"{self._name}: {what}", next_step=step, safe="Nothing was changed, and no reader has passed them."
        )


def _list_entries(table: Table) -> list[ManifestEntry]:
    """Every data file that main shows, as its manifest has it."""
    current = table.metadata.current_snapshot()
    return [
        entry
        for manifest in (current.manifests(table.io) if current else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io)
    ]


def _needs_numbers(file: DataFile, seq: int, head: int) -> bool:
    """Whether a file may have rows without a number, or with one that was never handed out."""
    low, high = read_bounds(file, seq)
    return low is None or low <= 0 or (high or 0) > head or bool((file.null_value_counts or {}).get(seq))


def _describe(overwrite: Overwrite) -> str:
    snapshot = overwrite.snapshot
    return (
        f"snapshot {snapshot.id}, which penstock did not make, changed or deleted rows ({snapshot.operation}): it "
        f"removed {overwrite.removed} and wrote {overwrite.kept} of them again under their own numbers; readers do "
        "not get these changes"
    )


@dataclass(frozen=True, slots=True)
class UnknownOrigin:
    """The files of unknown origin, and the numbers of their rows."""

    files: int
    rows: int
    #: the lowest and highest number; 0 if there is none
    low: int
    high: int

    def describe(self, table: str, state: TableState) -> list[str]:
        """Describe what is accepted, and which readers may miss rows by it."""
        if not self.files:
            return [f"no row of {table} is in doubt: every one has its place in the order"]
        found = [
            f"{self.rows} rows in {self.files} files of {table} (numbers {self.low} to {self.high}) may be other "
            "programs' or penstock's own; they keep their numbers. A new reader, or one that is reset, gets all of them"
        ]
        for reader in state.readers():
            if reader.mark >= self.low:
                found.append(
                    f"{reader.name} has read up to {reader.mark}: of the rows in doubt it does not get those with "
                    f"numbers from {self.low} to {min(reader.mark, self.high)} that came later. To deliver all from "
                    "there again, with its own pipeline file: "
                    f"`penstock rewind FILE --to {self.low - 1} --stream {reader.stream}`"
                )
        return found

    def add_to(self, state: TableState) -> dict[str, str]:
        """The table's property with this acceptance as its last."""
        before = json.loads(state.properties.get(names.ACCEPTED, "[]"))
        at = datetime.now(UTC).isoformat(timespec="seconds")
        last = {"at": at, "after_sequence": state.inspected, "files": self.files, "rows": self.rows}
        last["numbers"] = [self.low, self.high]
        return {names.ACCEPTED: json.dumps([*before, last][-MAX_ACCEPTANCES:])}


def find_unknown_origin(
    entries: Sequence[ManifestEntry], seq: int, state: TableState, new: Collection[str]
) -> UnknownOrigin:
    """Find files since the last inspection that neither penstock nor a snapshot that still exists accounts for.

    `new`: paths of files whose rows are all new, and get numbers.
    """
    unaccounted = (entry.data_file for entry in entries if _is_unaccounted(entry, state))
    files = [file for file in unaccounted if file.file_path not in new]
    if not files:
        return UnknownOrigin(0, 0, 0, 0)
    lows, highs = zip(*(read_bounds(file, seq) for file in files), strict=True)
    # A file that does not say may hold any number.
    low = 1 if None in lows else max(1, min(lows))
    high = max((high for high in highs if high is not None), default=state.head)
    return UnknownOrigin(len(files), sum(file.record_count for file in files), low, high)


def _is_unaccounted(entry: ManifestEntry, state: TableState) -> bool:
    name = entry.data_file.file_path.rpartition("/")[2]
    ours = names.parse_file_name(name) is not None or name.startswith("ps-stamp-")
    maker = state.snapshots.get(entry.snapshot_id or -1)
    return (entry.sequence_number or 0) > state.inspected and not ours and (maker is None or maker.kind is None)
