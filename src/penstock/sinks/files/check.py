"""Check, before a slice is planned, whether a stream can be written as files. Does not import Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.core.content import Content
from penstock.core.drift import absent
from penstock.core.slices import Kind
from penstock.core.types import TIMESTAMPS, Fixed, List, Map, Plain, Struct, Type
from penstock.errors import StreamRefused, problems_of
from penstock.links.globs import matches
from penstock.ports import StreamInfo
from penstock.sinks.files.folder import Folder, other_pipelines
from penstock.sinks.files.layout import Layout

#: types whose values have a date
DATES = (Plain.DATE, *TIMESTAMPS)


def find_problems(
    folder: Folder,
    layout: Layout,
    stream: StreamInfo,
    content: Content,
    format_: str,
    partition: Sequence[str],
) -> Iterator[StreamRefused]:
    """Everything that prevents the stream from being written."""
    if partition:
        yield from problems_of([lambda: _check_partition(partition, content)])
    for column in content.columns:
        yield from problems_of([partial(refuse_inexact, column.name, column.type, format_)])
    is_refresh = stream.kind is Kind.REFRESH
    place = folder.path(layout.data)
    yield from problems_of([lambda: refuse_own_source(place, content, format_)])
    yield from folder.find_problems(layout, is_refresh=is_refresh)
    if is_refresh and (pipelines := other_pipelines(folder, layout)):
        yield StreamRefused(
            f"a full refresh would replace {place}, which pipeline {pipelines[0]!r} writes too",
            next_step="give this pipeline a directory of its own, or the stream a cursor",
        )
    # Slices and a full refresh side by side would show readers the same rows twice.
    what = ""
    if is_refresh:
        others = {name for name in folder.names(layout.data, limit=1000) if name[0] not in "._"} - {
            _last(layout.current)
        }
        if others:
            what = f"holds other files ({min(others)}), and a full refresh beside them would show readers both"
    elif folder.has_current(layout):
        current = _last(folder.current(layout))
        what = f"holds a full refresh (`{current}`), and slices beside it would show readers both"
    if what:
        yield StreamRefused(f"the folder {place} {what}", next_step=folder.advise_on_mixing(stream.name))


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _check_partition(partition: Sequence[str], content: Content) -> None:
    from penstock.sinks.files.partitions import make_spec

    gone = absent(content)
    schema, spec = make_spec({each.name: each.type for each in content.columns}, partition)
    for name in (schema.find_column_name(field.source_id) for field in spec.fields):
        if name in gone:
            rest = ", ".join(each.name for each in content.columns if each.name not in gone)
            raise StreamRefused(
                f"partition_by names the column {name!r}, which the stream no longer has",
                next_step=f"bring it back, or use one of: {rest}",
            )


def refuse_inexact(name: str, type_: Type, format_: str) -> None:
    """StreamRefused if a format cannot hold a column exactly."""
    if format_ == "parquet" or _is_exact(type_, format_):
        return
    step = "use format: parquet, or leave the column out with `columns`"
    if isinstance(type_, List) and _is_exact(type_, "ndjson"):
        step = (
            "use format: parquet or ndjson, let the source send it as text (`arrays: text` of a postgres stream), "
            "or leave the column out with `columns`"
        )
    raise StreamRefused(f"column {name!r} is {type_}, which {format_} cannot hold exactly", next_step=step)


def refuse_own_source(folder: str, content: Content, format_: str) -> None:
    """StreamRefused if the stream is read from files among which those that are written would be found."""
    identity: Mapping[str, Any] = content.identity
    place, patterns = identity.get("root"), identity.get("patterns")
    if not isinstance(place, str) or not patterns or "://" in folder:
        return
    below = os.path.relpath(os.path.realpath(folder), os.path.realpath(place))
    names = [name for name in below.split(os.sep) if name != "."]
    # Above the place, or under a name that no source of files lists.
    if any(name.startswith((".", "_")) for name in names):
        return
    for partition in ([], ["day=2026-01-31"]):
        for ending in ("", ".gz", ".zst"):
            written = "/".join([*names, *partition, f"{1:012}-a-000-0.{format_}{ending}"])
            if matches(written, patterns) and not matches(written, identity.get("exclude", ())):
                raise StreamRefused(
                    f"the stream is read from {place}, by a pattern that matches what is written into {folder}: it "
                    "would read its own output",
                    next_step="set `directory` of the sink to a folder outside, or narrow `path` of the stream",
                )


def _is_exact(type_: Type, format_: str) -> bool:
    match type_:
        case List():
            return format_ == "ndjson" and _is_exact(type_.item, format_)
        case Plain.BINARY | Plain.UUID | Fixed() | Struct() | Map():
            return False
        case _:
            return True
