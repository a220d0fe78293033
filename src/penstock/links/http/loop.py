"""An event loop in a thread of its own, so that requests outlive a call and a signal can end the wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from penstock.errors import StreamFailed

Result = TypeVar("Result")

#: seconds between two looks whether the run is to end
POLL_SECONDS = 0.1


class LoopThread:
    """Runs coroutines in a thread that is started at the first one."""

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        self._is_cancelled = is_cancelled
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine beside the caller."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-http", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The coroutine's result; StreamFailed if the run is to end before."""
        future = self.start(work)
        while True:
            try:
                return future.result(POLL_SECONDS)
            except TimeoutError:
                # The coroutine's own timeouts arrive here too.
                if future.done():
                    raise
                if self._is_cancelled():
                    future.cancel()
            except CancelledError:
                raise stopped() from None

    def close(self) -> None:
        """Give up what is under way and end the thread. Idempotent."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return

        async def give_up() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.get_running_loop().shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(give_up(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def stopped() -> StreamFailed:
    """The run is to end: nothing is wrong with the stream."""
    return StreamFailed("the requests were abandoned because the run is to end", next_step="run again to resume")
