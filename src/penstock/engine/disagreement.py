"""What to say when sink and store disagree about which slice came last. Each case has its own words."""

from __future__ import annotations

from penstock.core.marks import Position
from penstock.core.slices import Slice
from penstock.errors import StreamStopped

_SAFE = "Nothing was changed: neither the mark nor the sink."


def disagreement(
    pipeline: str, stream: str, last: Position | None, held: Position | None, *, at_hand: int | None = None
) -> StreamStopped:
    """The stop for a store that stands at `last` (or has slice `at_hand` open) and a sink that holds `held`."""
    recover = (
        f"`penstock state recover FILE --stream {stream}` sets the store to what the sink holds, "
        "and the next run goes on from there"
    )
    stored = last.number if last else 0
    if held is None:
        what = (
            f"the sink is behind the store: the store has delivered slice {stored}, but the sink holds nothing of "
            "this stream. Its folder, table or database was deleted, emptied, or is another one"
        )
        step = f"put the sink back as it was; or, to deliver everything again, {recover}"
    elif last is None and at_hand is None:
        what = (
            f"the store knows nothing of this stream, but the sink holds its slice {held.number}. "
            "The store was lost, or this is a second store under the same pipeline name"
        )
        step = f"use the store that belongs to this pipeline, or give this one another name; or {recover}"
    elif held.number > max(stored, at_hand or 0):
        what = (
            f"the store is behind the sink: it has delivered slice {stored}, the sink holds slice {held.number}. "
            "The store was restored from an older copy, or another store was used in between"
        )
        step = f"use the newest store; or {recover}"
    elif held.number < stored:
        what = (
            f"the sink is behind the store: the store has delivered slice {stored}, the sink holds only slice "
            f"{held.number}. The sink was restored from an older copy, or slices were removed from it"
        )
        step = f"put the sink back as it was; or, to deliver the missing slices again, {recover}"
    else:
        what = (
            f"sink and store disagree: the sink's slice {held.number} ({held.id[:12]}) is not the one the store knows. "
            "Store and sink were restored from copies of different times, or two stores used the same pipeline name"
        )
        step = f"put back a store and a sink that belong together; or {recover}"
    return StreamStopped(what, next_step=step, safe=_SAFE, pipeline=pipeline, stream=stream)


def open_slice_disagreement(pipeline: str, stream: str, opened: str, at_hand: Slice | None) -> StreamStopped:
    """The stop for a sink that has pieces of a slice which the store does not have open."""
    expected = f"slice {at_hand.number} ({at_hand.id[:12]})" if at_hand else "no slice"
    return StreamStopped(
        f"the sink has received pieces of slice {opened[:12]}, and the store has {expected} open. "
        "The store was restored from an older copy, or another store was used in between",
        next_step=f"use the newest store; or `penstock state recover FILE --stream {stream}` finishes or withdraws "
        "the slice that the sink has open",
        safe=_SAFE,
        pipeline=pipeline,
        stream=stream,
    )
