"""What setting a stream back brings: what is read again, and what the sink then holds. Nothing is changed here."""

from __future__ import annotations

from contextlib import closing

from penstock import wiring
from penstock.cli.shared.render import count
from penstock.config import File
from penstock.config.mistakes import suggest
from penstock.core.marks import Mark
from penstock.core.slices import Kind
from penstock.errors import UNTOUCHED, InputError, PenstockError
from penstock.ports import Keyed, Source, Store, StreamInfo, StreamState, capability, estimate


def must_have_store(file: File, verb: str) -> None:
    """InputError if nothing has run yet: one who only sets back must not make a store."""
    if missing := wiring.missing_store(file):
        raise InputError(
            f"there is no store at {missing}: nothing has run here yet, so there is nothing to {verb}",
            safe=UNTOUCHED,
            next_step="penstock run FILE",
        )


def must_be_known(file: File, store: Store, pipeline: str, stream: str) -> StreamState:
    """The stream as the store knows it; InputError if neither the file nor the store has it."""
    states = store.streams(pipeline)
    known = dict.fromkeys([*file.pipelines[pipeline].source_streams, *states])
    if stream not in known:
        raise InputError(
            f"no stream '{stream}' is known; {suggest(stream, known, 'streams')}",
            safe=UNTOUCHED,
            next_step="`penstock status FILE` lists them",
            pipeline=pipeline,
        )
    return states.get(stream, StreamState())


class Reached:
    """A source that is asked what lies ahead, if it can be reached."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._infos: dict[str, StreamInfo] = {}
        self._trouble: str | None = None
        try:
            source.connect()
            self._infos = {info.name: info for info in source.catalog()}
        except PenstockError as error:
            self._trouble = error.what

    def info(self, stream: str) -> StreamInfo:
        """The stream as the source has it; without a key if the source cannot be asked now."""
        return self._infos.get(stream) or StreamInfo(stream, Kind.ROWS)

    def left(self, stream: str, after: Mark | None) -> str:
        """How much lies after a place now, in words."""
        if self._trouble:
            return f"how many rows that is cannot be told now: {self._trouble}"
        try:
            content = self._source.content(stream)
            ceiling = self._source.ceiling(stream, content, "")
            if ceiling is None:
                return "there is nothing to read now"
            rows = estimate(self._source, stream, content, after, ceiling)
        except PenstockError as error:
            return f"how many rows that is cannot be told now: {error.what}"
        if rows.rows is None:
            return "how many rows that is nobody knows before they are read"
        return f"{'' if rows.exact else 'about '}{count(rows.rows, 'row')} to read now"


def held_twice(file: File, pipeline: str, stream: StreamInfo) -> str:
    """What the sink will hold once rows have come again, in words."""
    if stream.kind is Kind.REFRESH:
        return "A full refresh takes the place of the one before: nothing is there twice."
    with closing(wiring.build_sink(file, pipeline)) as sink:
        keyed = capability(sink, Keyed)
        if keyed is not None and keyed.keeps_one_row(stream):
            return "The sink keeps one row for each key: rows that come again take the place of what is there."
    type_ = file.pipelines[pipeline].sink_type
    how = ", under a higher slice number" if type_ == "files" else ""
    return f"The {type_} sink adds: rows that come again are there twice{how}."
