"""Checks whether the store of a worker still exists: a worker without its store has nothing to do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from penstock.warm.child import die_with

#: seconds between two queries to a server
SERVER_POLL_SECONDS = 60.0
#: queries in a row that fail before the server counts as gone: one that restarts is not
MAX_FAILED_QUERIES = 3
GONE = "its store is gone"
NO_ANSWER = "its store does not answer"
_GONE_STATUS = 7
_FAILED_STATUS = 8


class StoreWatch:
    """Watches the file of a store, or has a forked process query a server."""

    def __init__(self, path: str | None, missing: Callable[[], bool]) -> None:
        """`path` is that of a file; without one, `missing` asks a server whether there is no store any more."""
        self._path = path
        self._missing = missing
        self._seen = self._identity()
        #: a server's store is gone only if it was there
        self._queried_at = time.monotonic()
        self._was_there = False
        #: the forked process that queries
        self._query_pid: int | None = None
        self._failed_queries = 0

    def after_run(self) -> None:
        """Note that the store exists: a run creates it."""
        self._was_there = True
        self._seen = self._seen or self._identity()

    def why_gone(self) -> str | None:
        """Why the worker has no store any more; None: it has one, or has not had one yet."""
        if self._path is not None:
            return GONE if self._seen is not None and self._identity() != self._seen else None
        if self._query_pid is not None:
            return self._read_query(self._query_pid)
        if self._was_there and time.monotonic() - self._queried_at >= SERVER_POLL_SECONDS:
            self._queried_at = time.monotonic()
            self._query_pid = self._start_query()
        return None

    def _read_query(self, query_pid: int) -> str | None:
        """Read the result of a query, if it has ended."""
        pid, status = os.waitpid(query_pid, os.WNOHANG)
        if not pid:
            return None
        self._query_pid = None
        code = os.waitstatus_to_exitcode(status)
        self._failed_queries = 0 if code in (0, _GONE_STATUS) else self._failed_queries + 1
        if self._failed_queries >= MAX_FAILED_QUERIES:
            return NO_ANSWER
        return GONE if code == _GONE_STATUS else None

    def _identity(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _start_query(self) -> int:
        """Query in a forked process: the worker itself must have no connection, and does not wait."""
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            code = _FAILED_STATUS
            try:
                die_with(parent)
                code = _GONE_STATUS if self._missing() else 0
            finally:
                os._exit(code)
        return pid
