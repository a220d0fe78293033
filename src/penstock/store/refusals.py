"""When a store refuses a write and what it says then, the same in memory and in a database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from penstock.core.slices import Slice
from penstock.errors import LeaseLost, PipelineHeld, StreamFailed
from penstock.ports import Holder, Lease, Owner, StreamState


def may_take(holder: Holder, owner: Owner, now: datetime, gone: Callable[[Owner], bool]) -> bool:
    """Whether the pipeline may be taken from its holder."""
    theirs = holder.lease.owner
    return theirs.token == owner.token or holder.expires <= now or gone(theirs)


def held(holder: Holder, now: datetime) -> PipelineHeld:
    """Another process holds the pipeline."""
    owner = holder.lease.owner
    ends = f"{holder.expires:%Y-%m-%d %H:%M:%S} UTC"
    ago = max(0.0, (now - holder.heartbeat).total_seconds())
    return PipelineHeld(
        f"process {owner.pid} on {owner.host} holds the pipeline; its last heartbeat was {ago:.0f} s ago "
        f"and its lease ends at {ends}",
        safe="Nothing was changed.",
        next_step=f"wait for it to end, or stop that process; if it is dead the lease ends by itself at {ends}",
        pipeline=holder.lease.pipeline,
    )


def lost(lease: Lease, holder: Holder | None) -> LeaseLost:
    """The lease is not ours any more."""
    if holder is None:
        now = "nobody holds it now"
    else:
        owner = holder.lease.owner
        now = f"process {owner.pid} on {owner.host} holds it now (epoch {holder.lease.epoch})"
    return LeaseLost(
        f"this process no longer holds the pipeline (its epoch was {lease.epoch}): {now}",
        safe="Nothing was lost, and nothing was written after the lease was gone.",
        next_step="nothing to repair: the next run, or whoever holds the pipeline now, goes on from the mark",
        pipeline=lease.pipeline,
    )


def elsewhere(slice_: Slice, state: StreamState, wanted: str) -> StreamFailed:
    """The lease is ours, but the stream does not stand where the caller thinks."""
    at = f"stands at slice {state.last.number} ({state.last.id[:12]})" if state.last else "has no slice done"
    intent = state.intent
    opened = f"slice {intent.number} ({intent.id[:12]})" if intent else "no slice"
    return StreamFailed(
        f"the store {at} and {opened} is open, so slice {slice_.number} ({slice_.id[:12]}) cannot be "
        f"{wanted}: the store was changed or restored while this run was using it",
        next_step="run the pipeline again; it first compares the store with the sink",
        pipeline=slice_.pipeline,
        stream=slice_.stream,
    )
