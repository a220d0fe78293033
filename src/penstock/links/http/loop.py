"""An event loop in a thread of its own, so that requests outlive a call and a signal can end the wait for them."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from penstock.errors import OutOfTime, StreamFailed

Result = TypeVar("Result")

#: seconds between two looks whether the run is to end
POLL_SECONDS = 0.1
#: seconds that tasks of the HTTP client have to end by themselves
END_SECONDS = 2.0


class LoopThread:
    """Runs coroutines in a thread that is started at the first one."""

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        self._is_cancelled = is_cancelled
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        #: what is under way; belongs to the loop's thread
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine beside the caller."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-http", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._track(work), self._loop)

    async def _track(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    def run(self, work: Coroutine[Any, Any, Result], end: float = math.inf) -> Result:
        """The coroutine's result; StreamFailed if the run is to end before, OutOfTime at `end` (time.monotonic)."""
        return self.wait(self.start(work), end)

    def wait(self, future: Future[Result], end: float = math.inf) -> Result:
        """The result of what was started, in the same way."""
        is_over = False
        while True:
            try:
                return future.result(POLL_SECONDS)
            except TimeoutError:
                # The coroutine's own timeouts arrive here too.
                if future.done():
                    raise
                if self._is_cancelled():
                    future.cancel()
                elif time.monotonic() > end:
                    is_over = True
                    future.cancel()
            except CancelledError:
                raise (out_of_time() if is_over else stopped()) from None

    def is_cancelled(self) -> bool:
        """Whether the run is to end."""
        return self._is_cancelled()

    def close(self, then: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Give up what is under way, run `then`, and end the thread. Idempotent; `then` needs a loop that has begun."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return

        async def give_up() -> None:
            # Only what was started here is cancelled: it ends its own tasks, and the HTTP client's.
            mine = self._tasks - {asyncio.current_task()}
            for task in mine:
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=END_SECONDS)
            if then is not None:
                await then()
            await asyncio.get_running_loop().shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(give_up(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def out_of_time() -> OutOfTime:
    """The run's time is over: nothing is wrong with the stream."""
    return OutOfTime(
        "the run's time was over before everything was read that has to be delivered together: what was fetched is "
        "thrown away, and the next run begins again",
        next_step="raise `--time-limit` if this happens in every run",
    )


def stopped() -> StreamFailed:
    """The run is to end: nothing is wrong with the stream."""
    return StreamFailed("the requests were abandoned because the run is to end", next_step="run again to resume")
