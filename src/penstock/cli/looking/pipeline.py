"""A pipeline looked at as a run would find it, for `check` and `plan`: no lease, no Spark, and nothing is written.

Source and sink are reached, streams validated, sink and store compared. A stream's trouble is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock import wiring
from penstock.cli.shared.pipelines import in_words
from penstock.cli.shared.standing import pipeline_document
from penstock.config import File
from penstock.config.mistakes import suggest
from penstock.core.content import Content
from penstock.core.drift import EVOLVE, followed
from penstock.core.slices import Kind
from penstock.engine import drifting
from penstock.engine.disagreement import disagreement
from penstock.errors import ConnectionFailed, InputError, PenstockError, StoreRefused, StreamRefused, filled
from penstock.ports import Budget, Sink, Source, Store, StreamInfo, StreamState

#: the run that a dry run stands for: a refresh is named after its run
DRY = "the next run"
#: asks only whether there is anything new
GLANCE = Budget(1, rows=1, look=True)


@dataclass(frozen=True, slots=True)
class Kept:
    """The store as one who only looks has it."""

    store: Store | None = None
    #: where it would be, if there is none
    missing: str | None = None
    #: why it cannot be used
    error: PenstockError | None = None


@contextmanager
def kept(file: File) -> Iterator[Kept]:
    """The file's store, if there is one; it is not made, and one that is refused is told, not raised."""
    try:
        missing = wiring.missing_store(file)
        store = wiring.open_store(file) if missing is None else None
    except (StoreRefused, ConnectionFailed) as error:
        yield Kept(error=error)
        return
    if store is None:
        yield Kept(missing=missing)
        return
    try:
        yield Kept(store)
    finally:
        store.close()


@dataclass
class Seen:
    """One stream, as a run would find it."""

    info: StreamInfo
    state: StreamState
    #: what would be read now; None: it is skipped, or refused
    content: Content | None = None
    #: why a run would refuse or stop it: all that can be seen at once
    problems: list[PenstockError] = field(default_factory=list)
    #: how its columns have changed since the last slice, and what becomes of them
    drift: list[str] = field(default_factory=list)

    @property
    def problem(self) -> PenstockError | None:
        """The first, which a run would end with."""
        return self.problems[0] if self.problems else None


@dataclass
class Look:
    """One pipeline with both sides reached."""

    file: File
    pipeline: str
    source: Source
    sink: Sink
    store: Store | None
    streams: list[Seen] = field(default_factory=list)
    #: why the sink would take none of the streams; they are looked at all the same
    refused: InputError | None = None

    def see(self, only: Sequence[str] | None) -> None:
        """Reach both sides and look at every stream; ConnectionFailed and InputError are the whole pipeline's."""
        self.sink.connect()
        self.source.connect()
        infos = self.source.catalog()
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
        self.streams = [self._seen(info) for info in infos if not only or info.name in only]

    def _seen(self, info: StreamInfo) -> Seen:
        state = self.store.state(self.pipeline, info.name) if self.store else StreamState()
        seen = Seen(info, state)
        if info.skipped is None:
            with self._telling(seen):
                self._agree(seen)
            with self._telling(seen):
                content = self._valid(seen)
                seen.content = None if seen.problems else content
        return seen

    @contextmanager
    def _telling(self, seen: Seen) -> Iterator[None]:
        """What is wrong is noted, and what does not rest on it is looked at all the same."""
        try:
            yield
        except ConnectionFailed:
            raise
        except PenstockError as error:
            others = error.others if isinstance(error, StreamRefused) else ()
            seen.problems += [each.at(pipeline=self.pipeline, stream=seen.info.name) for each in (error, *others)]

    def _agree(self, seen: Seen) -> None:
        """Sink and store must tell the same; not asked while a slice is open, which a run finishes first."""
        if seen.state.intent is not None:
            return
        held, last = self.sink.held(seen.info.name), seen.state.last
        if (held.position.id if held else None) != (last.id if last else None):
            raise disagreement(self.pipeline, seen.info.name, last, held.position if held else None)

    def _valid(self, seen: Seen) -> Content:
        name, state = seen.info.name, seen.state
        content = self.source.content(name)
        # Where it stands now is not where it goes on, if something is to be done first.
        stands = not (state.intent or state.reset_wanted)
        if stands and state.last and state.last.mark:
            with self._telling(seen):
                self.source.accept(name, state.last, content)
        content = self._followed(seen, content)
        with self._telling(seen):
            self.sink.check(seen.info, content)
        if not stands or seen.problems:
            return content
        after = state.last.mark if state.last else None
        ceiling = self.source.ceiling(name, content, DRY, after)
        if ceiling is not None:
            # For what it refuses: a cursor of `infinity`, rows that are gone by retention.
            self.source.plan(name, content, after, ceiling, GLANCE)
        return content

    def _followed(self, seen: Seen, content: Content) -> Content:
        """The content of the next slice, as the stream's policy has it."""
        intent = seen.state.intent
        last = Content.parse(intent.content) if intent else drifting.last_content(seen.state)
        keys = self.file.pipelines[self.pipeline].streams.get(seen.info.name)
        whole = seen.info.kind is Kind.REFRESH
        dropped = keys.dropped if keys else ()
        content = followed(last, content, keys.drift if keys else EVOLVE, whole=whole, dropped=dropped)
        seen.drift = [line for _, line in drifting.lines(last, content, whole=whole, dropped=dropped)]
        return content

    def standing(self) -> Mapping[str, Any] | None:
        """Who holds the pipeline and where its streams stand, as `status` has it; None: there is no store."""
        if self.store is None:
            return None
        names = [seen.info.name for seen in self.streams]
        now = wiring.SystemClock().now()
        words = in_words(self.source)
        return pipeline_document(self.store, self.pipeline, names, words=words, gone=wiring.gone, now=now, runs=0)


@contextmanager
def look(file: File, pipeline: str, kept: Kept) -> Iterator[Look]:
    """A pipeline that is not reached yet: call `see`."""
    context = wiring.context_for(file, pipeline)
    source = wiring.build_source(file, pipeline, context)
    try:
        sink = wiring.build_sink(file, pipeline, context)
        try:
            yield Look(file, pipeline, source, sink, kept.store)
        finally:
            sink.close()
    finally:
        source.close()


# ---------------------------------------------------------------- in words


def how(info: StreamInfo) -> str:
    """How a stream is read."""
    return "read whole in every run" if info.kind is Kind.REFRESH else f"by {', '.join(info.order)}"


def told(error: PenstockError | None, file: File) -> dict[str, Any] | None:
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


def holder_words(held: Mapping[str, Any] | None) -> str:
    """Who runs a pipeline."""
    if held is None:
        return "nobody is running it"
    who = f"process {held['pid']} on {held['host']}"
    return f"running in {who}" if held["state"] == "running" else f"{who} has left it; the next run takes over"


def store_words(kept: Kept, file: str) -> list[str]:
    """What is to be said of the store; nothing if it is there and fine."""
    if kept.error is not None:
        return [f"store: {kept.error.what}", f"  Next: {filled(kept.error.next_step, file)}"]
    if kept.missing is not None:
        return [f"store: there is none at {kept.missing} yet; the first run makes it"]
    return []
