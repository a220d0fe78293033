"""Converts rows of the store's tables into the dataclasses of `ports`, and back.

A column and a field with the same name hold the same value; only the others are named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Row, Select, and_, select

from penstock.core.documents import digest
from penstock.core.marks import Position
from penstock.core.outcome import Delivered
from penstock.core.slices import Kind, Slice
from penstock.ports import Change, Holder, Lease, Owner, RunRecord, StreamState
from penstock.store.schema import contents, history, intents, streams

_intent_contents = contents.alias("intent_contents")


def _names(table: FromClause, content: FromClause) -> ColumnElement[bool]:
    """Join a table to the content that it names by its hash."""
    return and_(
        content.c.pipeline == table.c.pipeline, content.c.stream == table.c.stream, content.c.hash == table.c.content
    )


#: the state of a stream with its open slice, in one statement, so that both are of the same instant
STATES: Select[Any] = select(
    streams,
    contents.c.content.label("content_text"),
    *(column.label(f"intent_{column.name}") for column in intents.columns),
    _intent_contents.c.content.label("intent_content_text"),
).select_from(
    streams.outerjoin(contents, _names(streams, contents))
    .outerjoin(
        intents,
        and_(
            intents.c.pipeline == streams.c.pipeline,
            intents.c.stream == streams.c.stream,
            intents.c.id == streams.c.intent,
        ),
    )
    .outerjoin(_intent_contents, _names(intents, _intent_contents))
)

#: changes of marks, with the contents of their slices
CHANGES: Select[Any] = select(history, contents.c.content.label("content_text")).select_from(
    history.outerjoin(contents, _names(history, contents))
)


class InconsistentRows(Exception):
    """Rows contradict each other: something else than penstock has changed the store."""


def fields_from(kind: type[Any], row: Row[Any], prefix: str = "") -> dict[str, Any]:
    """The fields of a dataclass for which the row has a column."""
    found = row._mapping
    return {each.name: found[prefix + each.name] for each in fields(kind) if prefix + each.name in found}


def columns_from(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by their names."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def holder_of(row: Row[Any]) -> Holder | None:
    """The holder of the pipeline; None if it is free."""
    if row.token is None:
        return None
    lease = Lease(row.pipeline, Owner(**fields_from(Owner, row)), row.epoch)
    return Holder(lease, heartbeat=row.heartbeat, expires=row.expires)


def state_of(row: Row[Any]) -> StreamState:
    opened = {"intent": _intent_of(row), "seal": row.intent_seal}
    return StreamState(**fields_from(StreamState, row) | opened, last=position_of(row))


def position_of(row: Row[Any]) -> Position | None:
    if row.slice_id is None:
        return None
    if row.content_text is None:
        raise InconsistentRows(f"the content of slice {row.number} of stream {row.stream} is missing")
    return Position(row.number, row.slice_id, row.mark, row.content_text)


def position_values(position: Position | None) -> dict[str, Any]:
    """A position as the columns that `streams` and `history` share."""
    if position is None:
        return {"number": 0, "slice_id": None, "mark": None, "content": None}
    named = {"slice_id": position.id, "content": content_hash(position.content)}
    return {"number": position.number, "mark": position.mark} | named


def content_hash(content: str) -> str:
    """The name under which a content is stored once."""
    return digest(content)


def slice_values(slice_: Slice) -> dict[str, Any]:
    """A slice as columns of `intents`."""
    return columns_from(slice_) | {"id": slice_.id, "kind": slice_.kind.value, "content": content_hash(slice_.content)}


def change_of(row: Row[Any]) -> Change:
    total = Delivered(row.total_rows, row.total_bytes, row.total_outcome)
    return Change(**fields_from(Change, row), position=position_of(row), total=total)


def run_of(row: Row[Any], streams: Mapping[str, str]) -> RunRecord:
    return RunRecord(**fields_from(RunRecord, row), streams=streams)


def _intent_of(row: Row[Any]) -> Slice | None:
    if row.intent is None:
        return None
    if row.intent_id is None or row.intent_content_text is None:
        raise InconsistentRows(f"stream {row.stream} names slice {row.intent[:12]} as open, which it is not")
    converted = {"kind": Kind(row.intent_kind), "content": row.intent_content_text}
    slice_ = Slice(**fields_from(Slice, row, "intent_") | converted)
    # The id hashes the bounds: a slice that no longer hashes to it would be retried as another one.
    if slice_.id != row.intent:
        raise InconsistentRows(f"slice {slice_.number} of stream {row.stream} does not match its id")
    return slice_
