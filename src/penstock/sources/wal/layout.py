"""What a stream's declaration means, and where it contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.core.content import Column, Columns
from penstock.core.ops import FanOut, Layout
from penstock.core.types import parse_type
from penstock.errors import StreamRefused
from penstock.sources.wal.options import EntityOptions, StreamOptions


def find_problems(options: StreamOptions, stream: str) -> Iterator[StreamRefused]:
    """Everything that is wrong with the declaration."""
    if options.entities is None:
        if not options.columns:
            yield _refuse("`columns` is missing", "declare `columns`, or `entities` for documents of ops", stream)
        for name in options.primary_key:
            if name not in options.columns:
                yield _refuse(f"`primary_key` names {name}, which is no column", "list it under `columns`", stream)
        return
    given = {"columns": options.columns, "primary_key": options.primary_key, "changes": options.changes}
    for name in (name for name, value in given.items() if value):
        yield _refuse(f"`{name}` is for plain rows, and the stream has `entities`", f"remove `{name}`", stream)


def _refuse(what: str, next_step: str, stream: str) -> StreamRefused:
    return StreamRefused(what, next_step=next_step, stream=stream)


def layout_of(options: EntityOptions, stream: str) -> Layout:
    """StreamRefused if the declaration contradicts itself."""
    fan_outs = tuple(FanOut(each.table, each.match, each.fields) for each in options.fan_out)
    try:
        return Layout(_columns(options.key), _columns(options.fields), _columns(options.multi_value), fan_outs)
    except ValueError as error:
        raise _refuse(f"`entities` contradicts itself: {error}", "correct `entities` of the stream", stream) from None


def _columns(types: Mapping[str, str]) -> Columns:
    return tuple(Column(name, parse_type(type_)) for name, type_ in types.items())
