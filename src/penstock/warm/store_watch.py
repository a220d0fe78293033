"""Whether the store that a worker serves is still there: a worker without its store has nothing to wait for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from penstock.warm.child import die_with

#: seconds between two questions to a server
ASK_SECONDS = 60.0
_GONE = 7


class StoreWatch:
    """Looks at the file of a store, or has a forked process ask a server."""

    def __init__(self, path: str | None, missing: Callable[[], bool]) -> None:
        """`path` is that of a file; without one, `missing` asks a server whether there is no store any more."""
        self._path = path
        self._missing = missing
        self._seen = self._identity()
        #: a server's store is gone only if it was there
        self._asked = time.monotonic()
        self._was_there = False
        #: the forked process that is asking
        self._asking: int | None = None

    def after_run(self) -> None:
        """A run makes the store that was not there before."""
        self._was_there = True
        self._seen = self._seen or self._identity()

    def is_gone(self) -> bool:
        if self._path is not None:
            return self._seen is not None and self._identity() != self._seen
        if self._asking is not None:
            pid, status = os.waitpid(self._asking, os.WNOHANG)
            if pid:
                self._asking = None
            return bool(pid) and os.waitstatus_to_exitcode(status) == _GONE
        if self._was_there and time.monotonic() - self._asked >= ASK_SECONDS:
            self._asked = time.monotonic()
            self._asking = self._ask()
        return False

    def _identity(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _ask(self) -> int:
        """Ask in a forked process: the worker itself must have no connection, and does not wait."""
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            code = 0
            try:
                die_with(parent)
                code = _GONE if self._missing() else 0
            finally:
                os._exit(code)
        return pid
