"""What setting a stream back brings: what is read again, and what the sink then holds. Nothing is changed here."""

from __future__ import annotations

from penstock import wiring
from penstock.cli.shared.render import count
from penstock.config import File
from penstock.config.mistakes import suggest
from penstock.core.marks import Mark
from penstock.core.slices import Kind
from penstock.errors import UNTOUCHED, InputError, PenstockError
from penstock.ports import Source, Store, StreamState


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
        self._kinds: dict[str, Kind] = {}
        self._trouble: str | None = None
        try:
            source.connect()
            self._kinds = {info.name: info.kind for info in source.catalog()}
        except PenstockError as error:
            self._trouble = error.what

    def kind(self, stream: str) -> Kind | None:
        """How the stream is read; None: the source cannot be asked now."""
        return self._kinds.get(stream)

    def left(self, stream: str, after: Mark | None) -> str:
        """How much lies after a place now, in words."""
        if self._trouble:
            return f"how many rows that is cannot be told now: {self._trouble}"
        try:
            content = self._source.content(stream)
            ceiling = self._source.ceiling(stream, content, "")
            if ceiling is None:
                return "there is nothing to read now"
            rows = self._source.left(stream, content, after, ceiling)
        except PenstockError as error:
            return f"how many rows that is cannot be told now: {error.what}"
        if rows.rows is None:
            return "how many rows that is nobody knows before they are read"
        return f"{'' if rows.exact else 'about '}{count(rows.rows, 'row')} to read now"


def held_twice(file: File, pipeline: str, stream: str, kind: Kind | None) -> str:
    """What the sink will hold once rows have come again, in words."""
    chosen = file.pipelines[pipeline]
    if kind is Kind.REFRESH:
        return "A full refresh takes the place of the one before: nothing is there twice."
    if getattr(chosen.sink_streams.get(stream), "mode", None) == "merge":
        return "The sink keeps one row for each key: rows that come again take the place of what is there."
    return f"The {chosen.sink_type} sink adds: rows that come again are there twice, under a higher slice number."
