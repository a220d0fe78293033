"""Compaction: many small files into few, sorted by the order, rows and numbers unchanged.

Windows are chosen from the manifests; Spark is started only if there is one. Where the table has a sort order of its
own, files are sorted by it inside each window. A keyed table is compacted under the turn: beside merges a compaction
never lands by itself. What was to be rewritten and was not is a failure.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.sizes import shown_size
from penstock.lake import names
from penstock.lake.data_files import group_overlapping
from penstock.lake.landing import RACES_BEFORE_TURN
from penstock.lake.upkeep.inventory import Entry, FileInventory, take_inventory
from penstock.lake.upkeep.job import Conflict, StepResult, UpkeepJob, count_noun, hold_turn, run_procedure

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "compaction"
#: how often a rewrite that others' commits have undone is begun again
MAX_LOST_RACES = 6
#: seconds in which landings that waited for a turn may come through, before the next one is taken
PAUSE_SECONDS = 0.3


@dataclass
class _Tally:
    rewritten: int = 0
    added: int = 0
    deletes: int = 0


def compact(job: UpkeepJob) -> list[StepResult]:
    """Rewrite the windows that are worth it."""
    table, state = job.loaded()
    if not state.orderly:
        # Written again with ours, rows of others would no longer be told by the snapshot that brought them.
        return [StepResult(STEP, "nothing compacted: others have written meanwhile, and their rows have no place yet")]
    policy = make_policy(job, table, keyed=state.mode == "merge")
    before = take_inventory(table)
    windows = policy.windows(before)
    if not windows and not policy.deletes_wanted(before):
        return [StepResult(STEP, f"nothing to compact in {_shown(before)}", _facts(before, before))]
    if job.dry_run:
        files = sum(len(window.entries) for window in windows)
        size = sum(window.bytes for window in windows)
        text = f"would rewrite {count_noun(files, 'file')} ({shown_size(size)}) of {_shown(before)}"
        return [StepResult(STEP, text, {"files": files, "bytes": size})]
    tally = _Tally()
    for window in windows:
        _rewritten(job, policy, window, tally)
        if policy.keyed:
            time.sleep(PAUSE_SECONDS)
    if policy.deletes_wanted(take_inventory(job.loaded()[0])):
        _deletes_rewritten(job, policy, tally)
    after = take_inventory(job.loaded()[0])
    text = f"rewrote {count_noun(tally.rewritten, 'file')} as {tally.added}: {_shown(before)} became {_shown(after)}"
    if tally.deletes:
        text += f"; merged {count_noun(tally.deletes, 'delete file')}"
    return [StepResult(STEP, text, {**_facts(before, after), "rewritten": tally.rewritten, "added": tally.added})]


def make_policy(job: UpkeepJob, table: Table, *, keyed: bool) -> CompactionPolicy:
    return CompactionPolicy(
        target=job.options.target_file_size,
        least=job.options.min_input_files,
        sorted_otherwise=not table.sort_order().is_unsorted,
        keyed=keyed,
    )


def _shown(inventory: FileInventory) -> str:
    deletes = f" and {count_noun(inventory.deletes, 'delete file')}" if inventory.deletes else ""
    return f"{count_noun(len(inventory.entries), 'file')}{deletes} ({shown_size(inventory.bytes)})"


def _facts(before: FileInventory, after: FileInventory) -> dict[str, Any]:
    return {
        "files_before": len(before.entries),
        "files_after": len(after.entries),
        "bytes_before": before.bytes,
        "bytes_after": after.bytes,
        "delete_files_after": after.deletes,
    }


def _rewritten(job: UpkeepJob, policy: CompactionPolicy, window: Window, tally: _Tally) -> None:
    """One window, tried again while others come in between; StreamFailed if nothing came of it."""
    last = ""
    for lost in range(MAX_LOST_RACES):
        try:
            # Landings of a keyed table write deletes for the very files that are rewritten.
            with hold_turn(job) if policy.keyed or lost >= RACES_BEFORE_TURN else nullcontext():
                said = run_procedure(job, rewrite_sql(job, policy, window))
        except Conflict as error:
            job.probe.at("lake.compaction_lost_race")
            last = str(error)
            if _done_by_others(job, window):
                return
            continue
        if said["failed_data_files_count"]:
            raise job.failed(
                f"compaction could not rewrite {said['failed_data_files_count']} of {len(window.entries)} files with "
                f"numbers from {window.after + 1} to {window.upto}",
                "run the upkeep again; if it happens again, see Spark's log",
            )
        if not said["rewritten_data_files_count"]:
            if _done_by_others(job, window):
                return
            raise job.failed(
                f"compaction rewrote nothing, although {len(window.entries)} files with numbers from "
                f"{window.after + 1} to {window.upto} were to be rewritten",
                "run the upkeep again when fewer are at work; if it happens again, report it as a defect",
            )
        tally.rewritten += said["rewritten_data_files_count"]
        tally.added += said["added_data_files_count"]
        job.probe.at("lake.compacted")
        return
    raise job.failed(
        f"compaction lost against other writers {MAX_LOST_RACES} times ({last})",
        "run the upkeep again when fewer are at work",
    )


def _deletes_rewritten(job: UpkeepJob, policy: CompactionPolicy, tally: _Tally) -> None:
    """Position deletes into one file for each data file; those of files that are gone are dropped."""
    sql = (
        f"CALL `{job.lake.name}`.system.rewrite_position_delete_files("
        f"table => {_table(job)}, options => map('rewrite-all', 'true', 'partial-progress.enabled', 'false'))"
    )
    for lost in range(MAX_LOST_RACES):
        try:
            with hold_turn(job) if policy.keyed or lost >= RACES_BEFORE_TURN else nullcontext():
                said = run_procedure(job, sql)
        except Conflict:
            continue
        if not said["rewritten_delete_files_count"] and policy.deletes_wanted(take_inventory(job.loaded()[0])):
            raise job.failed(
                "compaction merged no delete files, although there were too many",
                "run the upkeep again when fewer are at work; if it happens again, report it as a defect",
            )
        tally.deletes += said["rewritten_delete_files_count"]
        return
    raise job.failed(
        f"the merging of delete files lost against other writers {MAX_LOST_RACES} times",
        "run the upkeep again when fewer are at work",
    )


def _done_by_others(job: UpkeepJob, window: Window) -> bool:
    """Whether the window's files are there no more: another upkeep was first, or retention."""
    there = {entry.path for entry in take_inventory(job.loaded()[0]).entries}
    return not there & {entry.path for entry in window.entries}


