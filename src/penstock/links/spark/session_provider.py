"""A pipeline's Spark session, shared by its Mover, source and sink.

Source and sink first say what they require of it. The first use starts it, or opens it on a JVM that runs already.
Spark works in a thread of its own, so that a signal can end the caller's wait.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock import __version__
from penstock.errors import PenstockError, StreamFailed
from penstock.links.spark.background_start import cancelled_error
from penstock.links.spark.cluster import ExecutorWatch
from penstock.links.spark.failures import jvm_died, key_line, unfit_python
from penstock.links.spark.jvm import close_connection
from penstock.links.spark.session import SparkOptions
from penstock.links.spark.shared import SharedSpark, SparkRequirements

#: seconds between two looks of a waiting driver at signals
_POLL_SECONDS = 0.1

Outcome = TypeVar("Outcome")


class SparkSessionProvider:
    """Provides the session: starts it on first use, gives it up on `cancel`, ends it on `close`."""

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
        self._requirements = SparkRequirements(dict(self.options.config))
        self._on_start, self._on_ready = on_start, on_ready
        self._session: Any = None
        self._cancelled = threading.Event()
        #: a start was begun that nobody has waited for
        self._is_starting = False
        #: a wait was given up, and its work may still go on in the JVM
        self._may_be_working = False
        #: the cluster's size, as it says itself
        self._cluster_size: int | None = None

    def require(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        """Settings and Maven packages that the session must have; InputError if they contradict what it has."""
        wanted = self._requirements.combine_with(SparkRequirements(settings, packages))
        if self._is_alive() and not self.shared.add(self._session, self._requirements, wanted):
            self._session = None
            self.shared.end()
        self._requirements = wanted

    def session(self) -> Any:
        """The session, opened at the first call and again if it has died; InputError if it cannot be."""
        if not self._is_alive():
            starting, self._is_starting = self._is_starting, False
            starts = starting or not self.shared.serves(self._requirements)
            if starts and not starting:
                self._on_start()
            # Beside this thread: Spark, started on the main one, would take over SIGINT.
            self._session = self.wait(partial(self.shared.open, self._requirements))
            if starts:
                self._on_ready()
        return self._session

    def begin(self) -> None:
        """Begin to start Spark beside the caller, if it must be started: it will be needed. `session` waits for it."""
        if not self._is_starting and not self._cancelled.is_set() and not self.shared.serves(self._requirements):
            self._on_start()
            self._is_starting = True
            self.shared.begin(self._requirements)

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
                _close_connection()

        thread = threading.Thread(target=act, name="penstock-spark", daemon=True)
        if not self._cancelled.is_set():
            thread.start()
        watch = self._executor_watch()
        self._may_be_working = True
        while thread.is_alive() and not self._cancelled.is_set():
            thread.join(_POLL_SECONDS)
            if watch is not None:
                watch.look()
        if self._cancelled.is_set():
            raise cancelled_error()
        self._may_be_working = False
        if failure:
            raise self._explain(failure[0], failed)
        return outcome[0]

    @property
    def workers(self) -> int:
        """Parts that can move at the same time: what the cluster says, once it has moved some, or else the settings."""
        return self._cluster_size or self.options.workers

    def ask_cluster_size(self) -> None:
        """Ask a cluster for its size, once executors are there; to be called by the work that `wait` runs."""
        if self._session is not None and not self.options.one_process:
            self._cluster_size = max(1, int(self._session.sparkContext.defaultParallelism))

    def cancel(self) -> None:
        """Give up what is waited for, and everything after it. Safe in a signal handler."""
        self._cancelled.set()

    def close(self) -> None:
        """End the session, and the JVM too if it is only ours or may still be at work. Idempotent."""
        self._session = None
        if self._owns or self._may_be_working or self._cancelled.is_set():
            self.shared.end(orderly=not self._cancelled.is_set())

    def _executor_watch(self) -> ExecutorWatch | None:
        if self._session is None or self.options.one_process:
            return None
        return ExecutorWatch(self._session, self.options.resolved_master, self.options.executor_seconds)

    def _is_alive(self) -> bool:
        """Whether there is a session and its JVM lives, as far as we know; one that is dead is forgotten."""
        if not self.shared.is_alive:
            self._session = None
        return self._session is not None

    def _explain(self, error: BaseException, failed: str) -> PenstockError:
        """A failure in one line; the whole of it is added to Spark's own log, which is kept."""
        if isinstance(error, PenstockError):
            return error
        status = self.shared.status(error)
        if status is not None:
            explained = jvm_died(status, self.shared.log.keep(str(error)))
            explained.__cause__ = error
            self._session = None
            self.shared.end(orderly=False)
            return explained
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        if unfit := unfit_python(str(error), python, __version__):
            unfit.__cause__ = error
            return unfit
        explained = StreamFailed(
            f"{failed}: {key_line(str(error)) or type(error).__name__}",
            next_step=f"run again; if it happens again, Spark's log is in {self.shared.log.keep(str(error))}",
        )
        explained.__cause__ = error
        return explained


def _close_connection() -> None:
    from pyspark import SparkContext

    client = getattr(SparkContext._jvm, "_gateway_client", None)
    if client is not None:
        close_connection(client)
