"""The composition root: the only place where concrete things are chosen.

Every import of a driver, a store or Spark is inside a function: a command pays for what it uses.
`penstock.testing` replaces `make_probe` and `make_mover` before it calls the command.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.errors import PenstockError
from penstock.ports import (
    Context,
    Mover,
    NoProbe,
    NoSpark,
    Owner,
    Probe,
    Reader,
    Report,
    Sink,
    Source,
    Store,
    Writer,
    is_never_cancelled,
    report_nothing,
    say_nothing,
)

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.core.messages import Message
    from penstock.core.slices import Part, Receipt
    from penstock.engine import Engine
    from penstock.links.spark import Needs, SparkHouse
    from penstock.links.spools import FolderSpools


def _spark_mover(house: SparkHouse) -> Mover:
    from penstock.links.spark import SparkMover

    return SparkMover(house)


#: what crash points are reported to
make_probe: Callable[[], Probe] = NoProbe
#: what moves rows, on the process's Spark session; called when the first row must move
make_mover: Callable[[SparkHouse], Mover] = _spark_mover


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        return time.monotonic()


def load(path: str, sets: Sequence[str] = ()) -> File:
    """Read a pipeline file with the built-in sources and sinks and this process's environment.

    `sets` are overrides as the command line gives them: `source.schema=sales`.
    """
    from penstock import config, sinks, sources

    return config.load(path, environment=os.environ, sources=sources, sinks=sinks, sets=sets)


def open_store(file: File) -> Store:
    """The file's store, made if it is not there."""
    from penstock.store import open_store

    return open_store(file.store, folder=file.folder, limits=file.history)


def missing_store(file: File) -> str | None:
    """Where the store would be, in words, if there is none: one who only looks must not make it."""
    from penstock.store import missing_store

    return missing_store(file.store, folder=file.folder)


def store_address(file: File) -> str:
    """Where the file's store is, without a password, in one spelling."""
    from penstock.store import store_address

    return store_address(file.store, folder=file.folder)


def store_path(file: File) -> str | None:
    """The path of the file's store; None: it is not kept in a file."""
    from penstock.store import store_path

    return store_path(file.store, folder=file.folder)


class Hands:
    """What rows are moved and tables rewritten with: one Spark session and the mover on it.

    Each is made when it is first used; both are given up and ended together.
    """

    def __init__(self, spark: SparkHouse) -> None:
        self.spark = spark
        self._mover: Mover | None = None

    @property
    def workers(self) -> int:
        return self.spark.workers

    def begin(self) -> None:
        self._made().begin()

    def warm(self) -> None:
        self._made().warm()

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        return self._made().move(reader, writer, parts)

    def cancel(self) -> None:
        if self._mover is not None:
            self._mover.cancel()
        self.spark.cancel()

    def close(self) -> None:
        if self._mover is not None:
            self._mover.close()
        self.spark.close()

    def _made(self) -> Mover:
        if self._mover is None:
            self._mover = make_mover(self.spark)
        return self._mover


class Kept(Hands):
    """Hands whose Spark outlives the engines that use it: only `end` ends it."""

    def lend(self, begins: Callable[[], object], ready: Callable[[], object]) -> Hands:
        """Hands for one engine, on this Spark: giving them up concerns that engine alone."""
        from penstock.links.spark import SparkHouse

        return Hands(SparkHouse(self.spark.options, begins=begins, ready=ready, shared=self.spark.shared))

    def close(self) -> None:
        return None

    def end(self) -> None:
        self.spark.shared.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def hands_for(
    file: File, begins: Callable[[], object] = lambda: None, ready: Callable[[], object] = lambda: None
) -> Hands:
    """The file's Spark and a mover on it, for whoever works without an engine; to be closed by them.

    `begins` is called before the session is started, `ready` once it runs.
    """
    from penstock.links.spark import SparkHouse, SparkOptions

    return Hands(SparkHouse(SparkOptions(**file.spark.model_dump(exclude={"keep_warm"})), begins=begins, ready=ready))


def kept_for(file: File, pipelines: Sequence[str]) -> Kept:
    """The file's Spark for several of its pipelines, one after the other; to be ended by the caller.

    Started for one of them, it has what the others will need.
    """
    from penstock.links.spark import SharedSpark, SparkHouse, SparkOptions

    options = SparkOptions(**file.spark.model_dump(exclude={"keep_warm"}))
    shared = SharedSpark(options, ahead=lambda: needs_of(file, pipelines if len(pipelines) > 1 else ()))
    return Kept(SparkHouse(options, shared=shared))


def needs_of(file: File, pipelines: Sequence[str]) -> Iterator[Needs]:
    """What each pipeline's source and sink need of Spark. One that cannot be built says so in its own turn."""
    from penstock.links.spark import Needs

    for pipeline in pipelines:
        collected = _Collected()
        context = Context(pipeline=pipeline, folder=file.folder, probe=NoProbe(), spark=collected)
        with suppress(PenstockError):
            build_source(file, pipeline, context)
            build_sink(file, pipeline, context)
        for settings, packages in collected.said:
            yield Needs(settings, packages)


