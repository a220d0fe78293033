"""Inspects a pipeline for `check` and `plan` without a lease, without Spark and without writing anything.

Connects to source and sink, validates every stream and compares the sink with the store. A problem of one stream does
not stop the inspection of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock import wiring
from penstock.cli.shared.engine_run import mark_describer
from penstock.cli.shared.render import print_json
from penstock.cli.shared.status_document import pipeline_document
from penstock.config import File
from penstock.config.pipeline_choice import choose_pipelines
from penstock.core.content import Content
from penstock.core.drift import EVOLVE
from penstock.core.exits import worst
from penstock.core.marks import Position
from penstock.core.names import suggest
from penstock.core.slices import Kind
from penstock.engine import drifting
from penstock.engine.look import Look, content_before, keep_delivered
from penstock.errors import ConnectionFailed, InputError, PenstockError, StoreRefused, filled
from penstock.links.processes import has_ended
from penstock.ports import Budget, Sink, Source, Spools, Store, StreamInfo, StreamState

#: stands for the id of the next run: a full refresh is identified by its run
DRY_RUN_ID = "the next run"
#: enough to find out whether there is anything new
PROBE_BUDGET = Budget(1, rows=1, look=True)


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """The store of a file, opened only if it exists."""

    store: Store | None = None
    #: where the first run would create it; None if it exists
    missing: str | None = None
    #: why it cannot be used
    error: PenstockError | None = None


@contextmanager
def open_existing_store(file: File) -> Iterator[StoreAccess]:
    """Open the file's store if it exists. A refused store is returned as an error, not raised."""
    try:
        missing = wiring.missing_store(file)
        store = wiring.open_store(file) if missing is None else None
    except (StoreRefused, ConnectionFailed) as error:
        yield StoreAccess(error=error)
        return
    if store is None:
        yield StoreAccess(missing=missing)
        return
    try:
        yield StoreAccess(store)
    finally:
        store.close()


@dataclass
class StreamInspection:
    """One stream as the next run would find it."""

    look: Look
    state: StreamState
    #: every problem for which a run would refuse or stop the stream
    problems: list[PenstockError] = field(default_factory=list)
    #: how its columns have changed since the last slice, and what happens to them
    drift: list[str] = field(default_factory=list)

    @property
    def info(self) -> StreamInfo:
        return self.look.info

    @property
    def content(self) -> Content | None:
        """The content that would be read now; None if the stream is skipped or has a problem."""
        return None if self.problems else self.look.content

    @property
    def problem(self) -> PenstockError | None:
        """The first problem, which is the one a run would report."""
        return self.problems[0] if self.problems else None


@dataclass
class PipelineInspection:
    """One pipeline with its source, sink and store."""

    file: File
    pipeline: str
    source: Source
    sink: Sink
    store: Store | None
    spools: Spools
    streams: list[StreamInspection] = field(default_factory=list)
    #: why the sink refuses all streams; they are inspected anyway
    refused: InputError | None = None

    def inspect(self, only: Sequence[str] | None) -> None:
        """Connect both sides and inspect every stream. Raises ConnectionFailed or InputError for the whole pipeline."""
        self.sink.connect()
        self.source.connect()
        infos = [keep_delivered(info, self._state(info.name)) for info in self.source.catalog()]
        known = [info.name for info in infos]
        for name in only or ():
            if name not in known:
                raise InputError(
                    f"there is no stream '{name}'; {suggest(name, known, 'streams')}",
                    next_step="name one of the pipeline's streams; `penstock discover FILE` lists them",
                    pipeline=self.pipeline,
                )
        try:
            self.sink.begin_run([info for info in infos if info.skipped is None])
        except InputError as error:
            self.refused = error
        self.streams = [self._inspect_stream(info) for info in infos if not only or info.name in only]

    def _state(self, stream: str) -> StreamState:
        return self.store.state(self.pipeline, stream) if self.store else StreamState()

    def _inspect_stream(self, info: StreamInfo) -> StreamInspection:
        state = self._state(info.name)
        keys = self.file.pipelines[self.pipeline].streams.get(info.name)
        drift, dropped = (keys.drift, keys.dropped) if keys else (EVOLVE, ())
        look = Look(
            self.pipeline,
            info,
            self.source,
            self.sink,
            DRY_RUN_ID,
            drift=drift,
            dropped_columns=dropped,
            spools=self.spools,
        )
        stream = StreamInspection(look, state)
        if info.skipped is None:
            look.look(state, PROBE_BUDGET, stream.problems)
            if look.content is not None:
                before, whole = content_before(state), look.replaces_all
                lines = drifting.lines(before, look.content, whole=whole, dropped=dropped)
                stream.drift = [line for _, line in lines]
        return stream

    def status(self) -> Mapping[str, Any] | None:
        """The pipeline's status document, as `penstock status` prints it; None if there is no store."""
        if self.store is None:
            return None
        names = [stream.info.name for stream in self.streams]
        now = wiring.SystemClock().now()
        return pipeline_document(
            self.store,
            self.pipeline,
            names,
            describe_mark=mark_describer(self.source),
            gone=has_ended,
            now=now,
            runs=0,
        )


