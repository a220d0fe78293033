"""The rule: which range is split, and where, when a worker would otherwise be idle.

What lies ahead in a range is guessed from what was read: a background at the density of the range so far, and, where
the last pages were denser, a burst. Nobody knows how long a burst lasts, so its density is taken to fall off with the
distance, at the scale on which it was seen. Cuts divide the expected records evenly. They lie close together near a
burst of unknown length, and evenly in time where the density is even.

A wrong guess costs requests that bring little. A budget bounds them: every open range counts as one, because its last
page may be empty. The more of the budget is used, the more pages a part must be expected to bring.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

from penstock.core.subdivision.state import Subdivision, Task, is_open

#: requests that may bring little: for each worker, for each useful page, and at least for each useful page
BUDGET_PER_WORKER, BUDGET_PER_PAGE, LEAST_PER_PAGE = 5.0, 0.02, 0.1
#: pages that a range must be expected to hold to be split: with an unused budget, and more as it is used up
PAGES_TO_SPLIT, PAGES_TO_SPLIT_LATE = 0.75, 2.0
#: pages within this factor of each other have the same density
SAME_DENSITY = 3.0
#: the density of the last pages raises the background by at most this factor
MAX_BACKGROUND_GROWTH = 2.0
#: pages that the density expected of a part weighs against what is read in it
PRIOR_PAGES = 0.3
#: one in this number of parts of a first split goes to smaller and smaller pieces of the far end, each at most 1/8 of
#: the one before
PARTS_FOR_A_RUNG, RUNG_RATIO = 6, 8.0


@dataclass(frozen=True, slots=True)
class Split:
    """Where to cut a range: each part goes from its cut down to the next one, the last to the end of the range."""

    key: int
    #: places from high to low, strictly inside the range
    cuts: tuple[int, ...]
    #: records for each unit of time that each part is expected to hold
    densities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """Records expected ahead in a range."""

    #: distance from the range's next record to its end; where the end is open, as far as was read so far
    length: int
    #: records for each unit of time, everywhere
    background: float
    #: records for each unit of time on top of that, here and now
    burst: float
    #: distance over which the burst was seen
    extent: int

    def within(self, distance: float) -> float:
        """Records expected within a distance."""
        near = self.burst * self.extent * log1p(distance / self.extent) if self.burst else 0.0
        return self.background * distance + near

    def all(self) -> float:
        return self.within(self.length)

    def distance_of(self, records: float) -> float:
        """The distance within which that many records are expected."""
        near, far = 0.0, float(self.length)
        while far - near > 0.5:
            middle = (near + far) / 2
            if self.within(middle) < records:
                near = middle
            else:
                far = middle
        return far


def look_ahead(task: Task, page_size: int) -> Outlook:
    """What is expected in the rest of a range."""
    covered = task.top - task.high
    length = covered if is_open(task.low) else task.high - task.low
    if not task.run:
        return Outlook(0 if is_open(task.high) else length, task.density or 0.0, 0.0, 1)
    now = task.run_records / task.run
    if task.density:
        weight = PRIOR_PAGES * page_size
        background = (task.records + weight) / (covered + weight / task.density)
    else:
        background = task.records / max(1, covered)
    background = max(background, min(now, MAX_BACKGROUND_GROWTH * background))
    return Outlook(length, background, max(0.0, now - background), task.run)


def pages_expected(state: Subdivision, task: Task) -> float:
    """Pages that the rest of a range is expected to fill."""
    return look_ahead(task, state.page_size).all() / state.full_page


def extend_run(task: Task, count: int, high: int) -> tuple[int, int]:
    """The length and the records of the last pages of equal density, after a page down to `high`."""
    length = max(1, task.high - high)
    if task.run_records and count:
        change = (count / length) / (task.run_records / task.run)
        if 1 / SAME_DENSITY <= change <= SAME_DENSITY:
            return task.run + length, task.run_records + count
    return length, count


def choose_split(state: Subdivision, idle: int) -> Split | None:
    """The split that gives `idle` workers the most to do; None if none is worth its requests."""
    used, budget = _waste(state), _budget(state, idle)
    if budget - used < 1:
        return None
    gate = PAGES_TO_SPLIT + PAGES_TO_SPLIT_LATE * used / budget
    outlooks = {key: look_ahead(task, state.page_size) for key, task in state.tasks.items()}
    pages = {key: each.all() / state.full_page for key, each in outlooks.items() if each.length >= 2}
    key = max(pages, key=lambda each: (pages[each], each), default=None)
    if key is None or pages[key] < gate:
        return None
    parts = min(idle + 1, outlooks[key].length, 1 + int(pages[key] / gate), 1 + int(budget - used))
    return _cut(state.tasks[key], outlooks[key], parts)


def _waste(state: Subdivision) -> float:
    """Pages that were missing from requests so far, and one for each open range."""
    return state.short / state.page_size + len(state.tasks)


def _budget(state: Subdivision, idle: int) -> float:
    workers = idle + sum(task.worker is not None for task in state.tasks.values())
    useful = state.pages - state.short / state.page_size
    return max(BUDGET_PER_WORKER * workers + BUDGET_PER_PAGE * useful, LEAST_PER_PAGE * useful)


def _cut(task: Task, outlook: Outlook, parts: int) -> Split | None:
    """Cut a range into parts of equal expectation. A first split also hedges: dense ends are common."""
    first = task.density is None and not is_open(task.low)
    rungs = parts // PARTS_FOR_A_RUNG if first else 0
    even = parts - rungs
    total = outlook.all()
    places = {task.high - int(outlook.distance_of(total * part / even)) for part in range(1, even)}
    if rungs and places:
        places |= _rungs(task.low, min(places) - task.low, rungs)
    end = task.high - outlook.length
    cuts = sorted((place for place in places if end < place < task.high), reverse=True)
    if not cuts:
        return None
    ends = [*cuts[1:], end]
    densities = [
        (outlook.within(task.high - low) - outlook.within(task.high - high)) / (high - low)
        for high, low in zip(cuts, ends, strict=True)
    ]
    return Split(task.key, tuple(cuts), tuple(densities))


def _rungs(low: int, length: int, rungs: int) -> set[int]:
    """Places that halve the far end again and again, by a ratio that brings the last one to the very end."""
    ratio = max(RUNG_RATIO, length ** (1 / rungs))
    return {low + max(1, round(length / ratio**rung)) for rung in range(1, rungs + 1)}
