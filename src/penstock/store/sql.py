"""The Store on a SQL database, the same for every dialect.

Every write is one transaction that first locks the pipeline's lease row. So the writes to one pipeline come one after
the other, and a writer that lost its lease finds out before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from penstock.core.history import HistoryLimits
from penstock.core.marks import Position
from penstock.core.outcome import Delivered, Outcome
from penstock.core.reports import DayOfRuns, Failure, LastLook, RunReport
from penstock.core.slices import Kind, Seal, Slice
from penstock.errors import PenstockError
from penstock.ports import Change, Holder, Lease, Owner, RunRecord, StreamState
from penstock.store import decisions, reports, retention
from penstock.store.location import StoreLocation, translate_errors
from penstock.store.records import (
    CHANGES,
    STATES,
    InconsistentRows,
    change_of,
    columns_from,
    holder_of,
    position_values,
    run_of,
    slice_values,
    state_of,
)
from penstock.store.schema import days, failures, history, in_stream, intents, leases, looks, progress, runs, streams


class SqlStore:
    """See `ports.Store` for what each method must keep."""

    def __init__(self, engine: Engine, location: StoreLocation, limits: HistoryLimits) -> None:
        self._reads = engine
        self._writes = engine.execution_options(writes=True)
        self._location = location
        self._limits = limits

    def close(self) -> None:
        self._reads.dispose()

    def report_waits(self, say: Callable[[str], None]) -> None:
        text = f"waiting for the store {self._location.name}, which another process is writing to"
        self._writes = self._reads.execution_options(writes=True, report_wait=lambda: say(text))

    # ------------------------------------------------------------ the lease

    def acquire(
        self, pipeline: str, owner: Owner, *, now: datetime, ttl: float, gone: Callable[[Owner], bool]
    ) -> Lease:
        lease = self._take(pipeline, owner, now, ttl, gone)
        if lease is None:
            try:
                with self._write() as connection:
                    connection.execute(insert(leases).values(pipeline=pipeline, heartbeat=now, expires=now))
            except IntegrityError:
                pass  # another process was faster: its row is as good as ours
            lease = self._take(pipeline, owner, now, ttl, gone)
        assert lease is not None, "a lease row is never deleted"
        return lease

    def heartbeat(self, lease: Lease, *, now: datetime, ttl: float) -> None:
        with self._write(lease) as connection:
            times = {"heartbeat": now, "expires": now + timedelta(seconds=ttl)}
            connection.execute(update(leases).where(leases.c.pipeline == lease.pipeline).values(times))

    def release(self, lease: Lease) -> None:
        with self._write() as connection:
            connection.execute(update(leases).where(_is_held(lease)).values(token=None))

    def holder(self, pipeline: str) -> Holder | None:
        with self._read() as connection:
            row = connection.execute(select(leases).where(leases.c.pipeline == pipeline)).first()
        return holder_of(row) if row else None

    def _take(
        self, pipeline: str, owner: Owner, now: datetime, ttl: float, gone: Callable[[Owner], bool]
    ) -> Lease | None:
        """The lease; None if the pipeline has no lease row yet."""
        with self._write() as connection:
            row = connection.execute(select(leases).where(leases.c.pipeline == pipeline).with_for_update()).first()
            if row is None:
                return None
            holder = holder_of(row)
            if holder and not decisions.may_take(holder, owner, now, gone):
                raise decisions.pipeline_held(holder, now)
            lease = Lease(pipeline, owner, row.epoch + 1)
            values = columns_from(owner) | {"heartbeat": now, "expires": now + timedelta(seconds=ttl)}
            same = and_(leases.c.pipeline == pipeline, leases.c.epoch == row.epoch)
            connection.execute(update(leases).where(same).values(epoch=lease.epoch, **values))
            return lease

    # ------------------------------------------------------------ the streams

    def streams(self, pipeline: str) -> Mapping[str, StreamState]:
        with self._read() as connection:
            rows = connection.execute(STATES.where(streams.c.pipeline == pipeline).order_by(streams.c.stream))
            return {row.stream: state_of(row) for row in rows}

    def state(self, pipeline: str, stream: str) -> StreamState:
        with self._read() as connection:
            return _state(connection, pipeline, stream)

    def intend(self, lease: Lease, slice_: Slice, *, now: datetime, run: str) -> None:
        with self._write(lease, slice_) as connection:
            _add_stream(connection, lease, slice_.stream)
            taken = connection.execute(
                update(streams)
                .where(
                    in_stream(streams, lease.pipeline, slice_.stream),
                    streams.c.intent.is_(None),
                    streams.c.number == slice_.number - 1,
                    streams.c.slice_id == (slice_.previous or None),
                    streams.c.mark == slice_.after,
                )
                .values(intent=slice_.id)
            )
            if taken.rowcount != 1:
                raise _unexpected(connection, slice_, "intended")
            _insert_intent(connection, lease, slice_, now, run)

    def seal(self, lease: Lease, slice_: Slice, seal: Seal, *, now: datetime) -> Seal:
        with self._write(lease, slice_) as connection:
            state = _state(connection, lease.pipeline, slice_.stream)
            if state.intent is None or state.intent.id != slice_.id:
                raise decisions.unexpected_state(slice_, state, "sealed")
            if state.seal is not None:
                return state.seal
            connection.execute(update(intents).where(_is_intent(slice_)).values(seal=seal))
            return seal

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
        delivered = Delivered(rows, bytes_, outcome)
        values: dict[str, Any] = {"reset_wanted": False} if slice_.kind is Kind.RESET else {}
        if rows > 0 or slice_.kind is Kind.REFRESH:
            values["last_rows"] = rows
        with self._write(lease, slice_) as connection:
            values |= columns_from(_total(connection, slice_, delivered))
            version = self._move(
                connection, lease, slice_.stream, slice_.position, delivered, values, now, slice_.reason, run, slice_.id
            )
            if version is None:
                raise _unexpected(connection, slice_, "finished")
            if connection.execute(delete(intents).where(_is_intent(slice_))).rowcount != 1:
                raise InconsistentRows(f"stream {slice_.stream} names slice {slice_.id[:12]} as open, which it is not")
            return version

    def stop(self, lease: Lease, stream: str, reason: str | None, *, now: datetime) -> None:
        with self._write(lease) as connection:
            if reason is not None:
                _add_stream(connection, lease, stream)
            here = in_stream(streams, lease.pipeline, stream)
            connection.execute(update(streams).where(here).values(stopped=reason))

    def save_compared(self, lease: Lease, stream: str, compared: str | None) -> None:
        with self._write(lease) as connection:
            here = in_stream(streams, lease.pipeline, stream)
            connection.execute(update(streams).where(here).values(compared=compared))

    def request_reset(self, lease: Lease, stream: str, *, now: datetime) -> None:
        with self._write(lease) as connection:
            _add_stream(connection, lease, stream)
            here = in_stream(streams, lease.pipeline, stream)
            connection.execute(update(streams).where(here).values(reset_wanted=True))

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
        with self._write(lease) as connection:
            _add_stream(connection, lease, stream)
            connection.execute(delete(intents).where(in_stream(intents, lease.pipeline, stream)))
            if held is not None:
                retention.save_content(connection, lease.pipeline, stream, held.content)
            # A sink that holds nothing has nothing to reset.
            values = {} if held else columns_from(Delivered()) | {"reset_wanted": False}
            if sealed is not None:
                slice_, seal = sealed
                values["intent"] = slice_.id
                _insert_intent(connection, lease, slice_, now, run or "", seal)
            version = self._move(connection, lease, stream, held, Delivered(), values, now, "recover", run)
            assert version is not None, "the stream has a row"
            return version

    def _move(
        self,
        connection: Connection,
        lease: Lease,
        stream: str,
        position: Position | None,
        delivered: Delivered,
        values: Mapping[str, Any],
        now: datetime,
        reason: str,
        run: str | None,
        intent: str | None = None,
    ) -> int | None:
        """Set a stream's position, clear its intent and stop, and record the change; the change's version.

        None, and nothing is changed, if `intent` is given and is not the open one.
        """
        cleared = {"moved_at": now, "intent": None, "stopped": None}
        moved = update(streams).where(in_stream(streams, lease.pipeline, stream))
        if intent is not None:
            moved = moved.where(streams.c.intent == intent)
        values = {**cleared, **position_values(position), **values, "version": streams.c.version + 1}
        if connection.execute(moved.values(values)).rowcount != 1:
            return None
        return retention.record_change(
            connection, lease.pipeline, stream, position, delivered, self._limits, now=now, reason=reason, run=run
        )

    def history(self, pipeline: str, stream: str, *, most: int = 50) -> Sequence[Change]:
        newest = CHANGES.where(in_stream(history, pipeline, stream)).order_by(history.c.version.desc())
        with self._read() as connection:
            return [change_of(row) for row in connection.execute(newest.limit(most))]

    # ------------------------------------------------------------ the runs

    def start_run(self, lease: Lease, run: str, *, now: datetime, verb: str = "run") -> RunRecord:
        newest = select(runs).where(runs.c.pipeline == lease.pipeline).order_by(runs.c.number.desc())
        with self._write(lease) as connection:
            row = connection.execute(newest.limit(1)).first()
            last = run_of(row, {}) if row is not None else None
            if last is not None and last.status == "running":
                connection.execute(update(runs).where(_is_run(lease, last.id)).values(status="lost"))
            record = decisions.new_run(lease, run, last, now=now, verb=verb)
            noted = {}
            if record.continues is not None:
                noted = retention.hand_progress_over(connection, lease.pipeline, record.continues, run)
            number = row.number + 1 if row is not None else 1
            values = columns_from(record)
            del values["streams"]
            connection.execute(insert(runs).values(number=number, **values))
            retention.prune_runs(connection, lease.pipeline, number, now=now, limits=self._limits)
            return replace(record, streams=noted)

    def save_progress(self, lease: Lease, run: str, *, totals: str, streams: Mapping[str, str]) -> None:
        with self._write(lease) as connection:
            connection.execute(update(runs).where(_is_run(lease, run)).values(totals=totals))
            retention.save_progress(connection, lease.pipeline, run, streams)

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
        ours = select(leases.c.pipeline).where(_is_held(lease)).with_for_update()
        with self._write() as connection:
            if connection.execute(ours).first() is not None:
                ended = {"ended": now, "status": status, "has_more": has_more, "totals": totals}
                connection.execute(update(runs).where(_is_run(lease, run)).values(ended))
                retention.save_progress(connection, lease.pipeline, run, streams)

    def runs(self, pipeline: str, *, most: int = 20) -> Sequence[RunRecord]:
        newest = select(runs).where(runs.c.pipeline == pipeline).order_by(runs.c.number.desc()).limit(most).subquery()
        of_run = and_(progress.c.pipeline == newest.c.pipeline, progress.c.run == newest.c.id)
        noted = select(newest, progress.c.run, progress.c.stream, progress.c.progress)
        query = noted.select_from(newest.outerjoin(progress, of_run)).order_by(newest.c.number.desc())
        with self._read() as connection:
            rows = list(connection.execute(query))
        by_run = retention.progress_by_run(row for row in rows if row.run is not None)
        return [run_of(row, by_run.get(row.id, {})) for row in {row.id: row for row in rows}.values()]

    # ------------------------------------------------------------ how runs ended

    def save_report(self, pipeline: str, report: RunReport) -> None:
        # Another process may be faster with a new row of each table; after that the row is only updated.
        for tables_left in range(len(reports.TABLES), -1, -1):
            try:
                with self._write() as connection:
                    reports.save(connection, pipeline, report)
            except IntegrityError:
                if not tables_left:
                    raise
            else:
                return

    def failures(self, pipeline: str) -> Mapping[str, Failure]:
        with self._read() as connection:
            rows = connection.execute(select(failures).where(failures.c.pipeline == pipeline))
            return {row.stream: reports.failure_of(row) for row in rows}

    def last_looks(self, pipeline: str) -> Sequence[LastLook]:
        newest = select(looks).where(looks.c.pipeline == pipeline).order_by(looks.c.at.desc())
        with self._read() as connection:
            return [reports.look_of(row) for row in connection.execute(newest)]

    def days(self, pipeline: str, *, most: int = 14) -> Sequence[DayOfRuns]:
        newest = select(days).where(days.c.pipeline == pipeline).order_by(days.c.day.desc())
        with self._read() as connection:
            return [reports.day_of(row) for row in connection.execute(newest.limit(most))]

    # ------------------------------------------------------------ transactions

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """A connection for one statement: every method reads all of its data at one instant."""
        with translate_errors(self._location), self._reads.connect() as connection:
            yield connection

    @contextmanager
    def _write(self, lease: Lease | None = None, slice_: Slice | None = None) -> Iterator[Connection]:
        """One transaction; with a lease, only while it is ours, and for a slice only of its own pipeline."""
        if lease is not None and slice_ is not None:
            decisions.check_pipeline(lease, slice_)
        with translate_errors(self._location), self._writes.begin() as connection:
            if lease is not None:
                _lock_lease(connection, lease)
            yield connection


def _lock_lease(connection: Connection, lease: Lease) -> None:
    """Lock the lease row; LeaseLost if it is not ours."""
    row = connection.execute(select(leases).where(leases.c.pipeline == lease.pipeline).with_for_update()).first()
    if row is None or (row.token, row.epoch) != (lease.owner.token, lease.epoch):
        raise decisions.lease_lost(lease, holder_of(row) if row else None)


def _state(connection: Connection, pipeline: str, stream: str) -> StreamState:
    row = connection.execute(STATES.where(in_stream(streams, pipeline, stream))).first()
    return state_of(row) if row else StreamState()


def _unexpected(connection: Connection, slice_: Slice, wanted: str) -> PenstockError:
    return decisions.unexpected_state(slice_, _state(connection, slice_.pipeline, slice_.stream), wanted)


def _insert_intent(
    connection: Connection, lease: Lease, slice_: Slice, now: datetime, run: str, seal: Seal | None = None
) -> None:
    retention.save_content(connection, lease.pipeline, slice_.stream, slice_.content)
    about = {"intended_at": now, "run": run, "epoch": lease.epoch, "seal": seal}
    connection.execute(insert(intents).values(**slice_values(slice_), **about))


def _total(connection: Connection, slice_: Slice, delivered: Delivered) -> Delivered:
    """What the stream has delivered once a slice is done. No other process adds meanwhile: we hold the lease row."""
    if slice_.kind is Kind.RESET:
        return Delivered()
    if (version := slice_.undoes_to) is not None:
        found = retention.sum_from_version(connection, slice_.pipeline, slice_.stream, version)
        if found is not None:
            return found + delivered
    here = in_stream(streams, slice_.pipeline, slice_.stream)
    known = connection.execute(select(streams.c.rows, streams.c.bytes, streams.c.outcome).where(here)).first()
    return (Delivered(*known) if known else Delivered()) + delivered


def _add_stream(connection: Connection, lease: Lease, stream: str) -> None:
    """Give a new stream its row, at the beginning. No other process can: we hold the lease row's lock."""
    here = in_stream(streams, lease.pipeline, stream)
    if connection.execute(select(streams.c.version).where(here)).first() is None:
        connection.execute(insert(streams).values(pipeline=lease.pipeline, stream=stream))


def _is_held(lease: Lease) -> ColumnElement[bool]:
    owned = and_(leases.c.token == lease.owner.token, leases.c.epoch == lease.epoch)
    return and_(leases.c.pipeline == lease.pipeline, owned)


def _is_run(lease: Lease, run: str) -> ColumnElement[bool]:
    return and_(runs.c.pipeline == lease.pipeline, runs.c.id == run)


def _is_intent(slice_: Slice) -> ColumnElement[bool]:
    return and_(in_stream(intents, slice_.pipeline, slice_.stream), intents.c.id == slice_.id)
