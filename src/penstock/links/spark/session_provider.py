"""A pipeline's Spark session, shared by its Mover, source and sink.

What it needs is gathered first; then whoever uses it first starts it, once, or gets it on a JVM that runs already.
Every wait is beside the calling thread, so that a signal can end it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock import __version__
from penstock.errors import PenstockError, StreamFailed
from penstock.links.spark.background_start import given_up_error
from penstock.links.spark.cluster import ExecutorWatch
from penstock.links.spark.failures import died, foreign_python, telling
from penstock.links.spark.session import SparkOptions
from penstock.links.spark.shared import SharedSpark, SparkRequirements

#: how often a waiting driver looks up, so that a signal is heeded
_LOOK = 0.1

Outcome = TypeVar("Outcome")


class SparkSessionProvider:
    """Holds the session; started lazily, given up by `cancel`, ended by `close`."""

    def __init__(
        self,
        options: SparkOptions | None = None,
        *,
        on_start: Callable[[], object] = lambda: None,
        on_ready: Callable[[], object] = lambda: None,
        shared: SharedSpark | None = None,
    ) -> None:
        """`on_start` is called before Spark is started, so that its owner can end it; `on_ready` once it runs.

        A JVM that is `shared` outlives this provider, whose session on it ends; its owner ends it.
        """
        self.options = options or SparkOptions()
        self.shared = shared or SharedSpark(self.options)
        self._owns = shared is None
        self._needs = SparkRequirements(dict(self.options.config))
        self._on_start, self._on_ready = on_start, on_ready
        self._session: Any = None
        self._cancelled = threading.Event()
        #: a start was begun that nobody has waited for
        self._begun = False
        #: a wait was given up, and its work may still go on in the JVM
        self._left_work = False
        #: the cluster's size, as it says itself
        self._asked: int | None = None

    def require(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        """Settings and Maven packages that the session must have; InputError if they contradict what it has."""
        wanted = self._needs.combine_with(SparkRequirements(settings, packages))
        if self._alive() and not self.shared.add(self._session, self._needs, wanted):
            self._session = None
            self.shared.end()
        self._needs = wanted

    def session(self) -> Any:
        """The session, opened at the first call and again if it has died; InputError if it cannot be."""
        if not self._alive():
            begun, self._begun = self._begun, False
            starts = begun or not self.shared.serves(self._needs)
            if starts and not begun:
                self._on_start()
            # Beside this thread: Spark, started on the main one, would take over SIGINT.
            self._session = self.wait(partial(self.shared.open, self._needs))
            if starts:
                self._on_ready()
        return self._session

    def begin(self) -> None:
        """Begin to start Spark beside the caller, if it must be started: it will be needed. `session` waits for it."""
        if not self._begun and not self._cancelled.is_set() and not self.shared.serves(self._needs):
            self._on_start()
            self._begun = True
            self.shared.begin(self._needs)

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
        self._left_work = True
        while thread.is_alive() and not self._cancelled.is_set():
            thread.join(_LOOK)
            if watch is not None:
                watch.look()
        if self._cancelled.is_set():
            raise given_up_error()
        self._left_work = False
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
        """End the session, and the JVM too if it is only ours or may still be at work. Idempotent."""
        self._session = None
        if self._owns or self._left_work or self._cancelled.is_set():
            self.shared.end(orderly=not self._cancelled.is_set())

    def _watch(self) -> ExecutorWatch | None:
        if self._session is None or self.options.one_process:
            return None
        return ExecutorWatch(self._session, self.options.resolved_master, self.options.executor_seconds)

    def _alive(self) -> bool:
        """Whether there is a session and its JVM lives, as far as we know; one that is dead is forgotten."""
        if not self.shared.alive:
            self._session = None
        return self._session is not None

    def _explained(self, error: BaseException, failed: str) -> PenstockError:
        """A failure in one line; the whole of it is added to Spark's own log, which is kept."""
        if isinstance(error, PenstockError):
            return error
        status = self.shared.status(error)
        if status is not None:
            explained = died(status, self.shared.log.keep(str(error)))
            explained.__cause__ = error
            self._session = None
            self.shared.end(orderly=False)
            return explained
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        if unfit := foreign_python(str(error), python, __version__):
            unfit.__cause__ = error
            return unfit
        explained = StreamFailed(
            f"{failed}: {telling(str(error)) or type(error).__name__}",
            next_step=f"run again; if it happens again, Spark's log is in {self.shared.log.keep(str(error))}",
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
