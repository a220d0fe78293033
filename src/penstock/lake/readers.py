"""Readers of a table, registered in it, so that retention and purge never pass the slowest of them.

Registering and lowering add an empty snapshot: a purge that is under way must fail and look again. Raising is a
property alone: one that is late only keeps more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime

from penstock.core.documents import canonical
from penstock.errors import InputError, StreamFailed
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.landing import format_inspected
from penstock.lake.table_state import ReaderMark, TableState
from penstock.lake.tables import (
    Additions,
    LostRace,
    OutcomeUnknown,
    commit_snapshot,
    extract_state,
    fixed,
    load_table,
    translate_commit_errors,
)

MAX_LOST_RACES = 40


def needs_registration(state: TableState, pipeline: str, stream: str, mark: int) -> bool:
    """Whether the table does not know yet how far a reader is."""
    known = state.reader(pipeline, stream)
    return known is None or known.abandoned or known.mark != mark or known.lost is not None


def is_late(state: TableState, pipeline: str, stream: str, number: int) -> bool:
    """Whether the table knows a later slice of the reader: a process that was frozen raises no mark any more."""
    known = state.reader(pipeline, stream)
    return known is not None and known.number > number


def register(
    lake: Lake, table: str, pipeline: str, stream: str, mark: int, *, number: int = 0, follows: bool = False
) -> str | None:
    """Say in the table how far a reader is; what a user should know, if anything.

    `follows`: ignored if the table knows a later slice than `number`.
    """
    for _ in range(MAX_LOST_RACES):
        loaded = load_table(lake, table)
        if loaded is None:
            raise StreamFailed(
                f"the table {table} is not there any more",
                next_step="see who dropped it, then run again",
                pipeline=pipeline,
                stream=stream,
            )
        state = extract_state(loaded)
        known = state.reader(pipeline, stream)
        if not needs_registration(state, pipeline, stream, mark) or (
            follows and is_late(state, pipeline, stream, number)
        ):
            return None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        said = ReaderMark(pipeline, stream, mark, now, number=number)
        properties = {names.reader_property(pipeline, stream): canonical(said.document())}
        higher = known is not None and not known.abandoned and known.mark < mark
        try:
            if higher:
                with translate_commit_errors():
                    loaded.transaction().set_properties(properties).commit_transaction()
            else:
                commit_snapshot(loaded, kind="reader", head=state.head, properties=_seen(state, properties))
        except LostRace:
            continue
        return None if known and not known.abandoned else f"registered as a reader of {table} at number {mark}"
    raise StreamFailed(
        f"could not register as a reader of {table}: other writers came first {MAX_LOST_RACES} times",
        next_step="run again",
        pipeline=pipeline,
        stream=stream,
    )


def _seen(state: TableState, properties: Mapping[str, str]) -> Additions:
    """With the note that everything up to here is in order, if it is: whoever expires snapshots takes no clue away."""
    if not state.orderly:
        return fixed(properties)
    return lambda new: {**properties, names.INSPECTED: format_inspected(new)}


def abandon(lake: Lake, table: str, pipeline: str, stream: str) -> str:
    """On the operator's word: a reader no longer holds retention back."""
    for _ in range(MAX_LOST_RACES):
        loaded = load_table(lake, table)
        known = extract_state(loaded).reader(pipeline, stream) if loaded else None
        if loaded is None or known is None:
            readers = extract_state(loaded).readers() if loaded else ()
            have = ", ".join(f"{r.pipeline}/{r.stream}" for r in readers)
            raise InputError(
                f"the table {table} has no reader {pipeline}/{stream}",
                next_step=f"its readers are: {have or 'none'}",
            )
        if known.abandoned:
            return f"{pipeline}/{stream} was abandoned already"
        said = {**known.document(), "abandoned": True}
        properties = {names.reader_property(pipeline, stream): json.dumps(said)}
        try:
            with translate_commit_errors():
                loaded.transaction().set_properties(properties).commit_transaction()
        except LostRace:
            continue
        return f"{pipeline}/{stream} (at {known.mark}) no longer holds back the retention of {table}"
    raise InputError(f"other writers of {table} came first {MAX_LOST_RACES} times", next_step="try again")


def record_stop(lake: Lake, table: str, why: str) -> None:
    """Write into the table why its readers stop; one that cannot, because others commit, leaves it to the next."""
    loaded = load_table(lake, table)
    if loaded is None or extract_state(loaded).properties.get(names.STOPPED) == why:
        return
    with contextlib.suppress(LostRace, OutcomeUnknown), translate_commit_errors():
        loaded.transaction().set_properties({names.STOPPED: why}).commit_transaction()
