"""Compaction: rewrites many small files as few, sorted by the order; rows and numbers stay the same.

Windows of the order are chosen from the manifests; Spark is started only if there is one. A window keeps files apart in
the order, whatever they are sorted by: a table's own sort order holds inside each window. Files that are as they should
be end a window, so that a table's large files are not written again each time a few small ones arrive. A keyed table is
compacted under the turn: next to merges a compaction never commits by itself. A file that should have been rewritten
and was not is a failure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.retry import Backoff, Retry
from penstock.core.sizes import count_noun, shown_size
from penstock.lake import names
from penstock.lake.data_files import group_overlapping
from penstock.lake.landing import RACES_BEFORE_TURN
from penstock.lake.tables import LostRace
from penstock.lake.upkeep.inventory import DataFileEntry, FileInventory, take_inventory
from penstock.lake.upkeep.job import FEWER_WRITERS, StepResult, UpkeepJob, hold_turn, run_procedure
from penstock.links.pause import pause

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "compaction"
#: of a rewrite that other commits undid
REWRITES = Retry(6)
#: time for landings that waited for a turn to commit, before the next turn is taken
BETWEEN_TURNS = Backoff(0.3, 0.3, jitter=0)
#: what to do about files that were not rewritten
REPORT = "run the upkeep again when fewer writers are active; if it happens again, report it as a defect"

#: share of the target size from which a file is large enough
LARGE_FILE_SHARE = 0.75
#: share of deleted rows from which a file is worth rewriting
DELETED_SHARE = 0.1
#: how much is rewritten at once, in target sizes for each partition; on a keyed table landings wait meanwhile
WINDOW_TARGETS, KEYED_WINDOW_TARGETS = 8, 1


@dataclass
class _Tally:
    rewritten: int = 0
    added: int = 0
    deletes: int = 0


def compact(job: UpkeepJob) -> list[StepResult]:
    """Rewrite the windows that are worth it."""
    table, state = job.load()
    if not state.orderly:
        # Rewritten with ours, foreign rows could no longer be told by the snapshot that brought them.
        return [StepResult(STEP, "nothing compacted: other programs wrote rows that have no numbers yet")]
    policy = make_policy(job, table, keyed=state.keyed)
    before = take_inventory(table)
    windows = policy.windows(before)
    if not windows and not policy.deletes_wanted(before):
        return [StepResult(STEP, f"nothing to compact in {_describe(before)}", _make_facts(before, before))]
    if job.dry_run:
        files = sum(len(window.entries) for window in windows)
        size = sum(window.bytes for window in windows)
        text = f"would rewrite {count_noun(files, 'file')} ({shown_size(size)}) of {_describe(before)}"
        return [StepResult(STEP, text, {"files": files, "bytes": size})]
    tally = _Tally()
    for window in windows:
        _rewrite_window(job, policy, window, tally)
        if policy.keyed:
            pause(BETWEEN_TURNS, 1)
    if policy.deletes_wanted(take_inventory(job.load()[0])):
        _rewrite_deletes(job, policy, tally)
    after = take_inventory(job.load()[0])
    text = (
        f"rewrote {count_noun(tally.rewritten, 'file')} as {tally.added}: {_describe(before)} became {_describe(after)}"
    )
    if tally.deletes:
        text += f"; merged {count_noun(tally.deletes, 'delete file')}"
    facts = {**_make_facts(before, after), "rewritten": tally.rewritten, "added": tally.added}
    return [StepResult(STEP, text, facts)]


def _describe(inventory: FileInventory) -> str:
    deletes = f" and {count_noun(inventory.deletes, 'delete file')}" if inventory.deletes else ""
    return f"{count_noun(len(inventory.entries), 'file')}{deletes} ({shown_size(inventory.bytes)})"


def _make_facts(before: FileInventory, after: FileInventory) -> dict[str, Any]:
    return {
        "files_before": len(before.entries),
        "files_after": len(after.entries),
        "bytes_before": before.bytes,
        "bytes_after": after.bytes,
        "delete_files_after": after.deletes,
    }


def _rewrite(
    job: UpkeepJob, policy: CompactionPolicy, what: str, sql: str, is_done: Callable[[], bool] = lambda: False
) -> Mapping[str, Any] | None:
    """Run a procedure until no other writer undoes it; None: others have done its work. StreamFailed in the end."""
    last = ""
    for attempt in REWRITES.attempts():
        try:
            # Landings of a keyed table write deletes for the very files that are rewritten.
            with hold_turn(job) if policy.keyed or attempt > RACES_BEFORE_TURN else nullcontext():
                return run_procedure(job, sql)
        except LostRace as error:
            job.probe.at("lake.compaction_lost_race")
            last = str(error)
            if is_done():
                return None
    raise job.failed(f"{what} lost against other writers {REWRITES.tries} times ({last})", FEWER_WRITERS)


def _rewrite_window(job: UpkeepJob, policy: CompactionPolicy, window: Window, tally: _Tally) -> None:
    """Rewrite one window; StreamFailed if nothing came of it."""

    def is_done() -> bool:
        """Whether the window's files are gone: another upkeep was first, or retention."""
        there = {entry.path for entry in take_inventory(job.load()[0]).entries}
        return not there & {entry.path for entry in window.entries}

    answer = _rewrite(job, policy, "compaction", make_rewrite_sql(job, policy, window), is_done)
    if answer is None:
        return
    numbers = f"with numbers from {window.after + 1} to {window.upto}"
    if answer["failed_data_files_count"]:
        raise job.failed(
            f"compaction could not rewrite {answer['failed_data_files_count']} of {len(window.entries)} files "
            f"{numbers}",
            "run the upkeep again; if it happens again, see Spark's log",
        )
    if not answer["rewritten_data_files_count"]:
        if is_done():
            return
        raise job.failed(f"compaction rewrote none of {len(window.entries)} files {numbers}", REPORT)
    tally.rewritten += answer["rewritten_data_files_count"]
    tally.added += answer["added_data_files_count"]
    job.probe.at("lake.compacted")


