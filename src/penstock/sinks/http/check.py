"""Check, before a slice is planned, whether a stream can be sent. Does not import Arrow."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind
from penstock.errors import StreamRefused
from penstock.links.http import protocol
from penstock.ports import StreamInfo
from penstock.sinks.http.options import Options, StreamOptions
from penstock.sinks.http.receiver import bounds_of

#: characters that a mark is assumed to have at most
_MARK_CHARACTERS = 4096


def find_problems(
    stream: StreamInfo, content: Content, options: Options, stream_options: StreamOptions
) -> Iterator[StreamRefused]:
    """Everything that prevents the stream from being sent."""
    if stream.kind is Kind.REFRESH:
        yield StreamRefused(
            "a full refresh cannot be sent over HTTP: the receiver appends rows, and those of the refresh before would "
            "stay beside them",
            next_step="give the stream a cursor, or leave it out of this pipeline",
            stream=stream.name,
        )
    if content.changes and stream_options.deletes == "refuse":
        yield StreamRefused(
            "the stream may contain deletes, and `deletes: refuse` is set",
            next_step="set `deletes: include`, and let the receiver read `_change`; or send a stream without deletes",
            stream=stream.name,
        )
    if options.protocol == "penstock" and not _fits(content):
        yield StreamRefused(
            f"the stream's columns do not fit into the {protocol.MOST_BOUNDS} characters of the header by which the "
            "receiver remembers the slice",
            next_step="select fewer columns, or send them as one column of JSON",
            stream=stream.name,
        )


def _fits(content: Content) -> bool:
    """Whether the bounds of a slice with this content can be sent."""
    mark = Mark("x" * _MARK_CHARACTERS)
    try:
        protocol.encode_bounds(bounds_of(Position(1, "0" * 64, mark, content.text), 0, 0))
    except ValueError:
        return False
    return True
