"""Lists below the objects of another list: `customers/{id}/cards` is read for every customer, whole in every run.

The parents are listed by the API while their children are read, so a run sees the parents that are there. A line of the
spool has the parent's id before the record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from penstock.errors import StreamFailed, StreamRefused
from penstock.links.http.failures import GONE, ResourceRefused
from penstock.links.http.loop import stopped
from penstock.sources.rest.known import KnownIds, Repeats
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.options import Options, read_time
from penstock.sources.rest.sequence import read_in_sequence
from penstock.sources.rest.spooling import SpoolWriter

#: parents that wait for a worker
PARENTS_WAITING = 200
#: separates the parent's id from the record; JSON has none within a string
SEPARATOR = b"\t"


@dataclass(frozen=True, slots=True)
class ChildList:
    """One stream's list under each object of its parent stream."""

    api: ListApi
    parents: ListApi
    #: bounds of the parents' time, where the parent stream has a range
    gte: int | None = None
    lt: int | None = None

    @classmethod
    def of(cls, stream: str, apis: Mapping[str, ListApi], source: Options) -> ChildList | None:
        """A stream as a list below its parents; None: it has no parent. `apis` are all streams of the source."""
        parent = apis[stream].options.parent
        if parent is None:
            return None
        options = apis[parent].options
        range_ = (options.time_range or source.time_range) if options.time else None
        low, high = (range_.from_, range_.to) if range_ else (None, None)
        unit = apis[parent].unit
        return cls(
            apis[stream],
            apis[parent],
            unit.of(read_time(low)) if low else None,
            unit.of(read_time(high)) if high else None,
        )

    async def fetch_first(self) -> FetchedPage | None:
        """A page with one child of the first parent; None: there is no parent, or it is gone."""
        try:
            page = await self.parents.fetch(Asked(self.gte, self.lt, None, 1))
        except (StreamFailed, StreamRefused) as failed:
            # The child cannot be read without its parent, for the same reason.
            failed.what = f"the parent stream {self.parents.stream} cannot be read: {failed.what}"
            failed.stream = self.api.stream
            raise
        for _, parent in page.records[:1]:
            try:
                return await self.api.under(parent).fetch(Asked(None, None, None, 1))
            except ResourceRefused as refused:
                if refused.status not in GONE:
                    raise
        return None


@dataclass
class ChildGather:
    """Reads the children of all parents into a spool, with several workers."""

    children: ChildList
    writer: SpoolWriter
    is_cancelled: Callable[[], bool]
    report: Callable[[int], None]
    at_page: Callable[[int, int], None]
    #: parents whose children were asked for, and how many of them were gone by then
    asked: int = 0
    gone: int = 0
    #: children that the API listed a second time for one parent
    repeats: Repeats = field(default_factory=Repeats)
    _first_refusal: ResourceRefused | None = None
    _queue: asyncio.Queue[str | None] = field(default_factory=lambda: asyncio.Queue(PARENTS_WAITING))

    def describe_gone(self) -> str:
        if self.gone == 1:
            return "1 parent was gone when its objects were asked for"
        return f"{self.gone} parents were gone when their objects were asked for"

    async def run(self, workers: int) -> None:
        """Read all.

        StreamFailed if a parent's children cannot be read; then nothing of the list is delivered.
        """
        tasks = [asyncio.create_task(self._list_parents(workers))]
        tasks += [asyncio.create_task(self._work()) for _ in range(workers)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.writer.close()
        if self._first_refusal is not None and self.gone == self.asked:
            # One parent may be deleted in between. If all are, the path is wrong, or the right to read is missing.
            raise StreamFailed(
                f"none of the {self.asked} parents has this list: {self._first_refusal.what}",
                next_step="correct the stream's `path`",
                stream=self.children.api.stream,
            )

    async def _list_parents(self, workers: int) -> None:
        parents = self.children
        async with aclosing(read_in_sequence(parents.parents, gte=parents.gte, lt=parents.lt)) as pages:
            async for each in pages:
                for number in each.fresh:
                    await self._queue.put(each.page.records[number][1])
        for _ in range(workers):
            await self._queue.put(None)

    async def _work(self) -> None:
        while (parent := await self._queue.get()) is not None:
            self.asked += 1
            try:
                await self._read(parent)
            except ResourceRefused as refused:
                if refused.status not in GONE:
                    raise
                self.gone += 1
                self._first_refusal = self._first_refusal or refused

    async def _read(self, parent: str) -> None:
        """All children of one parent. The other workers ask for other parents, so no page is asked for ahead."""
        prefix = json.dumps(parent).encode() + SEPARATOR
        known = KnownIds(self.repeats)
        async with aclosing(read_in_sequence(self.children.api.under(parent), known, prefetch=False)) as pages:
            async for each in pages:
                self.writer.write([prefix + each.page.texts[number] for number in each.fresh])
                self.at_page(len(each.fresh), 0)
                self.report(self.writer.rows)
                if self.is_cancelled():
                    raise stopped()


def split_parents(lines: Sequence[bytes]) -> tuple[list[str], list[bytes]]:
    """The parents' ids and the records of lines from a spool of children."""
    pairs = [line.split(SEPARATOR, 1) for line in lines]
    return [json.loads(parent) for parent, _ in pairs], [record for _, record in pairs]
