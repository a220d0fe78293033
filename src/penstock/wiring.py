"""The composition root: the only place that chooses concrete classes.

Drivers, stores and Spark are imported inside functions, so that a command imports only what it uses.
Tests replace `make_probe` and `make_mover` before they call the command.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.links.processes import has_ended, this_process
from penstock.ports import (
    Context,
    Mover,
    NoProbe,
    NoSpark,
    Origin,
    Probe,
    Report,
    Sink,
    Source,
    Store,
    is_never_cancelled,
    no_mark,
    no_origin,
    no_position,
    report_nothing,
    say_nothing,
)

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.core.marks import Mark, Position
    from penstock.core.messages import Message
    from penstock.core.slices import Slice
    from penstock.engine import Engine
    from penstock.links.spark import SharedSpark, SparkOptions, SparkRequirements, SparkSessionProvider
    from penstock.links.spark.runtime import SparkRuntime
    from penstock.links.spools import FolderSpools


def _spark_mover(provider: SparkSessionProvider) -> Mover:
    from penstock.links.spark import SparkMover

    return SparkMover(provider)


#: receives crash points
make_probe: Callable[[], Probe] = NoProbe
#: builds the mover on the process's Spark session when the first rows must move
make_mover: Callable[[SparkSessionProvider], Mover] = _spark_mover


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        return time.monotonic()


def load(path: str, sets: Sequence[str] = ()) -> File:
    """Read a pipeline file with the built-in sources and sinks and this process's environment.

    `sets` are overrides as on the command line: `source.schema=sales`.
    """
    from penstock import config, sinks, sources

    return config.load(path, environment=os.environ, sources=sources, sinks=sinks, sets=sets)


def open_store(file: File) -> Store:
    """Open the file's store, and create it if it does not exist."""
    from penstock.store import open_store

    return open_store(file.store, folder=file.folder, limits=file.history)


def missing_store(file: File) -> str | None:
    """The location of a store that does not exist; None if it exists. Read-only commands must not create it."""
    from penstock.store import missing_store

    return missing_store(file.store, folder=file.folder)


def store_address(file: File) -> str:
    """The normalized address of the file's store, without a password."""
    from penstock.store import store_address

    return store_address(file.store, folder=file.folder)


def store_path(file: File) -> str | None:
    """The path of the file's store; None if it is not a file."""
    from penstock.store import store_path

    return store_path(file.store, folder=file.folder)


def runtime_for(
    file: File,
    on_start: Callable[[], object] = lambda: None,
    on_ready: Callable[[], object] = lambda: None,
    shared: SharedSpark | None = None,
) -> SparkRuntime:
    """A runtime with the file's Spark settings; the caller closes it. Closing it does not end a `shared` Spark.

    `on_start` is called before the session is started, `on_ready` when it runs.
    """
    from penstock.links.spark import SparkSessionProvider
    from penstock.links.spark.runtime import SparkRuntime

    return SparkRuntime(
        SparkSessionProvider(_spark_options(file), on_start=on_start, on_ready=on_ready, shared=shared), make_mover
    )


def shared_spark_for(file: File, pipelines: Sequence[str]) -> SharedSpark:
    """A Spark for several pipelines of a file, with what each of them needs; the caller ends it."""
    from penstock.links.spark import SharedSpark

    return SharedSpark(
        _spark_options(file), upcoming=lambda: requirements_of(file, pipelines if len(pipelines) > 1 else ())
    )


def _spark_options(file: File) -> SparkOptions:
    from penstock.links.spark import SparkOptions

    return SparkOptions(**file.spark.model_dump(exclude={"keep_warm"}))


def requirements_of(file: File, pipelines: Sequence[str]) -> Iterator[SparkRequirements]:
    """What each pipeline's source and sink need from Spark; one that cannot be built is reported in its own run."""
    from penstock.links.spark import SparkRequirements

    for pipeline in pipelines:
        collected = _RequirementsCollector()
        context = Context(pipeline=pipeline, folder=file.folder, probe=NoProbe(), spark=collected)
        with suppress(PenstockError):
            build_source(file, pipeline, context)
            build_sink(file, pipeline, context)
        for settings, packages in collected.requests:
            yield SparkRequirements(settings, packages)


