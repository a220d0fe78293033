"""A list API without a network: sorted times, pages by bisection, and both rules that read them in rounds."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.core.subdivision import Order, PageFetched, Position, Range, WorkerIdle, fold, start

PAGE = 100
YEAR = 365 * 86_400
HOUR, DAY, BURST = 3_600, 86_400, 600


@dataclass(frozen=True, slots=True)
class Cost:
    """What a rule needed: requests, and rounds in which every worker sends at most one."""

    requests: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """One request of our rule: which worker, when, and the time that its page covered."""

    round: int
    worker: int
    gte: int
    lt: int
    records: int


class ListApi:
    """Sorted times, read newest first; a cursor is the number of records below it."""

    def __init__(self, times: Sequence[int]) -> None:
        self.times = times
        self.requests = 0
        self.records = 0

    def page(self, gte: int, lt: int, cursor: int | None) -> tuple[int, int, bool]:
        """The next page as the places of its first and last record plus one, and whether more follow."""
        self.requests += 1
        high = bisect_left(self.times, lt) if cursor is None else cursor
        low = bisect_left(self.times, gte, 0, high)
        begin = max(low, high - PAGE)
        self.records += high - begin
        return begin, high, begin > low

    def check(self) -> None:
        if self.records != len(self.times):
            raise SystemExit(f"{len(self.times)} records, and {self.records} were delivered")


def read_by_halving(times: Sequence[int], workers: int) -> Cost:
    """The published rule: after each page, the rest of a range is read as two halves, each by its own request."""
    api, rounds = ListApi(times), 0
    work: list[tuple[int, int, int | None]] = [(0, YEAR, None)]
    while work:
        rest: list[tuple[int, int, int | None]] = []
        for gte, lt, cursor in work:
            begin, _, has_more = api.page(gte, lt, cursor)
            if not has_more:
                continue
            oldest = api.times[begin]
            if bisect_left(api.times, oldest) < begin:
                rest.append((oldest, oldest + 1, begin))
            if oldest > gte:
                middle = (gte + oldest) // 2
                rest.append((middle, oldest, None))
                if middle > gte:
                    rest.append((gte, middle, None))
        rounds += math.ceil(len(work) / workers)
        work = rest
    api.check()
    return Cost(api.requests, rounds)


def read_on_demand(times: Sequence[int], workers: int, trace: list[Fetched] | None = None) -> Cost:
    """Our rule, as it ships: the fold of `penstock.core.subdivision`, in rounds."""
    api, rounds = ListApi(times), 0
    state = start(Position((Range(0, YEAR),)), Order.NEWEST_FIRST, PAGE)
    busy: dict[int, int] = {}
    while not state.done:
        for worker in range(workers):
            if worker not in busy:
                before = state
                state = fold(state, WorkerIdle(worker, workers - len(busy)))
                if state is before:
                    break
                request = state.request_of(worker)
                assert request is not None
                busy[worker] = request.key
        rounds += 1
        for worker, key in list(busy.items()):
            task = state.tasks[key]
            cursor = None if task.cursor is None else int(task.cursor)
            begin, end, has_more = api.page(task.low, task.high, cursor)
            first, last = (api.times[end - 1], api.times[begin]) if begin < end else (None, None)
            page = PageFetched(key, first, last, end - begin, has_more, str(begin) if has_more else None)
            state = fold(state, page)
            if trace is not None:
                covers = task.low if last is None or not has_more else last
                trace.append(Fetched(rounds, worker, covers, task.high, end - begin))
            if key not in state.tasks:
                del busy[worker]
    api.check()
    return Cost(api.requests, rounds)


def distributions(pages: int, rng: random.Random) -> Iterator[tuple[str, list[int]]]:
    """Every distribution of the comparison, with that many full pages of sorted times in a year of seconds."""
    count = pages * PAGE
    some_hour = YEAR // 2
    bursts = [rng.randrange(YEAR - BURST) for _ in range(max(1, pages // 5))]
    days = [rng.randrange(YEAR - DAY) for _ in range(20)]
    shapes: dict[str, Callable[[], int]] = {
        "uniform": lambda: rng.randrange(YEAR),
        "99% in one hour": lambda: some_hour + rng.randrange(HOUR) if rng.random() < 0.99 else rng.randrange(YEAR),
        "power law": lambda: min(YEAR - 1, int(YEAR * rng.random() ** 6)),
        "bursts of ten minutes": lambda: rng.choice(bursts) + rng.randrange(BURST),
        "twenty busy days": lambda: rng.choice(days) + rng.randrange(DAY),
        "one second": lambda: YEAR // 3,
    }
    for name, draw in shapes.items():
        yield name, sorted(draw() for _ in range(count))
