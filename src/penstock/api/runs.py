"""A run from Python: an iterator over its messages. The engine runs in its own thread and handles no signals."""

from __future__ import annotations

import atexit
import os
import queue
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from penstock import wiring
from penstock.api.files import load_file
from penstock.config import File
from penstock.config.pipeline_choice import choose_pipeline, choose_pipelines
from penstock.core.exits import worst
from penstock.core.limits import Limits
from penstock.core.messages import Eof, Message, with_commands
from penstock.engine import Engine
from penstock.errors import UNTOUCHED, InputError, PenstockError

if TYPE_CHECKING:
    from penstock.links.spark import SharedSpark

#: maximum number of unread messages; then the engine waits
MAX_UNREAD_MESSAGES = 1000
#: seconds between two attempts to pass a message
POLL_SECONDS = 0.1


class RunFailed(PenstockError):
    """A run failed, at least in part; `summary` has the details."""

    #: the exit code of the same command
    exit_code: ClassVar[int] = 1
    summary: Summary


@dataclass(frozen=True)
class Summary:
    """How a run of one or more pipelines ended."""

    #: the last message of each pipeline that was started
    pipelines: Mapping[str, Eof] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of the same command: the worst of all pipelines."""
        return worst(eof.exit_code for eof in self.pipelines.values())

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def has_more(self) -> bool:
        """Whether the same run again would move rows: this one reached a limit, was closed, or failed."""
        return any(eof.has_more for eof in self.pipelines.values())

    @property
    def rows(self) -> int:
        """Rows delivered by this run."""
        return sum(eof.request_progress.get("rows", 0) for eof in self.pipelines.values())

    @property
    def bytes(self) -> int:
        return sum(eof.request_progress.get("bytes", 0) for eof in self.pipelines.values())

    def raise_for_failure(self) -> Self:
        """Raise RunFailed with the first reason and its next step, if a pipeline failed."""
        failed = [(name, eof) for name, eof in self.pipelines.items() if eof.exit_code]
        if not failed:
            return self
        name, eof = failed[0]
        error = RunFailed(_reason(eof), next_step=_next_step(eof), pipeline=name)
        error.summary = self
        raise error


class Run(Iterator[Message]):
    """An iterator over the messages of a run; each pipeline ends with its Eof.

    Closing it early, with `close`, by leaving its `with` block or by deleting the object, stops the run as SIGTERM
    stops the command: the mark does not move, an open slice stays open, and the next run resumes it.
    """

    def __init__(self, file: File, names: Sequence[str], streams: Sequence[str] | None, limits: Limits) -> None:
        self._eofs: dict[str, Eof] = {}
        self._names = iter(names)
        self._ended = False
        self._work = _Work(file, names, streams, limits)
        self._work.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        if self._ended:
            raise StopIteration
        try:
            message = self._work.messages.get()
        except BaseException:
            # Usually a KeyboardInterrupt, whose traceback would keep this object and the run alive.
            self.close()
            raise
        if message is None:
            self._finish()
            raise StopIteration
        return self._record(message)

    def result(self) -> Summary:
        """Wait for the end, skip unread messages, and return the summary."""
        for _ in self:
            pass
        return Summary(dict(self._eofs))

    def close(self) -> None:
        """Stop the run if it is still running, and wait until it has released everything. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._work.stop()
        if threading.current_thread() is self._work:
            return  # called by the garbage collector in the run's own thread
        for message in self._work.rest():
            self._record(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_work"):
            self.close()

    def _record(self, message: Message) -> Message:
        if isinstance(message, Eof):
            self._eofs[next(self._names)] = message
        return message

    def _finish(self) -> None:
        self._ended = True
        self._work.join()
        if self._work.failure is not None:
            raise self._work.failure


class _Spark:
    """The process's Spark, which the last of several concurrent runs stops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._unused: list[SharedSpark] = []

    @contextmanager
    def borrow(self, file: File, pipelines: Sequence[str]) -> Iterator[SharedSpark]:
        spark = wiring.shared_spark_for(file, pipelines)
        with self._lock:
            self._runs += 1
            self._unused.append(spark)
        try:
            yield spark
        finally:
            with self._lock:
                self._runs -= 1
                while self._runs == 0 and self._unused:
                    self._unused.pop().end()


_spark = _Spark()


class _Work(threading.Thread):
    """Runs the engines one after another. Holds no reference to the Run, so that deleting the Run ends it."""

    def __init__(self, file: File, names: Sequence[str], streams: Sequence[str] | None, limits: Limits) -> None:
        super().__init__(name="penstock-run", daemon=True)
        self._file, self._names, self._streams, self._limits = file, names, streams, limits
        self.messages: queue.Queue[Message | None] = queue.Queue(MAX_UNREAD_MESSAGES)
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._stopping = False

    def run(self) -> None:
        # At the end of the process, stop the run and wait for it.
        atexit.register(self._end)
        try:
            with closing(wiring.open_store(self._file)) as store, _spark.borrow(self._file, self._names) as spark:
                for name in self._names:
                    engine = wiring.assemble(
                        self._file, name, store=store, emit=partial(self._emit, name), shared_spark=spark
                    )
                    if not self._set_engine(engine):
                        break
                    engine.run(self._limits, self._streams)
        except BaseException as error:  # noqa: BLE001 (handed to the thread that iterates)
            self.failure = error
        finally:
            atexit.unregister(self._end)
            self._put(None)

    def stop(self) -> None:
        """Ask the engine to stop. Its remaining messages must be read: see `rest`."""
        with self._lock:
            self._stopping = True
            if self._engine is not None:
                self._engine.stop(signal.SIGTERM)

    def rest(self) -> Iterator[Message]:
        """The remaining messages until the end, after `stop`."""
        while True:
            alive = self.is_alive()
            try:
                message = self.messages.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if not alive:
                    return
                continue
            if message is not None:
                yield message

    def _end(self) -> None:
        self.stop()
        for _ in self.rest():
            pass  # messages at exit are dropped

    def _set_engine(self, engine: Engine) -> bool:
        """Make this the engine that `stop` stops; False if a stop was already requested."""
        with self._lock:
            self._engine = engine
            return not self._stopping

    def _emit(self, pipeline: str, message: Message) -> None:
        named = pipeline if len(self._file.pipelines) > 1 else None
        self._put(with_commands(message, self._file.path, named))

    def _put(self, message: Message | None) -> None:
        while True:
            try:
                self.messages.put(message, timeout=POLL_SECONDS)
            except queue.Full:
                continue  # the caller is slow; `rest` reads the messages after a stop
            return


def run(
    file: str | os.PathLike[str],
    *pipelines: str,
    streams: Sequence[str] | None = None,
    max_rows: int | None = None,
    time_limit: float | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Run:
    """Sync new and changed rows, exactly once; yields the messages of `penstock run --json` as objects.

    `pipelines`: all pipelines of the file by default. `time_limit` is in seconds. `overrides` are like `--set`, for
    example `{"source.schema": "sales"}`. Raises PenstockError for invalid input; later errors are messages, which
    `Run.result().raise_for_failure()` raises.
    """
    if max_rows is not None and max_rows < 1:
        raise _refused(f"max_rows must be at least 1, not {max_rows}", "omit it for no limit")
    if time_limit is not None and time_limit <= 0:
        raise _refused(f"time_limit must be greater than 0 seconds, not {time_limit}", "omit it for no limit")
    if isinstance(streams, str):
        streams = [streams]
    read = load_file(file, overrides)
    names = choose_pipelines(read, pipelines)
    if streams and len(names) > 1:
        names = [choose_pipeline(read, None, "penstock.run(file, 'PIPELINE', streams=[…])")]
    return Run(read, names, streams, Limits(max_rows, time_limit))


def sync(
    file: str | os.PathLike[str],
    *pipelines: str,
    streams: Sequence[str] | None = None,
    max_rows: int | None = None,
    time_limit: float | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Summary:
    """Run to the end and return the summary; raises RunFailed with the reason and the next step."""
    with run(file, *pipelines, streams=streams, max_rows=max_rows, time_limit=time_limit, overrides=overrides) as begun:
        return begun.result().raise_for_failure()


def _refused(what: str, next_step: str) -> InputError:
    return InputError(what, safe=UNTOUCHED, next_step=next_step)


def _reason(eof: Eof) -> str:
    """The reason of a failure: the streams' reasons if there are any."""
    streams = eof.request_progress.get("streams", [])
    errors = [f"{stream['stream']}: {stream['error']}" for stream in streams if stream["status"] == "error"]
    return "; ".join(errors) or eof.reason or eof.status


def _next_step(eof: Eof) -> str:
    streams = eof.request_progress.get("streams", [])
    steps = [stream["next_step"] for stream in streams if stream["status"] == "error" and stream["next_step"]]
    return eof.next_step or "; ".join(dict.fromkeys(steps)) or "run it again to resume"
