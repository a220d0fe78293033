"""The decisions of a store, the same in memory and in a database: who may write, and what a new run continues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from penstock.core.slices import Slice
from penstock.errors import LeaseLost, PipelineHeld, StreamFailed
from penstock.ports import Holder, Lease, Owner, RunRecord, StreamState


def may_take(holder: Holder, owner: Owner, now: datetime, gone: Callable[[Owner], bool]) -> bool:
    """Whether the pipeline may be taken from its holder."""
    theirs = holder.lease.owner
    return theirs.token == owner.token or holder.expires <= now or gone(theirs)


def pipeline_held(holder: Holder, now: datetime) -> PipelineHeld:
    """The error where another process holds the pipeline."""
    owner = holder.lease.owner
    ends = f"{holder.expires:%Y-%m-%d %H:%M:%S} UTC"
    ago = max(0.0, (now - holder.heartbeat).total_seconds())
    return PipelineHeld(
        f"process {owner.pid} on {owner.host} holds the pipeline; its last heartbeat was {ago:.0f} s ago "
        f"and its lease ends at {ends}",
        safe="Nothing was changed.",
        next_step=f"wait for it to end, or stop that process; if it is dead the lease expires at {ends}",
        pipeline=holder.lease.pipeline,
    )


def lease_lost(lease: Lease, holder: Holder | None) -> LeaseLost:
    """The error where the lease is not ours any more."""
    if holder is None:
        now = "no process holds it now"
    else:
        owner = holder.lease.owner
        now = f"process {owner.pid} on {owner.host} holds it now (epoch {holder.lease.epoch})"
    return LeaseLost(
        f"this process no longer holds the pipeline (its epoch was {lease.epoch}): {now}",
        safe="Nothing was lost, and nothing was written after the lease was gone.",
        next_step="nothing to repair: the next run, or the process that holds it now, continues from the mark",
        pipeline=lease.pipeline,
    )


def unexpected_state(slice_: Slice, state: StreamState, wanted: str) -> StreamFailed:
    """The error where the lease is ours, but the stream is not where the caller expects it."""
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


def check_pipeline(lease: Lease, slice_: Slice) -> None:
    if lease.pipeline != slice_.pipeline:
        raise ValueError(f"a lease on {lease.pipeline} cannot move a slice of {slice_.pipeline}")


def new_run(lease: Lease, run: str, last: RunRecord | None, *, now: datetime, verb: str) -> RunRecord:
    """The record of a run that begins; it continues the last one if that ended with more to do, or never ended."""
    continued = None
    if last is not None and last.verb == verb == "run" and (last.has_more or last.status == "running"):
        continued = last
    return RunRecord(
        id=run,
        pipeline=lease.pipeline,
        started=now,
        ended=None,
        status="running",
        has_more=False,
        continues=continued.id if continued else None,
        totals=continued.totals if continued else "{}",
        verb=verb,
    )
