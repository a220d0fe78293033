"""Registers readers in the table they read, so that retention and purge never pass the slowest of them.

Registering and lowering a mark adds an empty snapshot: a purge in progress must fail and look again. Raising a mark
changes a property only: a late one merely keeps more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.errors import InputError, StreamFailed
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.table_state import ReaderMark, TableState
from penstock.lake.tables import (
    LostRace,
    NewSnapshot,
    OutcomeUnknown,
    commit_snapshot,
    extract_state,
    load_table,
    retry_commit,
    set_properties,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table


def needs_registration(state: TableState, pipeline: str, stream: str, mark: int) -> bool:
    """Whether the table does not know yet how far a reader is."""
    known = state.reader(pipeline, stream)
    return known is None or known.abandoned or known.mark != mark or known.lost is not None


def is_late(state: TableState, pipeline: str, stream: str, number: int) -> bool:
    """Whether the table knows a later slice of the reader: a process that was frozen must not raise its mark."""
    known = state.reader(pipeline, stream)
    return known is not None and known.number > number


def register(
    lake: Lake, table: str, pipeline: str, stream: str, mark: int, *, number: int = 0, follows: bool = False
) -> str | None:
    """Record in the table how far a reader is; returns a message for the user, if there is one.

    `follows`: do nothing if the table knows a later slice than `number`.
    """

    def attempt() -> str | None:
        loaded = load_table(lake, table)
        if loaded is None:
            raise StreamFailed(
                f"the table {table} no longer exists",
                next_step="find out who dropped it, then run again",
                pipeline=pipeline,
                stream=stream,
            )
        state = extract_state(loaded)
        known = state.reader(pipeline, stream)
        late = follows and is_late(state, pipeline, stream, number)
        if late or not needs_registration(state, pipeline, stream, mark):
            return None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        properties = ReaderMark(pipeline, stream, mark, now, number=number).properties()
        if known is not None and not known.abandoned and known.mark < mark:
            set_properties(loaded, properties)
        else:
            _commit_registration(loaded, state, properties)
        return None if known and not known.abandoned else f"registered as a reader of {table} at number {mark}"

    def give_up(why: str) -> StreamFailed:
        what = f"cannot register as a reader of {table}: {why}"
        return StreamFailed(what, next_step="run again", pipeline=pipeline, stream=stream)

    return retry_commit(attempt, give_up)


def _commit_registration(table: Table, state: TableState, properties: Mapping[str, str]) -> None:
    def add(new: NewSnapshot) -> Mapping[str, str]:
        # If all rows up to here are in order, it says so: then an expiry of snapshots removes no evidence.
        return {**properties, names.INSPECTED: new.inspected} if state.orderly else properties

    commit_snapshot(table, kind="reader", head=state.head, properties=add)


def abandon(lake: Lake, table: str, pipeline: str, stream: str) -> str:
    """Let a reader no longer hold retention back, at the operator's request."""

    def attempt() -> str:
        loaded = load_table(lake, table)
        known = extract_state(loaded).reader(pipeline, stream) if loaded else None
        if loaded is None or known is None:
            readers = extract_state(loaded).readers() if loaded else ()
            raise InputError(
                f"the table {table} has no reader {pipeline}/{stream}",
                next_step=f"its readers are: {', '.join(reader.name for reader in readers) or 'none'}",
            )
        if known.abandoned:
            return f"{pipeline}/{stream} was already abandoned"
        extract_state(loaded).refuse_other_version(table)
        set_properties(loaded, replace(known, abandoned=True).properties())
        return f"{pipeline}/{stream} (at {known.mark}) no longer holds back the retention of {table}"

    return retry_commit(attempt, lambda why: InputError(f"{table}: {why}", next_step="try again"))


def record_stop(lake: Lake, table: str, why: str) -> None:
    """Record in the table why its readers stop. If another commit comes first, the next reader records it."""
    loaded = load_table(lake, table)
    if loaded is not None and extract_state(loaded).properties.get(names.STOPPED) != why:
        with contextlib.suppress(LostRace, OutcomeUnknown):
            set_properties(loaded, {names.STOPPED: why})
