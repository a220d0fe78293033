"""Retention of a log: drops its oldest files, whole, and moves the floor with them in the same commit.

The heads that the table had at a time tell which rows are old, or the size of everything above them tells how many are
too many. The slowest reader holds retention back unless forced; a reader below the floor stops and says what it lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.core.sizes import count_noun, shown_duration, shown_size
from penstock.lake import names
from penstock.lake.data_files import OpenDataFiles, ScanFile
from penstock.lake.head_times import head_at, read_times
from penstock.lake.planning import find_files, open_data_files
from penstock.lake.table_state import ReaderMark, TableState
from penstock.lake.tables import commit_snapshot
from penstock.lake.upkeep.inventory import DataFileEntry, FileInventory, take_inventory
from penstock.lake.upkeep.job import (
    StepResult,
    UpkeepJob,
    describe_holder,
    refuse_rolled_back,
    retry_lost_races,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "retention"


@dataclass(frozen=True)
class RetentionPlan:
    """The files that retention drops."""

    entries: Sequence[DataFileEntry]
    #: the highest number that is removed
    floor: int
    #: the reader that keeps more from being removed
    holder: ReaderMark | None


def retain(job: UpkeepJob) -> list[StepResult]:
    """Drop what the options say; nothing without them."""
    if job.options.retention is None:
        return []
    if job.load()[1].keyed:
        return [StepResult(STEP, "does not apply: a keyed table holds the current rows, not their history")]
    return retry_lost_races(job, STEP, lambda table, state: _retain(job, table, state))


def _retain(job: UpkeepJob, table: Table, state: TableState) -> list[StepResult]:
    refuse_rolled_back(job.name, state)
    if not state.orderly:
        return [StepResult(STEP, "nothing removed: other programs wrote rows that have no numbers yet")]
    plan = plan_retention(job, state, take_inventory(table))
    held = describe_holder(plan.holder, job.now)
    held_by = plan.holder.name if plan.holder else None
    if not plan.entries:
        text = f"nothing to remove ({_describe_options(job)}){held}"
        return [StepResult(STEP, text, {"floor": state.floor, "held_by": held_by})]
    rows, size = sum(entry.rows for entry in plan.entries), sum(entry.bytes for entry in plan.entries)
    losses = count_losses(table, state, [entry.path for entry in plan.entries], plan.floor)
    facts = {
        "files": len(plan.entries),
        "rows": rows,
        "bytes": size,
        "floor": plan.floor,
        "held_by": held_by,
        "losses": {reader.name: count for reader, count in losses.items() if count},
    }
    what = (
        f"{count_noun(len(plan.entries), 'file')} with {count_noun(rows, 'row')} ({shown_size(size)}), up to number "
        f"{plan.floor}{held}{describe_losses(losses)}"
    )
    if job.dry_run:
        return [StepResult(STEP, f"would remove {what}", facts)]
    commit_snapshot(
        table,
        kind=STEP,
        head=state.head,
        removed=[entry.file for entry in plan.entries],
        properties=lambda new: {
            names.FLOOR: str(max(state.floor, plan.floor)),
            names.INSPECTED: new.inspected,
            **format_losses(losses),
        },
    )
    job.probe.at("lake.retained")
    return [StepResult(STEP, f"removed {what}", facts)]


def plan_retention(job: UpkeepJob, state: TableState, inventory: FileInventory) -> RetentionPlan:
    """Choose the files that may go: wholly below everything that stays, and below the slowest reader unless forced."""
    options = job.options.retention
    assert options is not None
    by_age = head_at(read_times(state), job.now - options.age) if options.age is not None else 0
    by_size = _find_excess(inventory, options.size) if options.size is not None else 0
    wanted = max(by_age, by_size)
    holder = find_holder(job, state, wanted)
    allowed = min(wanted, holder.mark) if holder else wanted
    # A file of unknown numbers stays, and so does everything else: it may hold the oldest row.
    lowest = min((entry.low or 0 for entry in inventory.entries if (entry.high or allowed + 1) > allowed), default=None)
    upto = allowed if lowest is None else min(allowed, lowest - 1)
    going = [entry for entry in inventory.numbered if entry.bounds[1] <= upto]
    return RetentionPlan(going, max((entry.bounds[1] for entry in going), default=0), holder)


def find_holder(job: UpkeepJob, state: TableState, wanted: int) -> ReaderMark | None:
    """Find the reader that keeps rows up to a number from being removed; with --force, none does."""
    slowest = state.slowest()
    return slowest if slowest is not None and slowest.mark < wanted and not job.force else None


def _find_excess(inventory: FileInventory, size: int) -> int:
    """Find the number up to which files must go for the rest to fit."""
    excess, number = inventory.bytes - size, 0
    for entry in sorted(inventory.numbered, key=lambda entry: entry.bounds[::-1]):
        if excess <= 0:
            break
        excess -= entry.bytes
        number = entry.bounds[1]
    return number


def _describe_options(job: UpkeepJob) -> str:
    options = job.options.retention
    assert options is not None
    parts = [f"age {shown_duration(options.age)}"] if options.age is not None else []
    parts += [f"size {shown_size(options.size)}"] if options.size is not None else []
    return ", ".join(parts)


# ---------------------------------------------------------------- what readers lose


def count_losses(table: Table, state: TableState, paths: Iterable[str], floor: int) -> dict[ReaderMark, int]:
    """For each reader below the floor, how many live rows of these files it has not read."""
    behind = [reader for reader in state.readers() if reader.mark < floor]
    if not behind:
        return {}
    wanted, lowest = set(paths), min(reader.mark for reader in behind)
    found = find_files(table, table.metadata.current_snapshot_id, lowest, floor)
    going = [scan_file for scan_file in found if scan_file.path in wanted]
    with open_data_files(table) as files:
        return {reader: count_rows(files, going, reader.mark, floor) for reader in behind}


def count_rows(files: OpenDataFiles, going: Sequence[ScanFile], after: int, upto: int) -> int:
    """Count live rows with numbers in (after, upto]. Files that lie wholly inside are not opened."""
    count = 0
    for scan_file in going:
        low, high = scan_file.low, scan_file.high
        if low is not None and high is not None and low > after and high <= upto and not scan_file.deletes:
            count += scan_file.rows
            continue
        for group in files.row_groups(scan_file, after, upto):
            count += int(files.select(group, after, upto)[1].sum())
    return count


def format_losses(losses: Mapping[ReaderMark, int]) -> dict[str, str]:
    """The readers' properties, with what they lose added to what they had lost before."""
    found: dict[str, str] = {}
    for reader, count in losses.items():
        if count:
            found |= replace(reader, lost=(reader.lost or 0) + count).properties()
    return found


def describe_losses(losses: Mapping[ReaderMark, int]) -> str:
    """Who loses how much, to append to a message."""
    found = ""
    for reader, count in losses.items():
        if count:
            abandoned = ", abandoned" if reader.abandoned else ""
            found += f"; {reader.name} (at {reader.mark}{abandoned}) loses {count_noun(count, 'row')}"
    return found
