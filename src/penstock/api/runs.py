"""A run from Python: an iterator of its messages. The engine works in a thread of its own, and no signal is touched."""

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
from types import TracebackType
from typing import Any, ClassVar, Self

from penstock import wiring
from penstock.api.files import loaded
from penstock.config import File
from penstock.config.choosing import chosen, only
from penstock.core.exits import worst
from penstock.core.limits import Limits
from penstock.core.messages import Eof, Message, with_commands
from penstock.engine import Engine
from penstock.errors import UNTOUCHED, InputError, PenstockError

#: messages that may wait for the caller; then the engine waits too
WAITING = 1000
#: how often an engine that waits for its caller looks up, in seconds
LOOK = 0.1


class RunFailed(PenstockError):
    """A run did not do all that it was to do. `summary` tells how far it came."""

    #: the exit code that the command would have given; set with every failure
    exit_code: ClassVar[int] = 1
    summary: Summary


@dataclass(frozen=True)
class Summary:
    """How a run of one or more pipelines ended."""

    #: the last message of each pipeline that was begun
    pipelines: Mapping[str, Eof] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """What the command would have exited with: the worst of all."""
        return worst(eof.exit_code for eof in self.pipelines.values())

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def has_more(self) -> bool:
        """Whether the same run again would move something: it stopped at a limit, was closed, or failed."""
        return any(eof.has_more for eof in self.pipelines.values())

    @property
    def rows(self) -> int:
        """Rows delivered by this run."""
        return sum(eof.request_progress.get("rows", 0) for eof in self.pipelines.values())

    @property
    def bytes(self) -> int:
        return sum(eof.request_progress.get("bytes", 0) for eof in self.pipelines.values())

    def raise_for_failure(self) -> Self:
        """RunFailed, with the first reason and its next step, unless all went well."""
        failed = [(name, eof) for name, eof in self.pipelines.items() if eof.exit_code]
        if not failed:
            return self
        name, eof = failed[0]
        error = RunFailed(_reason(eof), next_step=_next_step(eof), pipeline=name)
        error.summary = self
        raise error


