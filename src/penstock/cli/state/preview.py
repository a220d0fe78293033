"""Describes what a reset or undo will do: which rows are read again and what the sink will hold. Changes nothing."""

from __future__ import annotations

from contextlib import closing

from penstock import wiring
from penstock.cli.shared.render import count
from penstock.config import File
from penstock.config.pipeline_choice import require_streams
from penstock.core.marks import Mark
from penstock.core.slices import Kind
from penstock.errors import PenstockError
from penstock.ports import Keyed, Source, Store, StreamInfo, StreamState, capability, estimate


def require_stream(file: File, store: Store, pipeline: str, stream: str) -> StreamState:
    """The stream's state; InputError if neither the file nor the store has the stream."""
    states = store.streams(pipeline)
    require_streams([stream], [*file.pipelines[pipeline].source_streams, *states], pipeline)
    return states.get(stream, StreamState())


class SourcePreview:
    """What a source would deliver next, if it can be reached."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._infos: dict[str, StreamInfo] = {}
        self._error: str | None = None
        try:
            source.connect()
            self._infos = {info.name: info for info in source.catalog()}
        except PenstockError as error:
            self._error = error.what

    def info(self, stream: str) -> StreamInfo:
        """The stream as the source describes it; without a key if the source cannot be reached."""
        return self._infos.get(stream) or StreamInfo(stream, Kind.ROWS)

    def left(self, stream: str, after: Mark | None) -> str:
        """How many rows there are after a mark now, as text."""
        if self._error:
            return f"the row count is unknown: {self._error}"
        try:
            content = self._source.content(stream)
            ceiling = self._source.ceiling(stream, content, "")
            if ceiling is None:
                return "there is nothing to read now"
            rows = estimate(self._source, stream, content, after, ceiling)
        except PenstockError as error:
            return f"the row count is unknown: {error.what}"
        if rows.rows is None:
            return "the row count is unknown until they are read"
        return f"{'' if rows.exact else 'about '}{count(rows.rows, 'row')} to read now"


def describe_duplicates(file: File, pipeline: str, stream: StreamInfo) -> str:
    """What the sink will hold after rows are delivered again, as text."""
    if stream.kind is Kind.REFRESH:
        return "A full refresh replaces the previous one: no row is duplicated."
    with closing(wiring.build_sink(file, pipeline)) as sink:
        keyed = capability(sink, Keyed)
        if keyed is not None and keyed.keeps_one_row(stream):
            return "The sink keeps one row per key: rows delivered again replace the existing ones."
    return f"The {file.pipelines[pipeline].sink_type} sink appends: rows delivered again are duplicated."