class _Collected(NoSpark):
    """What sources and sinks say that they need of Spark, without any."""

    def __init__(self) -> None:
        self.said: list[tuple[Mapping[str, str], Sequence[str]]] = []

    def needs(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        self.said.append((settings, packages))


def context_for(
    file: File,
    pipeline: str,
    *,
    hands: Hands | None = None,
    mover: Callable[[], Mover] | None = None,
    probe: Probe | None = None,
    say: Callable[[str, str], None] = say_nothing,
    report: Report = report_nothing,
    is_cancelled: Callable[[], bool] = is_never_cancelled,
) -> Context:
    """What a pipeline's source and sink are built with. Without hands they get some that only they know of."""
    chosen = hands or hands_for(file)
    return Context(
        pipeline=pipeline,
        folder=file.folder,
        probe=probe or make_probe(),
        spark=chosen.spark,
        mover=mover or (lambda: chosen),
        say=say,
        report=report,
        is_cancelled=is_cancelled,
        spools=spools_for(file, pipeline),
    )


def spools_for(file: File, pipeline: str) -> FolderSpools:
    """The pipeline's folder for spools; made when something is put there."""
    from penstock.links.spools import FolderSpools

    return FolderSpools(os.path.join(file.folder, file.pipelines[pipeline].spools), pipeline)


def build_source(file: File, pipeline: str, context: Context | None = None) -> Source:
    """A pipeline's source with all that becomes of its columns on their way, not yet connected."""
    from penstock.shaping.drifting import Drifting
    from penstock.shaping.source import Shaped

    streams = file.pipelines[pipeline].streams
    shapes = {name: stream.shape for name, stream in streams.items() if stream.shape is not None}
    # Also without any shape: a slice that was begun with one is finished with it. Drift is outermost: it is what
    # arrives at the sink that drifts.
    return Drifting(Shaped(bare_source(file, pipeline, context), shapes))


def bare_source(file: File, pipeline: str, context: Context | None = None) -> Source:
    """A pipeline's source itself, not yet connected."""
    from penstock import sources

    chosen = file.pipelines[pipeline]
    context = context or context_for(file, pipeline)
    source: Source = sources.load(chosen.source_type).build(chosen.source, chosen.source_streams, context)
    return source


def build_sink(file: File, pipeline: str, context: Context | None = None) -> Sink:
    """A pipeline's sink, not yet connected."""
    from penstock import sinks

    chosen = file.pipelines[pipeline]
    context = context or context_for(file, pipeline)
    sink: Sink = sinks.load(chosen.sink_type).build(chosen.sink, chosen.sink_streams, context)
    return sink


def assemble(
    file: File, pipeline: str, *, store: Store, emit: Callable[[Message], None], kept: Kept | None = None
) -> Engine:
    """A pipeline's engine. It closes its source, sink and mover; whoever opened the store closes that.

    With `kept` hands several engines, one after the other, share one Spark; whoever keeps them ends them.
    """
    from penstock.engine import Engine, Settings

    def begins() -> None:
        engine.report_mover_starting("Spark")

    def ready() -> None:
        engine.report_mover_ready("Spark")

    hands = kept.lend(begins, ready) if kept is not None else hands_for(file, begins=begins, ready=ready)
    context = context_for(
        file,
        pipeline,
        hands=hands,
        mover=lambda: engine.mover(),
        say=lambda stream, text: engine.report_line(stream, text),
        report=lambda stream, doing, *, done=None, total=None: engine.report_work(
            stream, doing, done=done, total=total
        ),
        is_cancelled=lambda: engine.is_cancelled(),
    )
    chosen = file.pipelines[pipeline]
    engine: Engine = Engine(
        pipeline,
        source=build_source(file, pipeline, context),
        sink=build_sink(file, pipeline, context),
        store=store,
        mover=lambda: hands,
        clock=SystemClock(),
        probe=context.probe,
        owner=this_process(),
        gone=gone,
        emit=emit,
        spools=context.spools,
        settings=Settings(
            lease_seconds=chosen.lease_seconds,
            slice_bytes=chosen.slice_bytes,
            workers=lambda: hands.workers,
            drift={name: stream.drift for name, stream in chosen.streams.items()},
            dropped_columns={name: stream.dropped for name, stream in chosen.streams.items()},
        ),
    )
    engine.mover()  # whoever uses it first, source, sink or gate: the engine gives it up at a signal and ends it
    return engine


# ---------------------------------------------------------------- processes


def this_process() -> Owner:
    """This process, as others can recognise it."""
    pid = os.getpid()
    return Owner(
        token=secrets.token_hex(16),
        host=socket.gethostname(),
        pid=pid,
        boot=_boot(),
        started=_started(pid) or "",
    )


def gone(owner: Owner) -> bool:
    """Whether a process has ended for certain. Never a guess: False where this machine cannot know."""
    if not owner.boot or not owner.started or owner.boot != _boot():
        return False
    try:
        # Asked of the kernel: /proc may be mounted so that it hides the processes of others.
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    started = _started(owner.pid)
    return started is not None and (started != owner.started or _has_ended(owner.pid))


def _boot() -> str:
    """This boot of this machine and this process namespace, or "" where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _has_ended(pid: int) -> bool:
    """Whether a process runs no code any more, and only its parent has not asked for its exit status yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False  # it has just been asked for, or is hidden
    # Its first thread may have ended before the others.
    return stat.rpartition(")")[2].split()[0] == "Z" and len(threads) == 1


def _started(pid: int) -> str | None:
    """When a process started, in ticks since boot."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in brackets, may hold anything. The start time is field 22; what follows the name is field 3.
    return stat.rpartition(")")[2].split()[19]
