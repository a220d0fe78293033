"""Marks of a lake stream: the table's uuid, the number up to which it was read, and the snapshot at that time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.core.documents import Json
from penstock.core.marks import Mark
from penstock.errors import StreamRefused
from penstock.lake.head_times import head_at, read_times
from penstock.lake.table_state import TableState
from penstock.sources.lake.lost_rows import describe_floor


def make_mark(uuid: str, seq: int, at: Mapping[str, Json] | None = None, *, began: int = 0) -> Mark:
    """`at`: the snapshot whose head it was read up to, so that a rollback of the table is noticed.

    `began`: deletes up to this number were in the table before the stream read its first row, so that it never
    delivered the rows that they are about.
    """
    # By the name under which sinks look for what they may show of a mark.
    document: dict[str, Json] = {"table": uuid, "key": [str(seq)]}
    return Mark.of(document | ({"at": at} if at else {}) | ({"began": began} if began else {}))


def read_began(mark: Mark | None) -> int:
    """The number up to which a stream needs no deletes; 0: it needs them all."""
    began: Any = mark.document.get("began", 0) if mark else 0
    if mark is not None and not isinstance(began, int):
        raise make_malformed(mark)
    return int(began)


def read_snapshot(mark: Mark) -> tuple[int, int] | None:
    """The id and sequence number of the snapshot that a mark was made from; None: unknown."""
    at: Any = mark.document.get("at")
    try:
        return (int(at["snapshot"]), int(at["sequence"])) if at is not None else None
    except (KeyError, TypeError, ValueError):
        raise make_malformed(mark) from None


def read_number(mark: Mark) -> int:
    """The number; StreamRefused if the mark is not one of ours."""
    found: Any = mark.document.get("key")
    if not isinstance(found, list) or len(found) != 1 or not str(found[0]).isdecimal():
        raise make_malformed(mark)
    return int(found[0])


def read_table(mark: Mark) -> str:
    found: Any = mark.document.get("table")
    if not isinstance(found, str):
        raise make_malformed(mark)
    return found


def make_malformed(mark: Mark) -> StreamRefused:
    return StreamRefused(
        f"the stored mark {mark.text} was not made by a lake source",
        next_step="use the source that the mark was made from, or `penstock state reset` the stream",
    )


def find_number(to: str, state: TableState, *, at: int, table: str, pipeline: str, stream: str) -> int:
    """StreamRefused if there is no such place, not any more, or not yet; `at`: where the reader is."""

    def refused(what: str, step: str) -> StreamRefused:
        return StreamRefused(what, next_step=step, pipeline=pipeline, stream=stream)

    if to.isascii() and to.isdecimal():
        seq = int(to)
    else:
        try:
            moment = datetime.fromisoformat(to)
        except ValueError:
            raise refused(
                f"{to!r} is neither a number nor a time",
                f"give a number from {state.floor} to {state.head}, or a time such as 2026-01-31T12:00:00+00:00",
            ) from None
        if moment.tzinfo is None:
            raise refused(f"the time {to!r} has no time zone", f"for UTC write {moment.isoformat()}+00:00")
        if moment > datetime.now(UTC):
            raise refused(f"the time {to} is in the future", "give a time in the past")
        found = _head_at(state, moment)
        if found is None:
            oldest = min((at_ms for at_ms, _ in read_times(state)), default=0)
            since = datetime.fromtimestamp(oldest / 1000, UTC).isoformat(timespec="seconds")
            raise refused(
                f"the history of {table} goes back only to {since}",
                f"give a later time, or a number from {state.floor} to {state.head}",
            )
        seq = found
    if seq > state.head:
        raise refused(
            f"number {seq} does not exist yet: the highest number of {table} is {state.head}",
            f"give a number from {state.floor} to {state.head}",
        )
    if seq < state.floor:
        raise refused(
            f"{describe_floor(state, table)}, so the mark cannot be set to {seq}",
            f"give a number from {state.floor} to {state.head}",
        )
    if seq > max(at, state.floor):
        raise refused(
            f"rows before number {seq} have not been read yet: this reader is at number {at}",
            f"give a number from {state.floor} to {at}",
        )
    return seq


def _head_at(state: TableState, moment: datetime) -> int | None:
    """The head that the table had at a time, or shortly before; None: its history no longer tells."""
    times = read_times(state)
    if times and times[0][0] <= int(moment.timestamp() * 1000):
        return head_at(times, moment)
    return 0 if state.whole and state.floor == 0 else None
