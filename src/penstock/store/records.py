"""Rows of the store's tables as the dataclasses of `ports`, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Row, Select, and_, select

from penstock.core.documents import digest
from penstock.core.marks import Mark, Position
from penstock.core.outcome import Delivered, Outcome
from penstock.core.slices import Kind, Seal, Slice
from penstock.ports import Change, Holder, Lease, Owner, RunRecord, StreamState
from penstock.store.schema import contents, history, intents, streams

_wanted = contents.alias("wanted")


def _has(table: FromClause, content: FromClause) -> ColumnElement[bool]:
    """Join a table to the content that it names by its hash."""
    return and_(
        content.c.pipeline == table.c.pipeline, content.c.stream == table.c.stream, content.c.hash == table.c.content
    )


#: where a stream stands and its open slice, read in one statement and so at one moment
STATES: Select[Any] = select(
    streams,
    contents.c.content.label("content_text"),
    *(column.label(f"intent_{column.name}") for column in intents.columns),
    _wanted.c.content.label("intent_content_text"),
).select_from(
    streams.outerjoin(contents, _has(streams, contents))
    .outerjoin(
        intents,
        and_(
            intents.c.pipeline == streams.c.pipeline,
            intents.c.stream == streams.c.stream,
            intents.c.id == streams.c.intent,
        ),
    )
    .outerjoin(_wanted, _has(intents, _wanted))
)

#: changes of marks, with what their slices were made of
CHANGES: Select[Any] = select(history, contents.c.content.label("content_text")).select_from(
    history.outerjoin(contents, _has(history, contents))
)


class Inconsistent(Exception):
    """Rows that contradict each other: somebody or something changed the store behind our back."""


def holder_of(row: Row[Any]) -> Holder | None:
    """Who holds the pipeline; None if it is free."""
    if row.token is None:
        return None
    owner = Owner(token=row.token, host=row.host, pid=row.pid, boot=row.boot, started=row.started)
    return Holder(Lease(row.pipeline, owner, row.epoch), heartbeat=row.heartbeat, expires=row.expires)


def state_of(row: Row[Any]) -> StreamState:
    return StreamState(
        last=position_of(row),
        intent=_intent_of(row),
        seal=Seal.read(row.intent_seal) if row.intent is not None and row.intent_seal is not None else None,
        reset_wanted=row.reset_wanted,
        stopped=row.stopped,
        version=row.version,
        rows=row.rows,
        bytes=row.bytes,
        last_rows=row.last_rows,
        moved_at=row.moved_at,
        outcome=outcome_of(row.outcome),
    )


def position_of(row: Row[Any]) -> Position | None:
    if row.slice_id is None:
        return None
    if row.content_text is None:
        raise Inconsistent(f"the content of slice {row.number} of stream {row.stream} is missing")
    return Position(row.number, row.slice_id, mark_of(row.mark), row.content_text)


def position_values(position: Position | None) -> dict[str, Any]:
    """A position as the columns that `streams` and `history` share."""
    if position is None:
        return {"number": 0, "slice_id": None, "mark": None, "content": None}
    return {
        "number": position.number,
        "slice_id": position.id,
        "mark": text_of(position.mark),
        "content": content_hash(position.content),
    }


def total_values(total: Delivered) -> dict[str, Any]:
    """What a stream has delivered, as the columns of `streams`."""
    return {"rows": total.rows, "bytes": total.bytes, "outcome": outcome_text(total.outcome)}


def content_hash(content: str) -> str:
    """The name under which a content is stored once."""
    return digest(content)


def slice_values(slice_: Slice) -> dict[str, Any]:
    return {
        "pipeline": slice_.pipeline,
        "stream": slice_.stream,
        "id": slice_.id,
        "number": slice_.number,
        "previous": slice_.previous,
        "kind": slice_.kind.value,
        "after": text_of(slice_.after),
        "upto": text_of(slice_.upto),
        "content": content_hash(slice_.content),
        "spool": slice_.spool,
        "plan": slice_.plan,
    }


def change_of(row: Row[Any]) -> Change:
    return Change(
        version=row.version,
        at=row.at,
        reason=row.reason,
        position=position_of(row),
        rows=row.rows,
        run=row.run,
        outcome=outcome_of(row.outcome),
        bytes=row.bytes,
        total=Delivered(row.total_rows, row.total_bytes, outcome_of(row.total_outcome)),
    )


def run_of(row: Row[Any], streams: Mapping[str, str]) -> RunRecord:
    return RunRecord(
        id=row.id,
        pipeline=row.pipeline,
        started=row.started,
        ended=row.ended,
        status=row.status,
        has_more=row.has_more,
        continues=row.continues,
        totals=row.totals,
        streams=streams,
        verb=row.verb,
    )


def mark_of(text: str | None) -> Mark | None:
    return None if text is None else Mark(text)


def text_of(mark: Mark | None) -> str | None:
    return None if mark is None else mark.text


def outcome_of(text: str | None) -> Outcome | None:
    return None if text is None else Outcome.read(json.loads(text))


def outcome_text(outcome: Outcome | None) -> str | None:
    return None if outcome is None else json.dumps(outcome.document())


def _intent_of(row: Row[Any]) -> Slice | None:
    if row.intent is None:
        return None
    if row.intent_id is None or row.intent_content_text is None:
        raise Inconsistent(f"stream {row.stream} names slice {row.intent[:12]} as open, which it is not")
    slice_ = Slice(
        pipeline=row.pipeline,
        stream=row.stream,
        number=row.intent_number,
        after=mark_of(row.intent_after),
        upto=mark_of(row.intent_upto),
        content=row.intent_content_text,
        previous=row.intent_previous,
        kind=Kind(row.intent_kind),
        plan=row.intent_plan,
        spool=row.intent_spool,
    )
    # The id hashes the bounds: a slice that no longer hashes to it would be retried as another one.
    if slice_.id != row.intent:
        raise Inconsistent(f"slice {slice_.number} of stream {row.stream} does not match its id")
    return slice_
