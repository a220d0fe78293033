"""A Store in memory, for tests of the engine: the same refusals as on disk, and the disk's misfortunes.

`copy` and `restore` are a backup put back; `lose` is a disk that is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime, timedelta
from typing import Any

from penstock.core.history import HistoryLimits
from penstock.core.marks import Position
from penstock.core.outcome import Delivered, Outcome
from penstock.core.reports import DAYS_KEPT, DayOfRuns, Failure, LastLook, RunReport
from penstock.core.slices import Kind, Seal, Slice
from penstock.ports import Change, Holder, Lease, Owner, RunRecord, StreamState
from penstock.store import decisions
from penstock.store.records import columns_from


@dataclass
class Contents:
    """Everything the store holds; the values are frozen, so a copy of the dictionaries is a copy of all."""

    holders: dict[str, Holder] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    streams: dict[tuple[str, str], StreamState] = field(default_factory=dict)
    history: dict[tuple[str, str], tuple[Change, ...]] = field(default_factory=dict)
    runs: dict[str, tuple[RunRecord, ...]] = field(default_factory=dict)
    #: by pipeline and stream: the run that last reported it, and its progress
    progress: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    #: by pipeline and stream
    failures: dict[tuple[str, str], Failure] = field(default_factory=dict)
    #: by pipeline and selection
    looks: dict[tuple[str, tuple[str, ...] | None], LastLook] = field(default_factory=dict)
    days: dict[tuple[str, date], DayOfRuns] = field(default_factory=dict)

    def copy(self) -> Contents:
        return Contents(*(dict(getattr(self, each.name)) for each in fields(self)))


class MemoryStore:
    """See `ports.Store` for what each method must keep."""

    def __init__(self, limits: HistoryLimits | None = None) -> None:
        self.limits = limits or HistoryLimits()
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
            if holder and not decisions.may_take(holder, owner, now, gone):
                raise decisions.pipeline_held(holder, now)
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
                raise decisions.unexpected_state(slice_, state, "intended")
            self._put(lease, slice_.stream, replace(state, intent=slice_, seal=None))

    def seal(self, lease: Lease, slice_: Slice, seal: Seal, *, now: datetime) -> Seal:
        with self._lock:
            state = self._state_for(lease, slice_)
            if state.intent is None or state.intent.id != slice_.id:
                raise decisions.unexpected_state(slice_, state, "sealed")
            if state.seal is None:
                self._put(lease, slice_.stream, replace(state, seal=seal))
            return state.seal or seal

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
                raise decisions.unexpected_state(slice_, state, "finished")
            delivered = Delivered(rows, bytes_, outcome)
            if slice_.kind is Kind.RESET:
                state = _with_total(replace(state, reset_wanted=False), Delivered())
            else:
                state = _with_total(state, self._before(slice_, state) + delivered)
            if rows > 0 or slice_.kind is Kind.REFRESH:
                state = replace(state, last_rows=rows)
            return self._move(lease, slice_.stream, state, slice_.position, now, slice_.reason, run, delivered)

    def stop(self, lease: Lease, stream: str, reason: str | None, *, now: datetime) -> None:
        with self._lock:
            self._hold(lease)
            if reason is not None or (lease.pipeline, stream) in self._has.streams:
                self._put(lease, stream, replace(self.state(lease.pipeline, stream), stopped=reason))

    def save_compared(self, lease: Lease, stream: str, compared: str | None) -> None:
        with self._lock:
            self._hold(lease)
            if (lease.pipeline, stream) in self._has.streams:
                self._put(lease, stream, replace(self.state(lease.pipeline, stream), compared=compared))

    def request_reset(self, lease: Lease, stream: str, *, now: datetime) -> None:
        with self._lock:
            self._hold(lease)
            self._put(lease, stream, replace(self.state(lease.pipeline, stream), reset_wanted=True))

    def rebuild(
        self,
        lease: Lease,
        stream: str,
        held: Position | None,
        *,
        now: datetime,
        run: str | None,
        sealed: tuple[Slice, Seal] | None = None,
    ) -> int:
        with self._lock:
            self._hold(lease)
            state = self.state(lease.pipeline, stream)
            if held is None:
                state = _with_total(replace(state, reset_wanted=False), Delivered())
            version = self._move(lease, stream, state, held, now, "recover", run, Delivered())
            if sealed is not None:
                opened = replace(self.state(lease.pipeline, stream), intent=sealed[0], seal=sealed[1])
                self._put(lease, stream, opened)
            return version

    def history(self, pipeline: str, stream: str, *, most: int = 50) -> Sequence[Change]:
        with self._lock:
            return self._has.history.get((pipeline, stream), ())[::-1][:most]

    # ------------------------------------------------------------ the runs

    def start_run(self, lease: Lease, run: str, *, now: datetime, verb: str = "run") -> RunRecord:
        with self._lock:
            self._hold(lease)
            earlier = self._has.runs.get(lease.pipeline, ())
            last = earlier[-1] if earlier else None
            record = decisions.new_run(lease, run, last, now=now, verb=verb)
            if last and last.status == "running":
                earlier = (*earlier[:-1], replace(last, status="lost"))
            if record.continues is not None:
                noted = self._noted(lease.pipeline, record.continues)
                self._has.progress |= {(lease.pipeline, stream): (run, text) for stream, text in noted.items()}
            newest = [
                earlier_run
                for newer, earlier_run in enumerate((*earlier, record)[::-1])
                if not self.limits.removes(at=earlier_run.started, newer=newer, most=self.limits.runs, now=now)
            ]
            self._has.runs[lease.pipeline] = tuple(newest[::-1])
            return replace(record, streams=self._noted(lease.pipeline, run))

    def save_progress(self, lease: Lease, run: str, *, totals: str, streams: Mapping[str, str]) -> None:
        with self._lock:
            self._hold(lease)
            self._change_run(lease, run, streams, totals=totals)

    def end_run(
        self,
        lease: Lease,
        run: str,
        *,
        now: datetime,
        status: str,
        has_more: bool,
        totals: str,
        streams: Mapping[str, str | None],
    ) -> None:
        with self._lock:
            if self._is_ours(lease):
                self._change_run(lease, run, streams, ended=now, status=status, has_more=has_more, totals=totals)

    def _change_run(self, lease: Lease, run: str, streams: Mapping[str, str | None], **new: Any) -> None:
        self._has.runs[lease.pipeline] = tuple(
            replace(record, **new) if record.id == run else record for record in self._has.runs.get(lease.pipeline, ())
        )
        for stream, text in streams.items():
            self._has.progress.pop((lease.pipeline, stream), None)
            if text is not None:
                self._has.progress[lease.pipeline, stream] = (run, text)

    def _noted(self, pipeline: str, run: str) -> dict[str, str]:
        known = sorted(self._has.progress.items())
        return {stream: text for (owner, stream), (by, text) in known if (owner, by) == (pipeline, run)}

    def runs(self, pipeline: str, *, most: int = 20) -> Sequence[RunRecord]:
        with self._lock:
            newest = self._has.runs.get(pipeline, ())[::-1][:most]
            return [replace(record, streams=self._noted(pipeline, record.id)) for record in newest]

    # ------------------------------------------------------------ how runs ended

    def save_report(self, pipeline: str, report: RunReport) -> None:
        with self._lock:
            if report.is_run:
                self._count(pipeline, report)
                if report.looked:
                    self._has.looks[pipeline, report.streams] = LastLook(report.streams, report.at)
            known = self._has.failures
            for stream in report.succeeded:
                if (pipeline, stream) in known:
                    known[pipeline, stream] = replace(known[pipeline, stream], times=0)
            for stream, problem in report.problems.items():
                before = known.get((pipeline, stream))
                going_on = before if before and before.times else None
                since, times = (going_on.since, going_on.times) if going_on else (report.at, 0)
                known[pipeline, stream] = Failure(problem, report.at, since, times + 1)

    def failures(self, pipeline: str) -> Mapping[str, Failure]:
        with self._lock:
            return {stream: found for (owner, stream), found in self._has.failures.items() if owner == pipeline}

    def last_looks(self, pipeline: str) -> Sequence[LastLook]:
        with self._lock:
            found = [look for (owner, _), look in self._has.looks.items() if owner == pipeline]
            return sorted(found, key=lambda look: look.at, reverse=True)

    def days(self, pipeline: str, *, most: int = 14) -> Sequence[DayOfRuns]:
        with self._lock:
            found = [day for (owner, _), day in self._has.days.items() if owner == pipeline]
            return sorted(found, key=lambda day: day.day, reverse=True)[:most]

    def _count(self, pipeline: str, report: RunReport) -> None:
        day = report.at.date()
        if (pipeline, day) not in self._has.days:
            oldest = day - timedelta(days=DAYS_KEPT)
            self._has.days = {key: kept for key, kept in self._has.days.items() if key[1] >= oldest}
            self._has.looks = {key: look for key, look in self._has.looks.items() if look.at.date() >= oldest}
            self._has.failures = {key: kept for key, kept in self._has.failures.items() if kept.at.date() >= oldest}
        before = self._has.days.get((pipeline, day), DayOfRuns(day, 0, 0, 0, 0, 0, report.at))
        counts = {"runs": 1, "idle": report.idle, "failed": report.failed, "rows": report.rows, "bytes": report.bytes}
        sums = {name: getattr(before, name) + number for name, number in counts.items()}
        self._has.days[pipeline, day] = replace(before, **sums, last=report.at)

    def close(self) -> None:
        """Nothing to free: closing one handle on a store leaves the others open."""

    # ------------------------------------------------------------ inside

    def _is_ours(self, lease: Lease) -> bool:
        holder = self._has.holders.get(lease.pipeline)
        return holder is not None and (holder.lease.owner.token, holder.lease.epoch) == (lease.owner.token, lease.epoch)

    def _hold(self, lease: Lease) -> None:
        if not self._is_ours(lease):
            raise decisions.lease_lost(lease, self._has.holders.get(lease.pipeline))

    def _state_for(self, lease: Lease, slice_: Slice) -> StreamState:
        decisions.check_pipeline(lease, slice_)
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
        run: str | None,
        delivered: Delivered,
    ) -> int:
        """Set the mark, whatever the reason, and remember it; the new version."""
        version = state.version + 1
        moved = replace(state, last=position, version=version, moved_at=now, intent=None, seal=None, stopped=None)
        self._put(lease, stream, moved)
        past = self._has.history.get((lease.pipeline, stream), ())
        total = Delivered(state.rows, state.bytes, state.outcome)
        change = Change(version, now, reason, position, run=run, total=total, **columns_from(delivered))
        kept = [
            entry
            for entry in (*past, change)
            if not self.limits.removes(at=entry.at, newer=version - entry.version, most=self.limits.changes, now=now)
        ]
        self._has.history[lease.pipeline, stream] = tuple(kept)
        return version

    def _before(self, slice_: Slice, state: StreamState) -> Delivered:
        """What was delivered before a slice: of an undo that leads behind a reset, up to its version and since."""
        past = self._has.history.get((slice_.pipeline, slice_.stream), ())
        known = [change for change in past if slice_.undoes_to is not None and change.version >= slice_.undoes_to]
        if known and known[0].version == slice_.undoes_to:
            since = (Delivered(change.rows, change.bytes, change.outcome) for change in known[1:])
            return sum(since, known[0].total)
        return Delivered(state.rows, state.bytes, state.outcome)


def _with_total(state: StreamState, total: Delivered) -> StreamState:
    return replace(state, **columns_from(total))