def _rewrite_deletes(job: UpkeepJob, policy: CompactionPolicy, tally: _Tally) -> None:
    """Merge position deletes into one file for each data file; those of files that are gone are dropped."""
    sql = (
        f"CALL `{job.lake.name}`.system.rewrite_position_delete_files("
        f"table => {_quote_table(job)}, options => map('rewrite-all', 'true', 'partial-progress.enabled', 'false'))"
    )
    answer = _rewrite(job, policy, "the merging of delete files", sql)
    assert answer is not None
    count = answer["rewritten_delete_files_count"]
    if not count and policy.deletes_wanted(take_inventory(job.load()[0])):
        raise job.failed("compaction merged no delete files, although there were too many", REPORT)
    tally.deletes += count


def make_rewrite_sql(job: UpkeepJob, policy: CompactionPolicy, window: Window) -> str:
    options = {
        # The window's files are chosen already; Spark's own choice would leave some of them out.
        "rewrite-all": "true",
        "target-file-size-bytes": str(policy.target),
        "partial-progress.enabled": "false",
        "remove-dangling-deletes": "true",
    }
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    # Without a sort order the table's own is used.
    order = "" if policy.sorted_otherwise else f"sort_order => '{names.SEQ} ASC NULLS FIRST', "
    return (
        f"CALL `{job.lake.name}`.system.rewrite_data_files(table => {_quote_table(job)}, strategy => 'sort', {order}"
        f"where => '{names.SEQ} > {window.after} and {names.SEQ} <= {window.upto}', options => map({pairs}))"
    )


def _quote_table(job: UpkeepJob) -> str:
    return f"'`{job.lake.namespace}`.`{job.table}`'"


# ---------------------------------------------------------------- which files together


@dataclass(frozen=True)
class Window:
    """The files with numbers in (after, upto]."""

    after: int
    upto: int
    entries: tuple[DataFileEntry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)


@dataclass(frozen=True)
class CompactionPolicy:
    """Decides which files are worth rewriting, from the inventory alone."""

    target: int
    least: int
    #: the table has a sort order of its own, so files of one window may overlap
    sorted_otherwise: bool
    keyed: bool

    def windows(self, inventory: FileInventory) -> list[Window]:
        """The windows that are worth rewriting, in order."""
        return [_make_window(run) for run in self._runs(inventory) if self._is_worth_it(run)]

    def deletes_wanted(self, inventory: FileInventory) -> bool:
        """Whether the delete files should be merged into fewer."""
        concerned = sum(1 for entry in inventory.entries if entry.deletes)
        return inventory.deletes - concerned >= self.least - 1

    def _runs(self, inventory: FileInventory) -> Iterator[list[DataFileEntry]]:
        """Neighbours in the order that are not as they should be, as many as are rewritten at once."""
        run: list[DataFileEntry] = []
        for group in group_overlapping(inventory.numbered, lambda entry: entry.bounds):
            partitions = len({entry.partition for entry in (*run, *group)})
            full = partitions * self.target * (KEYED_WINDOW_TARGETS if self.keyed else WINDOW_TARGETS)
            settled = self._is_settled(group)
            if run and (settled or sum(entry.bytes for entry in run) >= full):
                yield run
                run = []
            if not settled:
                run += group
        if run:
            yield run

    def _is_settled(self, group: Sequence[DataFileEntry]) -> bool:
        large = all(entry.bytes >= LARGE_FILE_SHARE * self.target for entry in group)
        return large and not self._has_deleted_rows(group) and not self._has_overlaps(group)

    def _is_worth_it(self, run: Sequence[DataFileEntry]) -> bool:
        live: dict[tuple[int, str], float] = defaultdict(float)
        for entry in run:
            live[entry.partition] += entry.live_bytes
        fewer = len(run) - sum(max(1, math.ceil(size / self.target)) for size in live.values())
        return fewer >= self.least - 1 or self._has_deleted_rows(run) or self._has_overlaps(run)

    def _has_deleted_rows(self, entries: Sequence[DataFileEntry]) -> bool:
        return any(entry.rows and entry.dead / entry.rows >= DELETED_SHARE for entry in entries)

    def _has_overlaps(self, entries: Sequence[DataFileEntry]) -> bool:
        """Whether files of one partition overlap in the order, as compactions by other programs leave them."""
        if self.sorted_otherwise:
            return False
        highest: dict[tuple[int, str], int] = {}
        for entry in sorted(entries, key=lambda entry: entry.bounds):
            low, high = entry.bounds
            if low <= highest.get(entry.partition, -1):
                return True
            highest[entry.partition] = high
        return False


def _make_window(run: Sequence[DataFileEntry]) -> Window:
    lows, highs = zip(*(entry.bounds for entry in run), strict=True)
    return Window(min(lows) - 1, max(highs), tuple(run))


def make_policy(job: UpkeepJob, table: Table, *, keyed: bool) -> CompactionPolicy:
    return CompactionPolicy(
        target=job.options.target_file_size,
        least=job.options.min_input_files,
        sorted_otherwise=not table.sort_order().is_unsorted,
        keyed=keyed,
    )