class Run(Iterator[Message]):
    """The messages of a run, as they come; each pipeline ends with its Eof.

    Closing it early, by `close`, by leaving its `with`, or by letting go of it, stops the run as SIGTERM stops the
    command: the mark stays where it is, an open slice stays open, and the next run resumes it.
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
            # A KeyboardInterrupt, most likely; its traceback would keep this object, and so the run, alive.
            self.close()
            raise
        if message is None:
            self._finish()
            raise StopIteration
        return self._kept(message)

    def result(self) -> Summary:
        """How it ended; waits for the end, passing over messages that nobody has asked for."""
        for _ in self:
            pass
        return Summary(dict(self._eofs))

    def close(self) -> None:
        """Stop the run if it still goes on, and wait until it has given back what it held. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._work.stop()
        if threading.current_thread() is self._work:
            return  # let go of by the collector, in the middle of the run
        for message in self._work.rest():
            self._kept(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_work"):
            self.close()

    def _kept(self, message: Message) -> Message:
        if isinstance(message, Eof):
            self._eofs[next(self._names)] = message
        return message

    def _finish(self) -> None:
        self._ended = True
        self._work.join()
        if self._work.failure is not None:
            raise self._work.failure


class _Spark:
    """A process has one Spark: of runs that go on at the same time, the last one to end ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._kept: list[wiring.SharedSparkRuntime] = []

    @contextmanager
    def lent(self, file: File, pipelines: Sequence[str]) -> Iterator[wiring.SharedSparkRuntime]:
        kept = wiring.shared_runtime_for(file, pipelines)
        with self._lock:
            self._runs += 1
            self._kept.append(kept)
        try:
            yield kept
        finally:
            with self._lock:
                self._runs -= 1
                while self._runs == 0 and self._kept:
                    self._kept.pop().end()


_spark = _Spark()


class _Work(threading.Thread):
    """The engines, one pipeline after the other. Knows nothing of the Run, so that letting go of that ends this."""

    def __init__(self, file: File, names: Sequence[str], streams: Sequence[str] | None, limits: Limits) -> None:
        super().__init__(name="penstock-run", daemon=True)
        self._file, self._names, self._streams, self._limits = file, names, streams, limits
        self.messages: queue.Queue[Message | None] = queue.Queue(WAITING)
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._stopping = False

    def run(self) -> None:
        # At the end of the process nobody asks for messages any more: it is stopped, and given the time to.
        atexit.register(self._end)
        try:
            with closing(wiring.open_store(self._file)) as store, _spark.lent(self._file, self._names) as kept:
                for name in self._names:
                    engine = wiring.assemble(
                        self._file, name, store=store, emit=partial(self._emit, name), shared_runtime=kept
                    )
                    if not self._begins(engine):
                        break
                    engine.run(self._limits, self._streams)
        except BaseException as error:  # noqa: BLE001 (handed to the thread that iterates)
            self.failure = error
        finally:
            atexit.unregister(self._end)
            self._put(None)

    def stop(self) -> None:
        """Ask the engine to end soon. What it still says must be taken: see `rest`."""
        with self._lock:
            self._stopping = True
            if self._engine is not None:
                self._engine.stop(signal.SIGTERM)

    def rest(self) -> Iterator[Message]:
        """What it still says until it has ended, after `stop`."""
        while True:
            alive = self.is_alive()
            try:
                message = self.messages.get(timeout=LOOK)
            except queue.Empty:
                if not alive:
                    return
                continue
            if message is not None:
                yield message

    def _end(self) -> None:
        self.stop()
        for _ in self.rest():
            pass  # nobody asks any more

    def _begins(self, engine: Engine) -> bool:
        """Whether it may still begin; from now on it is this engine that is stopped."""
        with self._lock:
            self._engine = engine
            return not self._stopping

    def _emit(self, pipeline: str, message: Message) -> None:
        named = pipeline if len(self._file.pipelines) > 1 else None
        self._put(with_commands(message, self._file.path, named))

    def _put(self, message: Message | None) -> None:
        while True:
            try:
                self.messages.put(message, timeout=LOOK)
            except queue.Full:
                continue  # whoever iterates is slow; one who has stopped takes all the same
            return


def run(
    file: str | os.PathLike[str],
    *pipelines: str,
    streams: Sequence[str] | None = None,
    max_rows: int | None = None,
    time_limit: float | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Run:
    """Move what is new, exactly once; yields what `penstock run --json` prints, as `penstock.core.messages`.

    `pipelines`: all of the file by default. `time_limit` in seconds. `overrides`: as `--set`, for example
    `{"source.schema": "sales"}`. PenstockError at once for what the user wrote wrongly; what goes wrong later is said
    in the messages, and `Run.result().raise_for_failure()` raises it.
    """
    if max_rows is not None and max_rows < 1:
        raise _refused(f"max_rows must be at least 1, not {max_rows}", "leave it out for no limit")
    if time_limit is not None and time_limit <= 0:
        raise _refused(f"time_limit must be more than 0 seconds, not {time_limit}", "leave it out for no limit")
    if isinstance(streams, str):
        streams = [streams]
    read = loaded(file, overrides)
    names = chosen(read, pipelines)
    if streams and len(names) > 1:
        names = [only(read, None, "penstock.run(file, 'PIPELINE', streams=[…])")]
    return Run(read, names, streams, Limits(max_rows, time_limit))


def sync(
    file: str | os.PathLike[str],
    *pipelines: str,
    streams: Sequence[str] | None = None,
    max_rows: int | None = None,
    time_limit: float | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Summary:
    """The same as `run`, to its end: how it went, or RunFailed with the reason and the next step."""
    with run(file, *pipelines, streams=streams, max_rows=max_rows, time_limit=time_limit, overrides=overrides) as begun:
        return begun.result().raise_for_failure()


def _refused(what: str, next_step: str) -> InputError:
    return InputError(what, safe=UNTOUCHED, next_step=next_step)


def _reason(eof: Eof) -> str:
    """Why it failed: each stream's own reason where there are some."""
    streams = eof.request_progress.get("streams", [])
    errors = [f"{stream['stream']}: {stream['error']}" for stream in streams if stream["status"] == "error"]
    return "; ".join(errors) or eof.reason or eof.status


def _next_step(eof: Eof) -> str:
    streams = eof.request_progress.get("streams", [])
    steps = [stream["next_step"] for stream in streams if stream["status"] == "error" and stream["next_step"]]
    return eof.next_step or "; ".join(dict.fromkeys(steps)) or "run it again; it resumes where it stood"
