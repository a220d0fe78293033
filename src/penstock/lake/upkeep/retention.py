"""Retention of a log: its oldest files are dropped, whole, and the floor moves with them in the same commit.

Which rows are old is told by the heads that the table had at a time, or by the size of everything above them. The
slowest reader holds it back unless forced; a reader below the floor stops and says what it lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.core.documents import canonical
from penstock.core.sizes import shown_duration, shown_size
from penstock.lake import names
from penstock.lake.data_files import OpenDataFiles, ScanFile
from penstock.lake.head_times import head_at, read_times
from penstock.lake.landing import format_inspected
from penstock.lake.planning import find_files, open_data_files
from penstock.lake.table_state import ReaderMark, TableState
from penstock.lake.tables import commit_snapshot
from penstock.lake.upkeep.inventory import Entry, FileInventory, take_inventory
from penstock.lake.upkeep.job import (
    StepResult,
    UpkeepJob,
    count_noun,
    describe_holder,
    refuse_rolled_back,
    retry_lost_races,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "retention"


@dataclass(frozen=True)
class Plan:
    """What retention takes."""

    entries: Sequence[Entry]
    #: the highest number that goes
    floor: int
    #: the number up to which rows are too old, or too many
    wanted: int
    #: the reader that keeps it from going there
    holder: ReaderMark | None


def retain(job: UpkeepJob) -> list[StepResult]:
    """Drop what the options say; nothing without them."""
    if job.options.retention is None:
        return []
    if job.loaded()[1].mode == "merge":
        return [StepResult(STEP, "does not apply: a keyed table holds the current rows, not their history")]
    return retry_lost_races(job, "retention", lambda table, state: _retain(job, table, state))


def _retain(job: UpkeepJob, table: Table, state: TableState) -> list[StepResult]:
    refuse_rolled_back(job.name, state)
    if not state.orderly:
        return [StepResult(STEP, "nothing removed: others have written meanwhile, and their rows have no place yet")]
    inventory = take_inventory(table)
    plan = plan_retention(job, state, inventory)
    held = f"; held back: {describe_holder(plan.holder, job.now)}" if plan.holder else ""
    if not plan.entries:
        why = f"nothing to remove ({_said(job)}){held}"
        return [StepResult(STEP, why, {"floor": state.floor, "held_by": _named(plan.holder)})]
    rows, size = sum(entry.rows for entry in plan.entries), sum(entry.bytes for entry in plan.entries)
    losses = count_losses(table, state, [entry.path for entry in plan.entries], plan.floor)
    what = (
        f"{count_noun(len(plan.entries), 'file')} with {count_noun(rows, 'row')} ({shown_size(size)}), up to number "
        f"{plan.floor}"
    )
    facts = {
        "files": len(plan.entries),
        "rows": rows,
        "bytes": size,
        "floor": plan.floor,
        "held_by": _named(plan.holder),
        "losses": {f"{reader.pipeline}/{reader.stream}": count for reader, count in losses.items() if count},
    }
    lost = "".join(f"; {line}" for line in describe_losses(losses))
    if job.dry_run:
        return [StepResult(STEP, f"would remove {what}{held}{lost}", facts)]
    commit_snapshot(
        table,
        kind=STEP,
        head=state.head,
        removed=[entry.file for entry in plan.entries],
        properties=lambda new: {
            names.FLOOR: str(max(state.floor, plan.floor)),
            names.INSPECTED: format_inspected(new),
            **format_losses(losses),
        },
    )
    job.probe.at("lake.retained")
    return [StepResult(STEP, f"removed {what}{held}{lost}", facts)]


def plan_retention(job: UpkeepJob, state: TableState, inventory: FileInventory) -> Plan:
    """The files that may go: wholly below everything that stays, and below the slowest reader unless forced."""
    wanted = max(_by_age(job, state), _by_size(job, inventory))
    slowest = state.slowest()
    holder = slowest if slowest is not None and slowest.mark < wanted and not job.force else None
    allowed = min(wanted, holder.mark) if holder else wanted
    # A file of unknown numbers stays, and so does everything: it may hold the oldest row.
    lowest = min((entry.low or 0 for entry in inventory.entries if (entry.high or allowed + 1) > allowed), default=None)
    upto = allowed if lowest is None else min(allowed, lowest - 1)
    going = [entry for entry in inventory.numbered if entry.bounds[1] <= upto]
    floor = max((entry.bounds[1] for entry in going), default=0)
    return Plan(going, floor, wanted, holder)


def _by_age(job: UpkeepJob, state: TableState) -> int:
    options = job.options.retention
    if options is None or options.age is None:
        return 0
    return head_at(read_times(state), job.now - options.age)


def _by_size(job: UpkeepJob, inventory: FileInventory) -> int:
    """The number up to which files must go for the rest to fit."""
    options = job.options.retention
    if options is None or options.size is None:
        return 0
    excess, number = inventory.bytes - options.size, 0
    for entry in sorted(inventory.numbered, key=lambda entry: entry.bounds[::-1]):
        if excess <= 0:
            break
        excess -= entry.bytes
        number = entry.bounds[1]
    return number


def _said(job: UpkeepJob) -> str:
    options = job.options.retention
    assert options is not None
    parts = [f"age {shown_duration(options.age)}"] if options.age is not None else []
    parts += [f"size {shown_size(options.size)}"] if options.size is not None else []
    return ", ".join(parts)


def _named(reader: ReaderMark | None) -> str | None:
    return f"{reader.pipeline}/{reader.stream}" if reader else None


def count_losses(table: Table, state: TableState, paths: Iterable[str], floor: int) -> dict[ReaderMark, int]:
    """For each reader below the floor, how many live rows of these files it has not read."""
    behind = [reader for reader in state.readers() if reader.mark < floor]
    if not behind:
        return {}
    wanted = set(paths)
    going = [
        piece
        for piece in find_files(table, table.metadata.current_snapshot_id, min(r.mark for r in behind), floor)
        if piece.path in wanted
    ]
    with open_data_files(table) as files:
        return {reader: rows_between(files, going, reader.mark, floor) for reader in behind}


def rows_between(files: OpenDataFiles, going: Sequence[ScanFile], after: int, upto: int) -> int:
    """Live rows with numbers in (after, upto]. Files that lie wholly inside are not opened."""
    count = 0
    for piece in going:
        inside = piece.low is not None and piece.high is not None and piece.low > after and piece.high <= upto
        if inside and not piece.deletes:
            count += piece.rows
            continue
        for unit in files.units(piece, after, upto):
            count += int(files.selected(unit, after, upto)[1].sum())
    return count


def format_losses(losses: Mapping[ReaderMark, int]) -> dict[str, str]:
    """The readers' properties, with what they lose added to what they had lost before."""
    return {
        names.reader_property(reader.pipeline, reader.stream): canonical(
            replace(reader, lost=(reader.lost or 0) + count).document()
        )
        for reader, count in losses.items()
        if count
    }


def describe_losses(losses: Mapping[ReaderMark, int]) -> list[str]:
    """Who loses how much, in words."""
    return [
        f"{reader.pipeline}/{reader.stream} (at {reader.mark}{', abandoned' if reader.abandoned else ''}) loses "
        f"{count:,} {'row' if count == 1 else 'rows'}"
        for reader, count in losses.items()
        if count
    ]
