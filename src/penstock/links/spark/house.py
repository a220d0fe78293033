"""The one Spark session of a process, shared by the Mover, the source and the sink.

What it needs is gathered first; then whoever uses it first starts it, once. Every wait is beside the calling thread,
so that a signal can end it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.errors import InputError, PenstockError, StreamFailed
from penstock.links.spark.session import SparkLog, SparkOptions, end_jvm, start, united

#: how often a waiting driver looks up, so that a signal is heeded
_LOOK = 0.1
#: what can still be set once the session runs
_AT_RUN_TIME = "spark.sql.catalog."

Outcome = TypeVar("Outcome")


class SparkHouse:
    """Holds the session; started lazily, given up by `cancel`, ended by `close`."""

    def __init__(self, options: SparkOptions | None = None, *, begins: Callable[[], object] = lambda: None) -> None:
        """`begins` is called before the session is started: whoever is to end it learns of it."""
        self.options = options or SparkOptions()
        self._settings: dict[str, str] = dict(self.options.config)
        self._packages: list[str] = []
        self._begins = begins
        self._session: Any = None
        #: whether the session was there before this house
        self._lent = False
        self._cancelled = threading.Event()
        self._log = SparkLog()

    def needs(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        """Settings and Maven packages that the session must have; InputError if they contradict what it has."""
        wanted = united(self._settings, settings)
        missing = [package for package in dict.fromkeys(packages) if package not in self._packages]
        if self._session is not None:
            self._set(wanted, missing)
        self._settings = wanted
        self._packages += missing

    def session(self) -> Any:
        """The session, started at the first call; InputError with what to install if it cannot be."""
        if self._session is None:
            self._begins()
            # Beside this thread: Spark, started on the main one, would take over SIGINT.
            self._session = self.wait(self._start)
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
        while thread.is_alive() and not self._cancelled.is_set():
            thread.join(_LOOK)
        if self._cancelled.is_set():
            raise StreamFailed("the move was given up on request", next_step="run again; the slice is still open")
        if failure:
            raise self._explained(failure[0], failed)
        return outcome[0]

    def cancel(self) -> None:
        """Give up what is waited for, and everything after it. Safe in a signal handler."""
        self._cancelled.set()

    def close(self) -> None:
        """End the session and its JVM: `stop()` alone would leave the JVM behind. Idempotent.

        One that somebody else in this process had started is theirs to end.
        """
        session, self._session = self._session, None
        if session is not None and not self._lent:
            if not self._cancelled.is_set():
                session.stop()
            end_jvm()
        self._log.close()

    def _start(self) -> Any:
        from penstock.links.spark import jars

        files = jars.files(self._packages, self._settings)
        from pyspark import SparkContext

        self._lent = SparkContext._active_spark_context is not None
        return start(self.options, self._settings, files, self._log)

    def _set(self, wanted: Mapping[str, str], missing: Sequence[str]) -> None:
        """Add to a session that runs what can still be added."""
        new = {key: value for key, value in wanted.items() if self._settings.get(key) != value}
        late = [key for key in new if not key.startswith(_AT_RUN_TIME)] + list(missing)
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
        explained = StreamFailed(
            f"{failed}: {telling(str(error)) or type(error).__name__}",
            next_step=f"run again; if it happens again, Spark's log is in {self._log.keep(str(error))}",
        )
        explained.__cause__ = error
        return explained


def telling(text: str) -> str:
    """The line of a failure that says what happened: where a Python traceback ends, or else Spark's own first words."""
    _, traced, trace = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in (trace if traced else text).splitlines() if line.strip()]
    if traced:
        lines = [line for line in lines if not line.startswith(" ")]
    return next((line.strip(": ") for line in lines if not line.startswith(("An error occurred while", "\tat "))), "")


def hang_up() -> None:
    """Close this thread's connection to the JVM, which py4j would leave to the garbage collector."""
    from pyspark import SparkContext

    client = getattr(SparkContext._jvm, "_gateway_client", None)
    connection = client.get_thread_connection() if client is not None else None
    if client is not None and connection is not None:
        with contextlib.suppress(ValueError):  # someone else has closed it
            client.deque.remove(connection)
        connection.close()
