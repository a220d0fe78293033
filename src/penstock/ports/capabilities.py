"""Asks a source or sink for a capability, and says what happens where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.errors import UNTOUCHED, InputError, StreamRefused
from penstock.ports.sink import ExplainingSink, Recovering, Sink
from penstock.ports.source import (
    Continuing,
    DiscoveredStream,
    Discovering,
    Estimating,
    ExplainingSource,
    Remaining,
    Remark,
    Rewinding,
    Source,
    StreamInfo,
)

Capability = TypeVar("Capability")


@runtime_checkable
class Wrapping(Protocol):
    """A source around another one. It has the methods of every capability, so isinstance cannot be asked of it."""

    def has_capability(self, wanted: type[Any]) -> bool:
        """Return whether the source inside has it, or the wrapper adds it."""
        ...


def has_capability(part: object, wanted: type[Any]) -> bool:
    """Return whether a source or sink has a capability, also where it is wrapped."""
    return part.has_capability(wanted) if isinstance(part, Wrapping) else isinstance(part, wanted)


def capability(part: object, wanted: type[Capability]) -> Capability | None:
    """Return the source or sink as an object with this capability; None: it does not have it."""
    return part if has_capability(part, wanted) else None  # type: ignore[return-value]  # just checked


def discover(source: Source) -> Sequence[DiscoveredStream]:
    """List every stream that the source could give; InputError if it cannot list them."""
    discovering = capability(source, Discovering)
    if discovering is None:
        raise InputError(
            "this source cannot list what it could give",
            safe=UNTOUCHED,
            next_step="name its streams under `streams` of the pipeline",
        )
    return discovering.discover()


def estimate(source: Source, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
    """Estimate the rows left in a run; unknown where the source cannot."""
    estimating = capability(source, Estimating)
    return estimating.remaining(stream, content, after, ceiling) if estimating else Remaining(None)


def find_mark(source: Source, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
    """Return the mark for a place that a user names; StreamRefused if the source has no such places."""
    rewinding = capability(source, Rewinding)
    if rewinding is None:
        raise StreamRefused(
            "this source cannot go back to a place by its name",
            next_step=f"`penstock state reset FILE --stream {stream}` reads it again from the beginning",
            stream=stream,
        )
    return rewinding.mark_at(stream, content, last, to)


def find_mark_behind(source: Source, stream: str, content: Content, key: Sequence[str]) -> Mark:
    """Return the mark from which to go on after another program; StreamRefused if the source cannot."""
    continuing = capability(source, Continuing)
    if continuing is None:
        raise StreamRefused(
            "this source cannot go on from where another program stopped",
            next_step="leave the stream out: its first run reads it from the beginning",
            stream=stream,
        )
    return continuing.mark_behind(stream, content, key)


def explain_source(source: Source, stream: str, content: Content) -> Sequence[Remark]:
    """Return the remarks of the source on a stream."""
    explaining = capability(source, ExplainingSource)
    return explaining.explain(stream, content) if explaining else ()


def explain_sink(sink: Sink, stream: StreamInfo, content: Content) -> Sequence[Remark]:
    """Return the remarks of the sink on a stream."""
    explaining = capability(sink, ExplainingSink)
    return explaining.explain(stream, content) if explaining else ()


def recover_sink(sink: Sink, stream: str) -> Sequence[str]:
    """Make the sink whole; return a line for each thing that was withdrawn."""
    recovering = capability(sink, Recovering)
    return recovering.recover(stream) if recovering else ()