class _RequirementsCollector(NoSpark):
    """Collects what sources and sinks need from Spark, without starting it."""

    def __init__(self) -> None:
        self.requests: list[tuple[Mapping[str, str], Sequence[str]]] = []

    def require(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        self.requests.append((settings, packages))


def context_for(
    file: File,
    pipeline: str,
    *,
    runtime: SparkRuntime | None = None,
    mover: Callable[[], Mover] | None = None,
    probe: Probe | None = None,
    say: Callable[[str, str], None] = say_nothing,
    report: Report = report_nothing,
    is_cancelled: Callable[[], bool] = is_never_cancelled,
    warn: Callable[[str, str], None] = say_nothing,
    last_mark: Callable[[str], Mark | None] = no_mark,
    last_position: Callable[[str], Position | None] = no_position,
    origin: Callable[[Slice], Origin] = no_origin,
) -> Context:
    """The context of a pipeline's source and sink; without a runtime they get one of their own."""
    chosen = runtime or runtime_for(file)
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
        warn=warn,
        last_mark=last_mark,
        last_position=last_position,
        origin=origin,
    )


def spools_for(file: File, pipeline: str) -> FolderSpools:
    """The pipeline's folder for spools; made when something is put there."""
    from penstock.links.spools import FolderSpools

    return FolderSpools(os.path.join(file.folder, file.pipelines[pipeline].spools), pipeline)


def build_source(file: File, pipeline: str, context: Context | None = None) -> Source:
    """A pipeline's source with its shape and drift policy, not yet connected."""
    from penstock.shaping.source import ShapedSource

    streams = file.pipelines[pipeline].streams
    shapes = {name: stream.shape for name, stream in streams.items() if stream.shape is not None}
    # Wrapped even without a shape: an open slice that was begun with one is finished with it.
    return ShapedSource(bare_source(file, pipeline, context), shapes)


def bare_source(file: File, pipeline: str, context: Context | None = None) -> Source:
    """A pipeline's source without shape and drift policy, not yet connected."""
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
    file: File,
    pipeline: str,
    *,
    store: Store,
    emit: Callable[[Message], None],
    shared_spark: SharedSpark | None = None,
) -> Engine:
    """A pipeline's engine. It closes its source, sink and mover; the caller closes the store.

    With `shared_spark`, several engines share one Spark, which the caller ends.
    """
    from penstock.engine import Engine, Settings

    def on_start() -> None:
        engine.report_mover_starting("Spark")

    def on_ready() -> None:
        engine.report_mover_ready("Spark")

    runtime = runtime_for(file, on_start=on_start, on_ready=on_ready, shared=shared_spark)
    context = context_for(
        file,
        pipeline,
        runtime=runtime,
        mover=lambda: engine.mover(),
        say=lambda stream, text: engine.report_line(stream, text),
        report=lambda stream, doing, *, done=None, total=None, fetched=None: engine.report_work(
            stream, doing, done=done, total=total, fetched=fetched
        ),
        is_cancelled=lambda: engine.is_cancelled(),
        warn=lambda stream, text: engine.report_warning(stream, text),
        last_mark=lambda stream: engine.last_mark(stream),
        last_position=lambda stream: engine.last_position(stream),
        origin=lambda slice_: engine.origin(slice_),
    )
    chosen = file.pipelines[pipeline]
    engine: Engine = Engine(
        pipeline,
        source=build_source(file, pipeline, context),
        sink=build_sink(file, pipeline, context),
        store=store,
        mover=lambda: runtime,
        clock=SystemClock(),
        probe=context.probe,
        owner=this_process(),
        gone=has_ended,
        emit=emit,
        spools=context.spools,
        settings=Settings(
            lease_seconds=chosen.lease_seconds,
            slice_bytes=chosen.slice_bytes,
            workers=lambda: runtime.workers,
            drift={name: stream.drift for name, stream in chosen.streams.items()},
            dropped_columns={name: stream.dropped for name, stream in chosen.streams.items()},
        ),
    )
    engine.mover()  # created here, so that the engine cancels it at a signal and closes it
    return engine
