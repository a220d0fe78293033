"""A list API in memory, and a reader that drives a subdivision over it: answers in any order, faults, restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from penstock.core.documents import canonical, parse
from penstock.core.subdivision import (
    CursorVanished,
    Event,
    Order,
    Position,
    Range,
    Request,
    RequestAbandoned,
    Span,
    Subdivision,
    WorkerIdle,
    fold,
    judge_page,
    start,
)

Record = tuple[int, str]


@dataclass
class ListApi:
    """Records by (time, id) in the API's order; a cursor is an id, or a token that carries the filter of its query."""

    times: Sequence[int]
    order: Order
    page_size: int
    tokens: bool = False
    requests: list[Request] = field(default_factory=list)
    #: ids that can no longer be a cursor
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        records = [(time, f"r{number}") for number, time in enumerate(self.times)]
        self.records: list[Record] = sorted(records, reverse=self.order is Order.NEWEST_FIRST)

    def page(self, request: Request) -> tuple[list[Record], bool, str | None]:
        """A page, whether more follow, and the cursor; KeyError if the cursor's record is gone."""
        self.requests.append(request)
        span, after = Span(request.gte, request.lt), request.cursor
        if after is not None and self.tokens:
            token = parse(after)
            span, after = Span(token["gte"], token["lt"]), token["after"]
        if after in self.gone:
            raise KeyError(after)
        low, high = span.ends
        matching = [record for record in self.records if low <= record[0] < high and record[1] not in self.gone]
        if after is not None:
            place = next(n for n, record in enumerate(self.records) if record[1] == after)
            passed = {record[1] for record in self.records[: place + 1]}
            matching = [record for record in matching if record[1] not in passed]
        page = matching[: self.page_size]
        if len(matching) <= self.page_size:
            return page, False, None
        cursor = page[-1][1]
        if self.tokens:
            cursor = canonical({"gte": span.gte, "lt": span.lt, "after": cursor})
        return page, True, cursor


@dataclass
class Reader:
    """Workers that read an API through a subdivision. Answers come in any order; a crash forgets all but the mark."""

    api: ListApi
    workers: int
    random: Random
    #: chances, for each step, of a crash, of an abandoned request, and of a cursor whose record is deleted
    crash: float = 0.0
    abandon: float = 0.0
    delete: float = 0.0
    delivered: list[Record] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    restarts: int = 0

    def read(self, position: Position, steps: int = 10**6) -> Subdivision:
        """Read until nothing remains, or for some steps."""
        state = self._start(position)
        under_way: dict[int, Request] = {}
        while not state.done and steps:
            steps -= 1
            state = self._assign(state, under_way)
            if self.random.random() < self.crash:
                state, under_way = self._start(state.position()), {}
                self.restarts += 1
                continue
            worker = self.random.choice(sorted(under_way))
            state = self._answer(state, under_way.pop(worker))
        return state

    def _start(self, position: Position) -> Subdivision:
        document = parse(canonical(position.to_document()))
        assert Position.from_document(document) == position
        self.events.clear()
        return start(Position.from_document(document), self.api.order, self.api.page_size)

    def _assign(self, state: Subdivision, under_way: dict[int, Request]) -> Subdivision:
        for worker in range(self.workers):
            if worker not in under_way:
                busy = sum(task.worker is not None for task in state.tasks.values())
                state = self._fold(state, WorkerIdle(worker, max(1, self.workers - busy)))
                request = state.request_of(worker)
                if request is not None:
                    under_way[worker] = request
        return state

    def _answer(self, state: Subdivision, request: Request) -> Subdivision:
        if self.random.random() < self.abandon:
            return self._fold(state, RequestAbandoned(request.key))
        if request.cursor is not None and self.random.random() < self.delete:
            token = parse(request.cursor)["after"] if self.api.tokens else request.cursor
            self.api.gone.add(token)
        try:
            records, has_more, cursor = self.api.page(request)
        except KeyError:
            state = self._fold(state, CursorVanished(request.key, cursor_is_id=not self.api.tokens))
            return self._fold(state, RequestAbandoned(request.key))
        verdict = judge_page(state, request.key, records, has_more, cursor)
        assert verdict.outside == 0
        self.delivered += [records[place] for place in verdict.keep]
        return self._fold(state, verdict.event)

    def _fold(self, state: Subdivision, event: Event) -> Subdivision:
        self.events.append(event)
        state = fold(state, event)
        state.position().check()
        return state


def whole(gte: int | None, lt: int | None) -> Position:
    """Nothing read yet."""
    return Position((Range(gte, lt),))
