"""Fetches pages into a spool with several workers, up to a budget, by ranges of time.

The state of a subdivision moves with the page that was written, so what the mark says is what the spool has.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.subdivision import (
    CursorVanished,
    PageError,
    RequestAbandoned,
    Subdivision,
    WorkerIdle,
    fold,
    judge_page,
)
from penstock.errors import PenstockError, StreamFailed
from penstock.links.http.failures import RequestRefused, ResourceRefused
from penstock.links.http.loop import POLL_SECONDS, stopped
from penstock.ports import Budget
from penstock.sources.rest.known import KnownIds
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.spooling import SpoolWriter
from penstock.sources.rest.standstill import Standstill

#: pages that one worker fetches alone before others join: a short list is not worth the requests that a split costs
PAGES_ALONE = 12
#: seconds after the end of the run's time that answers are still waited for
GRACE_SECONDS = 5.0
#: the urgency of a stream's first page
FIRST_PAGE = -1


@dataclass
class Limits:
    """How long a gather goes on."""

    budget: Budget
    #: by time.monotonic()
    deadline: float
    is_cancelled: Callable[[], bool]
    #: when the run's time is over, by time.monotonic()
    end: float = math.inf
    #: bytes that compressed pages may take in memory
    memory: float = math.inf
    #: rows and bytes of the pages that are under way
    expected_rows: int = 0
    expected_bytes: float = 0.0


@dataclass
class RangeGather:
    """Pages of one stream by ranges of time."""

    api: ListApi
    state: Subdivision
    writer: SpoolWriter
    limits: Limits
    workers: int
    #: called after each page and while none comes, with the rows so far
    report: Callable[[int], None]
    #: called after each page with new records, with their number and the earliest time
    at_page: Callable[[int, int], None]
    #: the turn of the stream: while all slots are used, the lowest goes first
    urgency: int = 0
    #: records that were not changed since this time are left out; None: all are delivered
    changed_since: int | None = None
    #: the records so far; made by default
    known: KnownIds = field(init=False)
    _failure: PenstockError | None = None
    _is_full: bool = False
    #: workers without a range, by number
    _idle: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    _under_way: int = 0
    #: ranges whose requests are under way
    _asked: set[int] = field(default_factory=set)
    _standstill: Standstill = field(default_factory=Standstill)

    def __post_init__(self) -> None:
        self.known = KnownIds(compares=self.api.options.changes is None)

    @property
    def failure(self) -> PenstockError | None:
        """The request that failed for good, also where something was written before."""
        return self._failure

    def stop(self) -> None:
        """Ask for no more pages; those that were asked for are still taken. In the loop's own thread."""
        self._is_full = True
        self._wake()

    def proceed(self, limits: Limits, workers: int, report: Callable[[int], None]) -> RangeGather:
        """Go on from where this gather ended, under other limits: its turn has come. It has ended."""
        state = self.state
        for task in self.state.tasks.values():
            if task.worker is not None:
                # There may be fewer workers now.
                state = fold(state, RequestAbandoned(task.key))
        following = RangeGather(self.api, state, self.writer, limits, workers, report, self.at_page)
        following.known = self.known
        return following

    async def run(self) -> Subdivision:
        """Fetch until everything is read, the budget is used, or a request fails for good.

        What was written before a failure counts; the failure is raised if nothing was.
        """
        tasks = {asyncio.create_task(self._work(number)) for number in range(1, self.workers + 1)}
        is_over = False
        try:
            while tasks:
                done, tasks = await asyncio.wait(tasks, timeout=POLL_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                self.report(self.writer.rows)
                if self.limits.is_cancelled():
                    self._failure = self._failure or stopped()
                    is_over = True
                    break
                now = time.monotonic()
                if now > self.limits.end or (now > self.limits.deadline and self.writer.rows):
                    self.stop()
                    if now > self.limits.end + GRACE_SECONDS:
                        # What is still asked for, or waits before a retry, is left to the next run.
                        is_over = True
                        break
        finally:
            unanswered = [key for key in self._asked if is_over]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.writer.close()
        for key in unanswered:
            self.state = fold(self.state, RequestAbandoned(key, at_end=True))
        if self._failure is not None and not self.writer.rows:
            raise self._failure
        return self.state

    async def _work(self, worker: int) -> None:
        while not self._is_full and self._failure is None and not self.state.done:
            request = self.state.request_of(worker)
            if request is None and self._may_join(worker):
                idle = self.workers - self._under_way
                self.state = fold(self.state, WorkerIdle(worker, idle=max(1, idle)))
                request = self.state.request_of(worker)
            size = self._reserve() if request is not None else 0
            if request is None or not size:
                if request is not None:
                    self.state = fold(self.state, RequestAbandoned(request.key))
                    if not self._under_way:
                        self.stop()
                        return
                await self._wait(worker)
                continue
            self._under_way += 1
            self._wake()  # there may be another range, and room for its page too
            self._asked.add(request.key)
            try:
                await self._fetch(request.key, Asked(request.gte, request.lt, request.cursor, size))
            except StreamFailed as failure:
                if not isinstance(failure, Unfit):
                    # Others go on with the pages that they have asked for; the range stays for the next run.
                    self.state = fold(self.state, RequestAbandoned(request.key))
                    self._failure = failure
                    return
                raise
            finally:
                self._asked.discard(request.key)
                self._under_way -= 1
                self._release(size)
                self._wake()

    def _may_join(self, worker: int) -> bool:
        """Whether a worker may take a range: the first one always, others once there is enough to do."""
        return worker == 1 or len(self.state.tasks) > 1 or self.state.pages >= PAGES_ALONE

    async def _wait(self, worker: int) -> None:
        turn = self._idle[worker] = asyncio.get_running_loop().create_future()
        try:
            await turn
        finally:
            self._idle.pop(worker, None)

    def _wake(self) -> None:
        """Let one idle worker look for a range; it wakes the next one if it has found one. At the end, wake them all.

        The first worker may take a range whenever another may, so the lowest goes first.
        """
        is_over = self._is_full or self._failure is not None or self.state.done
        for worker in sorted(self._idle) if is_over else [min(self._idle)] if self._idle else []:
            turn = self._idle[worker]
            if not turn.done():
                turn.set_result(None)

    # ------------------------------------------------------------ the budget

    def _reserve(self) -> int:
        """The size of the next page; 0: the budget does not allow one now."""
        limits, budget, size = self.limits, self.limits.budget, self.api.options.paging.size
        begun = self.writer.rows or self._under_way
        if budget.rows is not None:
            left = budget.rows - self.writer.rows - limits.expected_rows
            if left <= 0:
                return 0
            if self.api.cursor_is_id:
                size = min(size, left)
            elif left < size and begun:
                return 0
        if self.writer.memory >= limits.memory:
            return 0
        expected = size * self._bytes_of_row()
        if begun and self.writer.bytes + limits.expected_bytes + expected > budget.bytes:
            return 0
        limits.expected_rows += size
        limits.expected_bytes += expected
        return size

    def _release(self, size: int) -> None:
        self.limits.expected_rows -= size
        self.limits.expected_bytes = max(0.0, self.limits.expected_bytes - size * self._bytes_of_row())

    def _bytes_of_row(self) -> float:
        seen = self.writer.bytes / self.writer.rows if self.writer.rows else 0.0
        return max(seen, self.limits.budget.row_bytes or 0.0)

    # ------------------------------------------------------------ one page

    async def _fetch(self, key: int, asked: Asked) -> None:
        try:
            # Every stream has its first page before any has its second.
            page = await self.api.fetch(asked, self.urgency if self.state.pages else FIRST_PAGE)
        except (RequestRefused, ResourceRefused) as refused:
            if asked.cursor is None:
                raise
            # The object that the cursor names may be deleted. If the request itself is wrong, it fails without one too.
            before = self.state.tasks[key]
            self.state = self._restart(key)
            if len(self.state.tasks[key].seen) == len(before.seen) and self._standstill.restart(key):
                raise self._standstill.refuse(self.api.stream, refused) from None
            return
        self._take(key, asked, page)

    def _restart(self, key: int) -> Subdivision:
        try:
            return fold(self.state, CursorVanished(key, cursor_is_id=self.api.cursor_is_id))
        except ValueError as error:
            raise Unfit(str(error), next_step="reset the stream", stream=self.api.stream) from None

    def _take(self, key: int, asked: Asked, page: FetchedPage) -> None:
        self._check_units(page)
        try:
            verdict = judge_page(self.state, key, page.records, page.has_more, page.cursor)
        except PageError as error:
            raise self._unfit(
                str(error), "set `order` and `paging` of the stream as the API lists its objects"
            ) from None
        if verdict.outside:
            raise self._outside(asked, page)
        fresh = self.known.take(page, verdict.keep, is_reread=self._standstill.is_read_again(key))
        if self.changed_since is not None and page.updated is not None:
            fresh = [number for number in fresh if page.updated[number] >= self.changed_since]
        self.writer.write([page.texts[number] for number in fresh])
        self.state = fold(self.state, verdict.event)
        if verdict.keep or not page.has_more:
            self._standstill.move_on(key)
        elif self._standstill.meet(key, page.cursor, len(page.records), asked.size):
            raise self._unfit("the API gives the same pages again and again", "correct `paging` of the stream")
        self._leave_count(key, page)
        if fresh:
            self.at_page(len(fresh), min(page.records[0][0], page.records[-1][0]))
        self.report(self.writer.rows)

    def _leave_count(self, key: int, page: FetchedPage) -> None:
        """Go on from the last time where pages are counted: a count is wrong once an earlier object is deleted."""
        if self.api.counts_pages and page.records and page.records[0][0] != page.records[-1][0]:
            task = self.state.tasks.get(key)
            if task is not None and not task.crowded:
                self.state = self._restart(key)

    def _check_units(self, page: FetchedPage) -> None:
        """Refuse a time in another unit. In a page that is in order, it is the first or the last one."""
        for at, id_ in (*page.records[:1], *page.records[-1:]):
            if other := self.api.unit.other_unit(at):
                raise self._unfit(
                    f"record {id_}: its time {at} looks like {other}, and the stream's unit is {self.api.unit.kind}",
                    "correct `unit` under `time`; a list with times in two units has no `time`",
                )

    def _outside(self, asked: Asked, page: FetchedPage) -> StreamFailed:
        unit, time_options = self.api.unit, self.api.options.time
        assert time_options is not None
        at, id_ = (max if self.api.options.order == "newest" else min)(page.records)
        bound, name = (
            (asked.lt, time_options.before)
            if self.api.options.order == "newest"
            else (
                asked.gte,
                time_options.since,
            )
        )
        return self._unfit(
            f"record {id_} has time {unit.show_far(at)}, although {name}={bound} was asked for: the API ignores the "
            "filter, or writes its times in another unit",
            "correct `since`, `before` and `unit` under `time`; a list that cannot be filtered has no `time`",
        )

    def _unfit(self, what: str, next_step: str) -> Unfit:
        return Unfit(what, next_step=next_step, stream=self.api.stream)


class Unfit(StreamFailed):
    """What the API gives contradicts the configuration: nothing of it is delivered."""
