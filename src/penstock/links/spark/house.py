"""The one Spark session of a process, shared by the Mover, the source and the sink.

What it needs is gathered first; then whoever uses it first starts it, once. Every wait is beside the calling thread,
so that a signal can end it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock import __version__
from penstock.errors import InputError, PenstockError, StreamFailed
from penstock.links.spark.cluster import ExecutorWatch
from penstock.links.spark.failures import died, foreign_python, telling
from penstock.links.spark.jvm import Jvm, stop
from penstock.links.spark.log import SparkLog
from penstock.links.spark.scratch import ScratchFolder, sweep
from penstock.links.spark.session import SECRET, SparkOptions, start, united

#: how often a waiting driver looks up, so that a signal is heeded
_LOOK = 0.1
#: what can still be set once the session runs
_AT_RUN_TIME = "spark.sql.catalog."

Outcome = TypeVar("Outcome")


class SparkHouse:
    """Holds the session; started lazily, given up by `cancel`, ended by `close`."""

    def __init__(
        self,
        options: SparkOptions | None = None,
        *,
        begins: Callable[[], object] = lambda: None,
        ready: Callable[[], object] = lambda: None,
    ) -> None:
        """`begins` is called before the session is started, so that its owner can end it; `ready` once it runs."""
        self.options = options or SparkOptions()
        self._settings: dict[str, str] = dict(self.options.config)
        self._packages: list[str] = []
        self._begins, self._ready = begins, ready
        self._session: Any = None
        #: whether the session was there before this house
        self._lent = False
        self._cancelled = threading.Event()
        self._log = SparkLog()
        self._jvm: Jvm | None = None
        #: the cluster's size, as it says itself
        self._asked: int | None = None
        self._scratch: ScratchFolder | None = None

    def needs(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        """Settings and Maven packages that the session must have; InputError if they contradict what it has."""
        wanted = united(self._settings, settings)
        missing = [package for package in dict.fromkeys(packages) if package not in self._packages]
        if self._alive():
            self._set(wanted, missing)
        self._settings = wanted
        self._packages += missing

    def session(self) -> Any:
        """The session, started at the first call and again if it has died; InputError if it cannot be."""
        if not self._alive():
            self._begins()
            # Beside this thread: Spark, started on the main one, would take over SIGINT.
            self._session = self.wait(self._start)
            self._ready()
        return self._session

    def wait(self, work: Callable[[], Outcome], failed: str = "Spark failed") -> Outcome:
        """Run a Spark action beside this thread, so that a signal can end the wait.

        A PenstockError arrives as itself, anything else as a StreamFailed that begins with `failed`, caused by it.
        """
        outcome: list[Outcome] = []
        failure: list[BaseException] = []

        def act() -> None:
            try:
                outcome.append(work())
            except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
                failure.append(error)
            finally:
                hang_up()

        thread = threading.Thread(target=act, name="penstock-spark", daemon=True)
        if not self._cancelled.is_set():
            thread.start()
        watch = self._watch()
        while thread.is_alive() and not self._cancelled.is_set():
            thread.join(_LOOK)
            if watch is not None:
                watch.look()
        if self._cancelled.is_set():
            raise StreamFailed("the move was given up on request", next_step="run again; the slice is still open")
        if failure:
            raise self._explained(failure[0], failed)
        return outcome[0]

    @property
    def workers(self) -> int:
        """Parts that can move at the same time: what the cluster says, once it has moved some, or else the settings."""
        return self._asked or self.options.workers

    def ask_size(self) -> None:
        """Ask a cluster for its size, once executors are there; to be called by the work that `wait` runs."""
        if self._session is not None and not self.options.one_process:
            self._asked = max(1, int(self._session.sparkContext.defaultParallelism))

    def cancel(self) -> None:
        """Give up what is waited for, and everything after it. Safe in a signal handler."""
        self._cancelled.set()

    def close(self) -> None:
        """End the session and its JVM: `stop()` alone would leave the JVM behind. Idempotent.

        One that somebody else in this process had started is theirs to end.
        """
        if self._alive() and not self._lent and not self._cancelled.is_set():
            stop(self._session)
        self._forget()

    def _watch(self) -> ExecutorWatch | None:
        if self._session is None or self.options.one_process:
            return None
        return ExecutorWatch(self._session, self.options.resolved_master, self.options.executor_seconds)

    def _alive(self) -> bool:
        """Whether there is a session and its JVM lives, as far as we know; one that is dead is forgotten."""
        if self._session is not None and self._jvm is not None and self._jvm.status() is not None:
            self._forget()
        return self._session is not None

    def _forget(self) -> None:
        """Be as before the start, also if the start failed halfway; the JVM is ended if it is ours or dead."""
        session, self._session = self._session, None
        jvm, self._jvm = self._jvm, None
        if jvm is not None and session is not None and (not self._lent or jvm.status() is not None):
            jvm.end()
        self._log.close()
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _start(self) -> Any:
        from penstock.links.spark import jars

        files = jars.files(self._packages, self._settings)
        from pyspark import SparkContext

        before = Jvm.current()
        if before is not None and before.status() is not None:
            before.end()
        self._lent = SparkContext._active_spark_context is not None
        if self._scratch is None:
            sweep()
            self._scratch = ScratchFolder()
        session = start(self.options, self._settings, files, self._log, self._scratch.path)
        self._jvm = Jvm.current()
        if not self._lent:
            self._log.take_loggers()
        return session

    def _set(self, wanted: Mapping[str, str], missing: Sequence[str]) -> None:
        """Add to a session that runs what can still be added, or end it, so that the next one has it."""
        new = {key: value for key, value in wanted.items() if self._settings.get(key) != value}
        late = [key for key in new if not key.startswith(_AT_RUN_TIME)] + list(missing)
        secrets = [key for key in new if re.search(SECRET, key)]
        if secrets and not late and self._session.conf.get("spark.eventLog.enabled", "false") == "true":
            # Spark leaves out of its event log only those secrets that it was started with.
            if not self._lent:
                stop(self._session)
                self._forget()
                return
            late = secrets
        if late:
            raise InputError(
                f"Spark runs already and cannot be given {', '.join(late)} any more",
                next_step="name them under `spark.config` in the pipeline file, or run this in a process of its own",
            )
        for key, value in new.items():
            self._session.conf.set(key, value)

    def _explained(self, error: BaseException, failed: str) -> PenstockError:
        """A failure in one line; the whole of it is added to Spark's own log, which is kept."""
        if isinstance(error, PenstockError):
            return error
        status = self._jvm.status(error) if self._jvm is not None else None
        if status is not None:
            explained = died(status, self._log.keep(str(error)))
            explained.__cause__ = error
            self._forget()
            return explained
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        if unfit := foreign_python(str(error), python, __version__):
            unfit.__cause__ = error
            return unfit
        explained = StreamFailed(
            f"{failed}: {telling(str(error)) or type(error).__name__}",
            next_step=f"run again; if it happens again, Spark's log is in {self._log.keep(str(error))}",
        )
        explained.__cause__ = error
        return explained


def hang_up() -> None:
    """Close this thread's connection to the JVM, which py4j would leave to the garbage collector."""
    from pyspark import SparkContext

    client = getattr(SparkContext._jvm, "_gateway_client", None)
    connection = client.get_thread_connection() if client is not None else None
    if client is not None and connection is not None:
        with contextlib.suppress(ValueError):  # someone else has closed it
            client.deque.remove(connection)
        connection.close()
