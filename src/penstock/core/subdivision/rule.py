"""Which range is split, and where, when a worker would otherwise be idle."""

from __future__ import annotations

from penstock.core.subdivision.state import Subdivision, Task, is_open

#: pages that a part must be expected to hold
PAGES_TO_WIN = 1.0


def estimate(task: Task) -> float:
    """Records that a range is expected to hold still, by the density seen in it, or in the range it was cut from."""
    return _density(task) * _length(task)


def choose_split(state: Subdivision, idle: int) -> tuple[int, list[int], float] | None:
    """The range to split, the cuts from high to low, and the density expected in the parts; None: none is worth it."""
    best: tuple[float, int] | None = None
    for task in state.tasks.values():
        length = task.high - task.low
        if length < 2 or is_open(task.low) or is_open(task.high):
            continue
        expected = estimate(task)
        if expected >= 2 * PAGES_TO_WIN * state.page_size and (best is None or (expected, task.key) > best):
            best = expected, task.key
    if best is None:
        return None
    expected, key = best
    task = state.tasks[key]
    length = task.high - task.low
    parts = min(idle + 1, length, int(expected / (PAGES_TO_WIN * state.page_size)))
    cuts = sorted({task.high - length * part // parts for part in range(1, parts)} - {task.high, task.low})
    return key, cuts[::-1], _density(task)


def _density(task: Task) -> float:
    covered = task.key - task.high
    if task.records and covered > 0 and not is_open(task.key):
        return task.records / covered
    return task.density or float(task.records)


def _length(task: Task) -> int:
    return task.high - task.low