def rewrite_sql(job: UpkeepJob, policy: CompactionPolicy, window: Window) -> str:
    options = {
        # The window's files are chosen already; Spark's own taste would leave some of them out.
        "rewrite-all": "true",
        "target-file-size-bytes": str(policy.target),
        "partial-progress.enabled": "false",
        "remove-dangling-deletes": "true",
    }
    spelt = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    # Without a sort order the table's own is used.
    order = "" if policy.sorted_otherwise else f"sort_order => '{names.SEQ} ASC NULLS FIRST', "
    return (
        f"CALL `{job.lake.name}`.system.rewrite_data_files(table => {_table(job)}, strategy => 'sort', {order}"
        f"where => '{names.SEQ} > {window.after} and {names.SEQ} <= {window.upto}', options => map({spelt}))"
    )


def _table(job: UpkeepJob) -> str:
    return f"'`{job.lake.namespace}`.`{job.table}`'"


#: of the target: a file of this size is large enough
LARGE_FILE_SHARE = 0.75
#: deleted rows of a file for which it is worth being written again
DELETED_SHARE = 0.1
#: how much is rewritten at once, in target sizes for each partition; on a keyed table landings wait meanwhile
WINDOW_TARGETS, KEYED_WINDOW_TARGETS = 8, 1


@dataclass(frozen=True)
class Window:
    """The files with numbers in (after, upto]."""

    after: int
    upto: int
    entries: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)


@dataclass(frozen=True)
class CompactionPolicy:
    """What is worth being written again."""

    target: int
    least: int
    #: files of one window may overlap: they are sorted by something else
    sorted_otherwise: bool
    keyed: bool

    def windows(self, inventory: FileInventory) -> list[Window]:
        """The windows with work, in order."""
        return [_window(run) for run in self._runs(inventory) if self._worth(run)]

    def deletes_wanted(self, inventory: FileInventory) -> bool:
        """Whether the delete files should be merged into fewer."""
        concerned = sum(1 for entry in inventory.entries if entry.deletes)
        return inventory.deletes - concerned >= self.least - 1

    def _runs(self, inventory: FileInventory) -> Iterator[list[Entry]]:
        """Neighbours in the order that are not as they should be, as many as are rewritten at once."""
        run: list[Entry] = []
        for group in group_overlapping(inventory.numbered, lambda entry: entry.bounds):
            partitions = len({entry.partition for entry in (*run, *group)})
            full = partitions * self.target * (KEYED_WINDOW_TARGETS if self.keyed else WINDOW_TARGETS)
            settled = self._settled(group)
            if run and (settled or sum(entry.bytes for entry in run) >= full):
                yield run
                run = []
            if not settled:
                run += group
        if run:
            yield run

    def _settled(self, group: Sequence[Entry]) -> bool:
        large = all(entry.bytes >= LARGE_FILE_SHARE * self.target for entry in group)
        return large and not self._dead(group) and not self._mixed(group)

    def _worth(self, run: Sequence[Entry]) -> bool:
        live: dict[tuple[int, str], float] = defaultdict(float)
        for entry in run:
            live[entry.partition] += entry.live_bytes
        fewer = len(run) - sum(max(1, math.ceil(size / self.target)) for size in live.values())
        return fewer >= self.least - 1 or self._dead(run) or self._mixed(run)

    def _dead(self, entries: Sequence[Entry]) -> bool:
        return any(entry.rows and entry.dead / entry.rows >= DELETED_SHARE for entry in entries)

    def _mixed(self, entries: Sequence[Entry]) -> bool:
        """Whether files of one partition overlap in the order, as others' compaction leaves them."""
        if self.sorted_otherwise:
            return False
        highest: dict[tuple[int, str], int] = {}
        for entry in sorted(entries, key=lambda entry: entry.bounds):
            low, high = entry.bounds
            if low <= highest.get(entry.partition, -1):
                return True
            highest[entry.partition] = high
        return False


def _window(run: Sequence[Entry]) -> Window:
    lows, highs = zip(*(entry.bounds for entry in run), strict=True)
    return Window(min(lows) - 1, max(highs), tuple(run))
