"""Rows and deletes below a table's floor, which were removed before a reader read them."""

from __future__ import annotations

from penstock.errors import StreamStopped
from penstock.lake.table_state import TableState

SAFE = "Nothing else was lost: the mark has not moved."


def has_lost(state: TableState, seq: int, began: int) -> bool:
    """Whether something was removed that a reader at a number should have read.

    Below a keyed table's floor only deletes are missing, and those from before a reader began are not for it.
    """
    return seq < state.floor and not (state.keyed and began >= state.floor)


def describe_floor(state: TableState, table: str) -> str:
    """Describe what was removed below a table's floor."""
    if state.keyed:
        return (
            f"deletes in {table} up to number {state.floor} were purged, and the rows that they are about would "
            "stay in the target"
        )
    return f"rows of {table} up to number {state.floor} may be gone by retention"


def make_stop(state: TableState, table: str, seq: int, step: str, *, pipeline: str, stream: str) -> StreamStopped:
    """Make the stop of a reader below the floor; `step`: how to go on without what was removed."""
    if state.keyed:
        what = (
            f"deletes in {table} with numbers from {seq + 1} to {state.floor} were purged, and this reader goes on "
            "below them: rows that were deleted would stay in the target"
        )
        step = (
            f"to deliver the current rows again: `penstock state reset FILE --stream {stream}`, then remove from the "
            f"target what does not come again; or, {step}"
        )
    else:
        known, count = state.reader(pipeline, stream), ""
        if known and known.lost is not None:
            # Counted from the mark that the table knew, which may be behind this one.
            count = f" ({'at most ' if known.mark < seq else ''}{min(known.lost, state.floor - seq)} rows)"
        what = (
            f"rows of {table} with numbers from {seq + 1} to {state.floor} were removed by retention before this "
            f"reader had seen them{count}"
        )
    return StreamStopped(what, next_step=step, safe=SAFE, pipeline=pipeline, stream=stream)


def make_deletes_lost(lost: int, table: str, *, pipeline: str, stream: str) -> StreamStopped:
    """Make the stop of a reader that a purge of deletes has passed, by force or because it was abandoned."""
    return StreamStopped(
        f"{lost} deletes in {table} were purged before this reader read them: its target may still hold rows that are "
        "deleted in the table",
        next_step=f"to deliver the current rows again: `penstock state reset FILE --stream {stream}`; then delete the "
        "rows in the target that were not delivered again",
        safe=SAFE,
        pipeline=pipeline,
        stream=stream,
    )