@contextmanager
def inspection_of(file: File, pipeline: str, access: StoreAccess) -> Iterator[PipelineInspection]:
    """Build a pipeline's source and sink, and close them at the end; call `inspect` to connect."""
    known = access.store

    def last_position(stream: str) -> Position | None:
        return known.state(pipeline, stream).last if known else None

    context = wiring.context_for(file, pipeline, last_position=last_position)
    source = wiring.build_source(file, pipeline, context)
    try:
        sink = wiring.build_sink(file, pipeline, context)
        try:
            yield PipelineInspection(file, pipeline, source, sink, access.store, context.spools)
        finally:
            sink.close()
    finally:
        source.close()


def print_report(
    path: str,
    sets: Sequence[str] | None,
    pipelines: Sequence[str] | None,
    document: Callable[[PipelineInspection], dict[str, Any]],
    text: Callable[[Mapping[str, Any]], Sequence[str]],
    ending: Callable[[File, int], Sequence[str]] = lambda _file, _code: (),
    *,
    as_json: bool,
) -> int:
    """Print a document for each pipeline, then the store's problems, and return the exit code a run would end with."""
    file = wiring.load(path, sets or ())
    names = choose_pipelines(file, pipelines)
    with open_existing_store(file) as store:
        documents = []
        for name in names:
            with inspection_of(file, name, store) as at:
                documents.append(document(at))
            if not as_json:
                print("\n".join(text(documents[-1])), flush=True)
        code = worst([*(each["exit_code"] for each in documents), *([store.error.exit_code] if store.error else [])])
        if as_json:
            about = {"missing": store.missing, "problem": problem_document(store.error, file)}
            print_json({"file": file.path, "exit_code": code, "store": about, "pipelines": documents}, indent=2)
        elif last := [*describe_store(store, file.path), *ending(file, code)]:
            print("\n".join(last))
    return code


# ---------------------------------------------------------------- text


def describe_reading(info: StreamInfo) -> str:
    """How a stream is read."""
    if info.kind is Kind.REFRESH:
        return "full refresh in every run"
    return f"by {', '.join(info.order)}" if info.order else "what has arrived since the last run"


def problem_document(error: PenstockError | None, file: File) -> dict[str, Any] | None:
    """An error as a document."""
    if error is None:
        return None
    return {
        "what": error.what,
        "safe": error.safe,
        "next_step": filled(
            error.next_step, file.path, error.pipeline if len(file.pipelines) > 1 else None, error.stream
        ),
        "exit_code": error.exit_code,
    }


def describe_holder(held: Mapping[str, Any] | None) -> str:
    """Which process runs a pipeline."""
    if held is None:
        return "not running"
    who = f"process {held['pid']} on {held['host']}"
    return (
        f"running in {who}"
        if held["state"] == "running"
        else f"{who} ended without releasing it; the next run takes over"
    )


def describe_store(access: StoreAccess, file: str) -> list[str]:
    """Lines about a store that is missing or refused; none if it can be used."""
    if access.error is not None:
        return [f"store: {access.error.what}", f"  Next: {filled(access.error.next_step, file)}"]
    if access.missing is not None:
        return [f"store: none at {access.missing} yet; the first run creates it"]
    return []
