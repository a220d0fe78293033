"""A Store in memory, for tests of the engine: the same refusals as on disk, and the disk's misfortunes.

`copy` and `restore` are a backup put back; `lose` is a disk that is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Slice
from penstock.ports import Change, Holder, Lease, Owner, RunRecord, StreamState
from penstock.store import refusals


@dataclass
class Contents:
    """Everything the store holds; the values are frozen, so a copy of the dictionaries is a copy of all."""

    holders: dict[str, Holder] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    streams: dict[tuple[str, str], StreamState] = field(default_factory=dict)
    history: dict[tuple[str, str], tuple[Change, ...]] = field(default_factory=dict)
    runs: dict[str, tuple[RunRecord, ...]] = field(default_factory=dict)

    def copy(self) -> Contents:
        return Contents(dict(self.holders), dict(self.epochs), dict(self.streams), dict(self.history), dict(self.runs))


class MemoryStore:
    """See `ports.Store` for what each method must keep."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._has = Contents()

    # ------------------------------------------------------------ misfortunes

    def copy(self) -> Contents:
        """A copy to `restore` later, as often as wanted."""
        with self._lock:
            return self._has.copy()

    def restore(self, copy: Contents) -> None:
        """Put a copy back, lease and all."""
        with self._lock:
            self._has = copy.copy()

    def lose(self) -> None:
        """Forget everything."""
        with self._lock:
            self._has = Contents()

    # ------------------------------------------------------------ the lease

    def acquire(
        self, pipeline: str, owner: Owner, *, now: datetime, ttl: float, gone: Callable[[Owner], bool]
    ) -> Lease:
        with self._lock:
            holder = self._has.holders.get(pipeline)
            if holder and not refusals.may_take(holder, owner, now, gone):
                raise refusals.held(holder, now)
            lease = Lease(pipeline, owner, self._has.epochs.get(pipeline, 0) + 1)
            self._has.epochs[pipeline] = lease.epoch
            self._has.holders[pipeline] = Holder(lease, now, now + timedelta(seconds=ttl))
            return lease

    def heartbeat(self, lease: Lease, *, now: datetime, ttl: float) -> None:
        with self._lock:
            self._hold(lease)
            self._has.holders[lease.pipeline] = Holder(lease, now, now + timedelta(seconds=ttl))

    def release(self, lease: Lease) -> None:
        with self._lock:
            if self._is_ours(lease):
                del self._has.holders[lease.pipeline]

    def holder(self, pipeline: str) -> Holder | None:
        with self._lock:
            return self._has.holders.get(pipeline)

    # ------------------------------------------------------------ the streams

    def streams(self, pipeline: str) -> Mapping[str, StreamState]:
        with self._lock:
            known = sorted(self._has.streams.items())
            return {stream: state for (owner, stream), state in known if owner == pipeline}

    def state(self, pipeline: str, stream: str) -> StreamState:
        with self._lock:
            return self._has.streams.get((pipeline, stream), StreamState())

    def intend(self, lease: Lease, slice_: Slice, *, now: datetime, run: str) -> None:
        with self._lock:
            state = self._state_for(lease, slice_)
            last = state.last
            number, held, mark = (last.number, last.id, last.mark) if last else (0, "", None)
            follows = (slice_.number, slice_.previous, slice_.after) == (number + 1, held, mark)
            if state.intent or not follows:
                raise refusals.elsewhere(slice_, state, "intended")
            self._put(lease, slice_.stream, replace(state, intent=slice_))

    def advance(
        self,
        lease: Lease,
        slice_: Slice,
        *,
        rows: int,
        bytes_: int,
        now: datetime,
        run: str,
        outcome: Outcome | None = None,
    ) -> int:
        with self._lock:
            state = self._state_for(lease, slice_)
            if state.intent is None or state.intent.id != slice_.id:
                raise refusals.elsewhere(slice_, state, "finished")
            if slice_.kind is Kind.RESET:
                state = replace(state, rows=0, bytes=0, outcome=None, reset_wanted=False)
            else:
                total = outcome + state.outcome if outcome else state.outcome
                state = replace(state, rows=state.rows + rows, bytes=state.bytes + bytes_, outcome=total)
            if rows > 0 or slice_.kind is Kind.REFRESH:
                state = replace(state, last_rows=rows)
            reason = "advance" if slice_.kind is Kind.ROWS else slice_.kind.value
            return self._move(lease, slice_.stream, state, slice_.position, now, reason, rows, run, outcome)

    def stop(self, lease: Lease, stream: str, reason: str | None, *, now: datetime) -> None:
        with self._lock:
            self._hold(lease)
            if reason is not None or (lease.pipeline, stream) in self._has.streams:
                self._put(lease, stream, replace(self.state(lease.pipeline, stream), stopped=reason))

    def want_reset(self, lease: Lease, stream: str, *, now: datetime) -> None:
        with self._lock:
            self._hold(lease)
            self._put(lease, stream, replace(self.state(lease.pipeline, stream), reset_wanted=True))

    def rebuild(self, lease: Lease, stream: str, held: Position | None, *, now: datetime, run: str | None) -> int:
        with self._lock:
            self._hold(lease)
            state = self.state(lease.pipeline, stream)
            if held is None:
                state = replace(state, rows=0, bytes=0, outcome=None, reset_wanted=False)
            return self._move(lease, stream, state, held, now, "recover", 0, run)

    def history(self, pipeline: str, stream: str, *, most: int = 50) -> Sequence[Change]:
        with self._lock:
            return self._has.history.get((pipeline, stream), ())[::-1][:most]

    # ------------------------------------------------------------ the runs

    def start_run(self, lease: Lease, run: str, *, now: datetime) -> RunRecord:
        with self._lock:
            self._hold(lease)
            earlier = self._has.runs.get(lease.pipeline, ())
            last = earlier[-1] if earlier else None
            goes_on = last if last and (last.has_more or last.status == "running") else None
            if last and last.status == "running":
                earlier = (*earlier[:-1], replace(last, status="lost"))
            record = RunRecord(
                id=run,
                pipeline=lease.pipeline,
                started=now,
                ended=None,
                status="running",
                has_more=False,
                continues=goes_on.id if goes_on else None,
                progress=goes_on.progress if goes_on else "{}",
            )
            self._has.runs[lease.pipeline] = (*earlier, record)
            return record

    def note_run(self, lease: Lease, run: str, *, progress: str) -> None:
        with self._lock:
            self._hold(lease)
            self._has.runs[lease.pipeline] = tuple(
                replace(record, progress=progress) if record.id == run else record
                for record in self._has.runs.get(lease.pipeline, ())
            )

    def end_run(self, lease: Lease, run: str, *, now: datetime, status: str, has_more: bool, progress: str) -> None:
        with self._lock:
            if self._is_ours(lease):
                self._has.runs[lease.pipeline] = tuple(
                    replace(record, ended=now, status=status, has_more=has_more, progress=progress)
                    if record.id == run
                    else record
                    for record in self._has.runs.get(lease.pipeline, ())
                )

    def runs(self, pipeline: str, *, most: int = 20) -> Sequence[RunRecord]:
        with self._lock:
            return self._has.runs.get(pipeline, ())[::-1][:most]

    def close(self) -> None:
        """Nothing to free: closing one handle on a store leaves the others open."""

    # ------------------------------------------------------------ inside

    def _is_ours(self, lease: Lease) -> bool:
        holder = self._has.holders.get(lease.pipeline)
        return holder is not None and (holder.lease.owner.token, holder.lease.epoch) == (
            lease.owner.token,
            lease.epoch,
        )

    def _hold(self, lease: Lease) -> None:
        if not self._is_ours(lease):
            raise refusals.lost(lease, self._has.holders.get(lease.pipeline))

    def _state_for(self, lease: Lease, slice_: Slice) -> StreamState:
        if lease.pipeline != slice_.pipeline:
            raise ValueError(f"a lease on {lease.pipeline} cannot move a slice of {slice_.pipeline}")
        self._hold(lease)
        return self.state(slice_.pipeline, slice_.stream)

    def _put(self, lease: Lease, stream: str, state: StreamState) -> None:
        self._has.streams[lease.pipeline, stream] = state

    def _move(
        self,
        lease: Lease,
        stream: str,
        state: StreamState,
        position: Position | None,
        now: datetime,
        reason: str,
        rows: int,
        run: str | None,
        outcome: Outcome | None = None,
    ) -> int:
        """Set the mark, whatever the reason, and remember it; the new version."""
        version = state.version + 1
        moved = replace(state, last=position, version=version, moved_at=now, intent=None, stopped=None)
        self._put(lease, stream, moved)
        past = self._has.history.get((lease.pipeline, stream), ())
        change = Change(version, now, reason, position, rows, run, outcome)
        self._has.history[lease.pipeline, stream] = (*past, change)
        return version
