"""The fold: how each event changes the state. Events of different ranges may come in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.core.subdivision.position import Position
from penstock.core.subdivision.rule import choose_split, estimate
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
    task_of,
)

#: ids that a range keeps of the records at its last time; a mark must stay small
SEEN_LIMIT = 1000


def start(position: Position, order: Order, page_size: int) -> Subdivision:
    """A state from a mark: the same ranges, with no request under way."""
    position.check()
    tasks = [task_of(range_, order) for range_ in position.remaining]
    spans = [span.ends for span in position.covered]
    if order is Order.ASCENDING:
        spans = [(-high, -low) for low, high in spans]
    return Subdivision(order, page_size, {task.key: task for task in tasks}, tuple(merge_ends(spans)))


def fold(state: Subdivision, event: Event) -> Subdivision:
    """The state after an event."""
    match event:
        case PageFetched():
            return _fetched(state, event)
        case WorkerIdle():
            return _idle(state, event)
        case RequestAbandoned():
            return _with(state, replace(state.tasks[event.key], worker=None))
        case CursorVanished():
            return _with(state, _restart(state.tasks[event.key], event.cursor_is_id))


def _fetched(state: Subdivision, page: PageFetched) -> Subdivision:
    """The range ends above the page's last record; it is read if nothing follows, or if the page went past its end."""
    task = state.tasks[page.key]
    last = None if page.last is None else state.place(page.last)
    counted = replace(state, pages=state.pages + 1, records=state.records + page.count)
    if not page.has_more or (last is not None and last < task.low):
        tasks = {key: each for key, each in state.tasks.items() if key != page.key}
        return replace(counted, tasks=tasks, covered=_cover(state, task.low, task.high))
    rest = replace(task, cursor=page.cursor, pages=task.pages + 1, records=task.records + page.count)
    if last is None:
        return _with(counted, rest)
    seen = (*task.seen, *page.seen) if last == task.last else page.seen
    crowded = (task.crowded and last == task.last) or len(seen) > SEEN_LIMIT
    high = min(task.high, last + 1)
    rest = replace(rest, high=high, last=last, seen=seen[-SEEN_LIMIT:], crowded=crowded)
    return _with(replace(counted, covered=_cover(state, high, task.high)), rest)


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
    chosen = max(waiting, key=lambda task: (estimate(task), task.key))
    return _with(state, replace(chosen, worker=event.worker))


def _split(state: Subdivision, idle: int) -> Subdivision:
    """Cut parts off the far end of a range for idle workers; the range keeps its worker and its cursor."""
    found = choose_split(state, idle)
    if found is None:
        return state
    key, cuts, density = found
    task = state.tasks[key]
    changed: dict[int, Task] = {key: replace(task, low=cuts[0])}
    for high, low in zip(cuts, [*cuts[1:], task.low], strict=True):
        changed[high] = Task(high, low, high, density=density)
    return replace(state, tasks={**state.tasks, **changed})


def _restart(task: Task, cursor_is_id: bool) -> Task:
    """Read again from the last time seen; where too many records share it, from the oldest id that is known."""
    if not task.crowded:
        return replace(task, cursor=None)
    ids = task.seen[1:] if task.cursor == task.seen[0] else task.seen
    if not cursor_is_id or not ids:
        raise ValueError(
            f"the cursor of a range is gone, and more than {SEEN_LIMIT} records were delivered at its last time"
        )
    return replace(task, cursor=ids[0], seen=ids)


def _with(state: Subdivision, task: Task) -> Subdivision:
    tasks: Mapping[int, Task] = {**state.tasks, task.key: task}
    return replace(state, tasks=tasks)


def _cover(state: Subdivision, low: int, high: int) -> tuple[tuple[int, int], ...]:
    return tuple(merge_ends([*state.covered, (low, high)]))
