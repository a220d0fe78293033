"""Looks at streams: a first page of each, which tells whether it can be read, and what is new in it.

All streams are looked at at the same time. One whose look fails and is tried again does not keep the others waiting.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from penstock.core.marks import Mark
from penstock.errors import ConnectionFailed, PenstockError
from penstock.links.http.loop import LoopThread
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.marks import CursorPosition
from penstock.sources.rest.onward import CursorGone, OnwardPage, fetch_onward
from penstock.sources.rest.options import Options
from penstock.sources.rest.parents import ChildList

#: seconds between two looks whether a request is tried again
POLL_SECONDS = 0.02


@dataclass(slots=True)
class Look:
    """A first page of a stream, and what it tells."""

    page: FetchedPage | None
    #: why the stream cannot be read; None: it can
    failure: PenstockError | None = None
    #: the position that the page was asked for, and the page, where the list is read onward
    at: CursorPosition | None = None
    onward: OnwardPage | None = None
    #: whether a ceiling was made from it: the next one needs a newer look
    is_used: bool = False


class Looks:
    """The looks at all streams of a source, each asked for once until it is forgotten."""

    def __init__(
        self, loop: LoopThread, apis: Mapping[str, ListApi], source: Options, last_mark: Callable[[str], Mark | None]
    ) -> None:
        self._loop, self._apis, self._source, self._last_mark = loop, apis, source, last_mark
        self._asked: dict[str, Future[Look]] = {}

    def begin(self, streams: Iterable[str]) -> None:
        """Ask for the looks at these streams. Waits until each has an answer, or is tried again while others have one.

        ConnectionFailed if a look says so.
        """
        asked = {stream: self._ask(stream) for stream in streams}
        while (waiting := [each for each in asked.values() if not each.done()]) and not self._may_go_on(asked):
            concurrent.futures.wait(waiting, POLL_SECONDS, concurrent.futures.FIRST_COMPLETED)
            if self._loop.is_cancelled():
                return  # those that are awaited stay so: the engine ends the run
        for stream, future in asked.items():
            if future.done():
                self.get(stream)

    def _may_go_on(self, asked: Mapping[str, Future[Look]]) -> bool:
        waiting = [stream for stream, future in asked.items() if not future.done()]
        return len(waiting) < len(asked) and all(map(self._is_tried_again, waiting))

    def get(self, stream: str) -> Look:
        """The look at a stream, which is waited for."""
        try:
            return self._loop.wait(self._ask(stream))
        except PenstockError:
            self._asked.pop(stream, None)
            raise

    def is_awaited(self, stream: str) -> bool:
        """Whether a look was asked for, and has no answer yet."""
        return stream in self._asked and not self._asked[stream].done()

    def renew(self, stream: str) -> Look:
        """A look that no ceiling was made from, and none will be made from again."""
        if self.get(stream).is_used:
            del self._asked[stream]
        look = self.get(stream)
        look.is_used = True
        return look

    def clear(self) -> None:
        self._asked.clear()

    def _ask(self, stream: str) -> Future[Look]:
        if stream not in self._asked:
            self._asked[stream] = self._loop.start(self._look(stream))
        return self._asked[stream]

    def _look(self, stream: str) -> Coroutine[Any, Any, Look]:
        api, children = self._apis[stream], ChildList.of(stream, self._apis, self._source)
        is_onward = api.options.incremental and api.options.time is None
        # Asked in the caller's thread: a store belongs to it.
        at = CursorPosition.read(self._last_mark(stream)) if is_onward else None
        return _take(api, children, at)

    def _is_tried_again(self, stream: str) -> bool:
        api = self._apis[stream]
        parent = self._apis.get(api.options.parent or stream, api)
        return api.effort.retries > 0 or parent.effort.retries > 0


async def _take(api: ListApi, children: ChildList | None, at: CursorPosition | None) -> Look:
    try:
        if children is not None:
            return Look(await children.fetch_first())
        if at is None:
            return Look(await api.fetch(Asked(None, None, None, 1)))
        # As many as were delivered from there on may come again.
        onward = await fetch_onward(api, at, None if at.cursor or at.seen else 1)
        return Look(onward.page, at=at, onward=onward)
    except CursorGone:
        return Look(None)  # the list itself can be read: planning asks again, and says what is wrong
    except ConnectionFailed:
        raise
    except PenstockError as failure:
        return Look(None, failure)
