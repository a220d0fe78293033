"""Describes what a reset or undo will do: which rows are read again and what the sink will hold. Changes nothing."""

from __future__ import annotations

from contextlib import closing

from penstock import wiring
from penstock.cli.shared.render import count
from penstock.config import File
from penstock.core.marks import Mark
from penstock.core.names import suggest
from penstock.core.slices import Kind
from penstock.errors import UNTOUCHED, InputError, PenstockError
from penstock.ports import Keyed, Source, Store, StreamInfo, StreamState, capability, estimate


def require_store(file: File, verb: str) -> None:
    """Raise InputError if there is no store: these commands must not create one."""
    if missing := wiring.missing_store(file):
        raise InputError(
            f"there is no store at {missing}: no pipeline of this file has run yet, so there is nothing to {verb}",
            safe=UNTOUCHED,
            next_step="penstock run FILE",
        )


def require_stream(file: File, store: Store, pipeline: str, stream: str) -> StreamState:
    """The stream's state; InputError if neither the file nor the store has the stream."""
    states = store.streams(pipeline)
    known = dict.fromkeys([*file.pipelines[pipeline].source_streams, *states])
    if stream not in known:
        raise InputError(
            f"there is no stream '{stream}'; {suggest(stream, known, 'streams')}",
            safe=UNTOUCHED,
            next_step="list the streams: `penstock status FILE`",
            pipeline=pipeline,
        )
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
    type_ = file.pipelines[pipeline].sink_type
    how = ", under a higher slice number" if type_ == "files" else ""
    return f"The {type_} sink appends: rows delivered again are duplicated{how}."
