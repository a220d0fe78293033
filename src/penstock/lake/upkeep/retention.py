"""Retention of a log: its oldest files are dropped, whole, and the floor moves with them in the same commit.

Which rows are old is told by the heads that the table had at a time, or by the size of everything above them. The
slowest reader holds it back unless forced; a reader below the floor stops and says what it lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.sizes import shown_duration, shown_size
from penstock.lake import names
from penstock.lake.landing import inspected
from penstock.lake.standing import ReaderMark, Standing
from penstock.lake.tables import commit
from penstock.lake.times import head_at, known
from penstock.lake.upkeep.census import Census, Entry, taken
from penstock.lake.upkeep.expiry import must_be_whole
from penstock.lake.upkeep.losses import losing, noted, told
from penstock.lake.upkeep.racing import raced
from penstock.lake.upkeep.work import Done, Work, counted, held_back

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


def retain(work: Work) -> list[Done]:
    """Drop what the options say; nothing without them."""
    if work.options.retention is None:
        return []
    if work.loaded()[1].mode == "merge":
        return [Done(STEP, "does not apply: a keyed table holds the current rows, not their history")]
    return raced(work, "retention", lambda table, standing: _retain(work, table, standing))


def _retain(work: Work, table: Table, standing: Standing) -> list[Done]:
    must_be_whole(work.name, standing)
    if not standing.orderly:
        return [Done(STEP, "nothing removed: others have written meanwhile, and their rows have no place yet")]
    census = taken(table)
    plan = planned(work, standing, census)
    held = f"; held back: {held_back(plan.holder, work.now)}" if plan.holder else ""
    if not plan.entries:
        why = f"nothing to remove ({_said(work)}){held}"
        return [Done(STEP, why, {"floor": standing.floor, "held_by": _named(plan.holder)})]
    rows, size = sum(entry.rows for entry in plan.entries), sum(entry.bytes for entry in plan.entries)
    losses = losing(table, standing, [entry.path for entry in plan.entries], plan.floor)
    what = (
        f"{counted(len(plan.entries), 'file')} with {counted(rows, 'row')} ({shown_size(size)}), up to number "
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
    lost = "".join(f"; {line}" for line in told(losses))
    if work.dry_run:
        return [Done(STEP, f"would remove {what}{held}{lost}", facts)]
    commit(
        table,
        kind=STEP,
        head=standing.head,
        removed=[entry.file for entry in plan.entries],
        properties=lambda planted: {
            names.FLOOR: str(max(standing.floor, plan.floor)),
            names.INSPECTED: inspected(planted),
            **noted(losses),
        },
    )
    work.probe.at("lake.retained")
    return [Done(STEP, f"removed {what}{held}{lost}", facts)]


def planned(work: Work, standing: Standing, census: Census) -> Plan:
    """The files that may go: wholly below everything that stays, and below the slowest reader unless forced."""
    wanted = max(_by_age(work, standing), _by_size(work, census))
    slowest = standing.slowest()
    holder = slowest if slowest is not None and slowest.mark < wanted and not work.force else None
    allowed = min(wanted, holder.mark) if holder else wanted
    # A file of unknown numbers stays, and so does everything: it may hold the oldest row.
    lowest = min((entry.low or 0 for entry in census.entries if (entry.high or allowed + 1) > allowed), default=None)
    upto = allowed if lowest is None else min(allowed, lowest - 1)
    going = [entry for entry in census.numbered if entry.bounds[1] <= upto]
    floor = max((entry.bounds[1] for entry in going), default=0)
    return Plan(going, floor, wanted, holder)


def _by_age(work: Work, standing: Standing) -> int:
    options = work.options.retention
    if options is None or options.age is None:
        return 0
    return head_at(known(standing), work.now - options.age)


def _by_size(work: Work, census: Census) -> int:
    """The number up to which files must go for the rest to fit."""
    options = work.options.retention
    if options is None or options.size is None:
        return 0
    excess, number = census.bytes - options.size, 0
    for entry in sorted(census.numbered, key=lambda entry: entry.bounds[::-1]):
        if excess <= 0:
            break
        excess -= entry.bytes
        number = entry.bounds[1]
    return number


def _said(work: Work) -> str:
    options = work.options.retention
    assert options is not None
    parts = [f"age {shown_duration(options.age)}"] if options.age is not None else []
    parts += [f"size {shown_size(options.size)}"] if options.size is not None else []
    return ", ".join(parts)


def _named(reader: ReaderMark | None) -> str | None:
    return f"{reader.pipeline}/{reader.stream}" if reader else None
