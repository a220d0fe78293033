"""The fold: how each event changes the state. Events of different ranges may come in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.core.subdivision.position import Position
from penstock.core.subdivision.rule import choose_split, extend_run, pages_expected
from penstock.core.subdivision.spans import merge_ends
from penstock.core.subdivision.state import (
    CursorVanished,
    Event,
    Order,
    PageFetched,
    RequestAbandoned,
    Subdivision,
    Task,
    WorkerIdle,
    is_open,
    task_of,
)

#: ids that a range keeps of the records at its last time; a mark must stay small
SEEN_LIMIT = 1000


class CursorLost(ValueError):
    """A cursor is gone, and too many records were delivered at its time to tell which: the range cannot go on."""


def start(position: Position, order: Order, page_size: int) -> Subdivision:
    """A state from a mark: the same ranges, with no request under way."""
    position.check()
    tasks = [task_of(range_, order) for range_ in position.remaining]
    spans = [span.ends for span in position.covered]
    if order is Order.ASCENDING:
        spans = [(-high, -low) for low, high in spans]
    covered = tuple(merge_ends(spans))
    return Subdivision(order, page_size, {task.key: task for task in tasks}, covered, position.partial)


def fold(state: Subdivision, event: Event) -> Subdivision:
    """The state after an event."""
    match event:
        case PageFetched():
            return _fetched(state, event)
        case WorkerIdle():
            return _idle(state, event)
        case RequestAbandoned():
            task = state.tasks[event.key]
            return _with(state, replace(task, worker=None, abandoned=task.abandoned + event.at_end))
        case CursorVanished():
            return _with(state, _restart(state.tasks[event.key], event.cursor_is_id))


def _fetched(state: Subdivision, page: PageFetched) -> Subdivision:
    """The range now begins at the page's last record. It is read if nothing follows or the page went past its end."""
    task = state.tasks[page.key]
    first, last = (None if time is None else state.place(time) for time in (page.first, page.last))
    state = replace(state, pages=state.pages + 1, largest=max(state.largest, page.count))
    if not page.has_more or (last is not None and last < task.low):
        tasks = {key: each for key, each in state.tasks.items() if key != page.key}
        short = state.short + max(0, state.page_size - page.count)
        return replace(state, tasks=tasks, short=short, covered=_cover(state, task.low, task.high))
    if first is None or last is None:
        return _with(state, replace(task, cursor=page.cursor, abandoned=0))
    high = min(task.high, last + 1)
    if is_open(task.top):
        task = replace(task, top=first + 1, high=first + 1)
    run, run_records = extend_run(task, page.count, high)
    same_time = last == task.last
    seen = (*task.seen, *page.seen) if same_time else page.seen
    rest = replace(
        task,
        high=high,
        cursor=page.cursor,
        abandoned=0,
        last=last,
        seen=seen[-SEEN_LIMIT:],
        crowded=len(seen) > SEEN_LIMIT or (task.crowded and same_time),
        records=task.records + page.count,
        run=run,
        run_records=run_records,
    )
    return _with(replace(state, covered=_cover(state, high, state.tasks[page.key].high)), rest)


def _idle(state: Subdivision, event: WorkerIdle) -> Subdivision:
    """The worker takes the waiting range with the most expected records; if none waits, one is split."""
    if any(task.worker == event.worker for task in state.tasks.values()):
        return state
    waiting = [task for task in state.tasks.values() if task.worker is None]
    if not waiting:
        state = _split(state, event.idle)
        waiting = [task for task in state.tasks.values() if task.worker is None]
    if not waiting:
        return state
    chosen = max(waiting, key=lambda task: (round(pages_expected(state, task), 2), -task.key))
    return _with(state, replace(chosen, worker=event.worker))


def _split(state: Subdivision, idle: int) -> Subdivision:
    """Cut parts off the far end of a range for idle workers; the range keeps its worker and its cursor."""
    split = choose_split(state, idle)
    if split is None:
        return state
    task = state.tasks[split.key]
    changed: dict[int, Task] = {task.key: replace(task, low=split.cuts[0])}
    lows = [*split.cuts[1:], task.low]
    for high, low, density in zip(split.cuts, lows, split.densities, strict=True):
        changed[high] = Task(high, low, high, top=high, density=density)
    return replace(state, tasks={**state.tasks, **changed})


def _restart(task: Task, cursor_is_id: bool) -> Task:
    """Read again from the last time seen; where too many records share it, from the oldest id that is known."""
    if not task.crowded:
        return replace(task, cursor=None)
    ids = task.seen[1:] if task.cursor == task.seen[0] else task.seen
    if not cursor_is_id or not ids:
        raise CursorLost(
            f"the cursor of a range is gone, and more than {SEEN_LIMIT} records were delivered at its last time"
        )
    return replace(task, cursor=ids[0], seen=ids)


def _with(state: Subdivision, task: Task) -> Subdivision:
    tasks: Mapping[int, Task] = {**state.tasks, task.key: task}
    return replace(state, tasks=tasks)


def _cover(state: Subdivision, low: int, high: int) -> tuple[tuple[int, int], ...]:
    return tuple(merge_ends([*state.covered, (low, high)]))
