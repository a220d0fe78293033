"""The log of Spark: the output of the JVM, its workers and PySpark, kept out of our own output."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: PySpark's loggers that write a traceback to standard error for each failure that Spark can locate in a query
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
#: py4j's module that writes a traceback to the root logger when a connection to a dying JVM is reset
_PY4J_MODULE = "java_gateway"


class SparkLog:
    """A file that the JVM and its workers write to instead of standard error.

    It is removed with its folder, unless `keep` was called, which moves it elsewhere.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._kept: str | None = None
        self._loggers: list[tuple[logging.Logger, list[logging.Handler]]] = []

    @contextlib.contextmanager
    def opened(self, folder: Path) -> Iterator[int]:
        """The log, for the standard error of a process that is started in here."""
        self._path = str(folder / "spark.log")
        # Appending, so that what we add is not written over.
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            yield handle
        finally:
            os.close(handle)

    def keep(self, text: str) -> str:
        """Add a report and keep the file; returns its path."""
        if self._kept is None:
            handle, self._kept = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
            os.close(handle)
            if self._path is not None and os.path.exists(self._path):
                os.replace(self._path, self._kept)  # the JVM goes on writing to it
        self._add(text)
        return self._kept

    def take_loggers(self) -> None:
        """Have the loggers of PySpark and py4j write here instead of to standard error."""
        from pyspark.logger import PySparkLogger

        for name in _LOGGERS:
            logger: logging.Logger = PySparkLogger.getLogger(name)
            self._loggers.append((logger, list(logger.handlers)))
            logger.handlers[:] = [_ToLog(self)]
        _PY4J.log = self
        logging.getLogger().addFilter(_PY4J)

    def take_errors_of(self, server: Any) -> None:
        """Have a `socketserver` report failed requests here: each request fails when the JVM ends."""
        server.handle_error = lambda _request, _client: self._add(_traceback())

    def close(self) -> None:
        for logger, handlers in self._loggers:
            logger.handlers[:] = handlers
        self._loggers.clear()
        # After a JVM has died, a thread may learn only now that its connection was reset.
        if self._kept is None:
            logging.getLogger().removeFilter(_PY4J)
        self._path = None

    def _add(self, text: str) -> None:
        path = self._kept or self._path
        if path is not None:
            with contextlib.suppress(FileNotFoundError), open(path, "a", encoding="utf-8") as file:
                file.write(text + "\n")


class _ToLog(logging.Handler):
    def __init__(self, log: SparkLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log._add(self.format(record))


class _FromPy4j(logging.Filter):
    """Takes the records that py4j gives to the root logger, and leaves all others alone."""

    #: the log of the newest JVM
    log: SparkLog | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if record.module != _PY4J_MODULE:
            return True
        if self.log is not None:
            _ToLog(self.log).emit(record)
        return False


_PY4J = _FromPy4j()


def _traceback() -> str:
    import traceback

    return "".join(traceback.format_exception(*sys.exc_info()))
