"""The Store on a SQL database, the same for every dialect.

Every write is one transaction that first locks the pipeline's lease row: so writes to one pipeline come one
after the other, and a writer that lost its lease finds out before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Slice
from penstock.ports import Change, Holder, Lease, Owner, RunRecord, StreamState
from penstock.store import refusals
from penstock.store.places import Place, faults
from penstock.store.records import (
    STATES,
    Inconsistent,
    change_of,
    holder_of,
    outcome_of,
    outcome_text,
    position_values,
    run_of,
    slice_values,
    state_of,
    text_of,
)
from penstock.store.schema import history, leases, runs, slices, streams

#: what a stream that has delivered nothing has counted
NOTHING: dict[str, Any] = {"rows": 0, "bytes": 0, "outcome": None}


class SqlStore:
    """See `ports.Store` for what each method must keep."""

    def __init__(self, engine: Engine, place: Place) -> None:
        self._reads = engine
        self._writes = engine.execution_options(writes=True)
        self._place = place

    def close(self) -> None:
        self._reads.dispose()

    # ------------------------------------------------------------ the lease

    def acquire(
        self, pipeline: str, owner: Owner, *, now: datetime, ttl: float, gone: Callable[[Owner], bool]
    ) -> Lease:
        if (lease := self._take(pipeline, owner, now, ttl, gone)) is None:
            self._introduce(pipeline, now)
            lease = self._take(pipeline, owner, now, ttl, gone)
        assert lease is not None, "a lease row is never deleted"
        return lease

    def heartbeat(self, lease: Lease, *, now: datetime, ttl: float) -> None:
        with self._write(lease) as connection:
            times = {"heartbeat": now, "expires": now + timedelta(seconds=ttl)}
            connection.execute(update(leases).where(leases.c.pipeline == lease.pipeline).values(times))

    def release(self, lease: Lease) -> None:
        with self._write() as connection:
            connection.execute(update(leases).where(_ours(lease)).values(token=None))

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
            if holder and not refusals.may_take(holder, owner, now, gone):
                raise refusals.held(holder, now)
            lease = Lease(pipeline, owner, row.epoch + 1)
            connection.execute(
                update(leases)
                .where(leases.c.pipeline == pipeline, leases.c.epoch == row.epoch)
                .values(
                    token=owner.token,
                    host=owner.host,
                    pid=owner.pid,
                    boot=owner.boot,
                    started=owner.started,
                    epoch=lease.epoch,
                    heartbeat=now,
                    expires=now + timedelta(seconds=ttl),
                )
            )
            return lease

    def _introduce(self, pipeline: str, now: datetime) -> None:
        """Give a new pipeline its lease row, free."""
        blank = {
            "host": "",
            "pid": 0,
            "boot": "",
            "started": "",
            "epoch": 0,
            "heartbeat": now,
            "expires": now,
        }
        try:
            with self._write() as connection:
                connection.execute(insert(leases).values(pipeline=pipeline, token=None, **blank))
        except IntegrityError:
            return  # another process was faster: its row is as good as ours

    # ------------------------------------------------------------ the streams

    def streams(self, pipeline: str) -> Mapping[str, StreamState]:
        with self._read() as connection:
            rows = connection.execute(STATES.where(streams.c.pipeline == pipeline).order_by(streams.c.stream))
            return {row.stream: state_of(row) for row in rows}

    def state(self, pipeline: str, stream: str) -> StreamState:
        with self._read() as connection:
            return _state(connection, pipeline, stream)

    def intend(self, lease: Lease, slice_: Slice, *, now: datetime, run: str) -> None:
        _check_pipeline(lease, slice_)
        with self._write(lease) as connection:
            _introduce_stream(connection, lease, slice_.stream)
            taken = connection.execute(
                update(streams)
                .where(
                    _at(streams, lease.pipeline, slice_.stream),
                    streams.c.intent.is_(None),
                    streams.c.number == slice_.number - 1,
                    streams.c.slice_id == (slice_.previous or None),
                    streams.c.mark == text_of(slice_.after),
                )
                .values(intent=slice_.id)
            )
            if taken.rowcount != 1:
                state = _state(connection, lease.pipeline, slice_.stream)
                raise refusals.elsewhere(slice_, state, "intended")
            # A dropped slice may come again with the same bounds, and so the same id.
            connection.execute(delete(slices).where(_is(slice_)))
            about = {"status": "open", "intended_at": now, "run": run, "epoch": lease.epoch}
            connection.execute(insert(slices).values(**slice_values(slice_), **about))

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
        _check_pipeline(lease, slice_)
        values: dict[str, Any] = {"rows": streams.c.rows + rows, "bytes": streams.c.bytes + bytes_}
        if slice_.kind is Kind.RESET:
            values = NOTHING | {"reset_wanted": False}
        if rows > 0 or slice_.kind is Kind.REFRESH:
            values["last_rows"] = rows
        with self._write(lease) as connection:
            if outcome is not None and slice_.kind is not Kind.RESET:
                values["outcome"] = _added(connection, slice_, outcome)
            moved = connection.execute(
                update(streams)
                .where(_at(streams, lease.pipeline, slice_.stream), streams.c.intent == slice_.id)
                .values(
                    **values,
                    **position_values(slice_.position),
                    version=streams.c.version + 1,
                    moved_at=now,
                    intent=None,
                    stopped=None,
                )
            )
            if moved.rowcount != 1:
                state = _state(connection, lease.pipeline, slice_.stream)
                raise refusals.elsewhere(slice_, state, "finished")
            done = connection.execute(
                update(slices)
                .where(_is(slice_), slices.c.status == "open")
                .values(status="done", done_at=now, rows=rows, bytes=bytes_)
            )
            if done.rowcount != 1:
                raise Inconsistent(f"stream {slice_.stream} names slice {slice_.id[:12]} as open, which it is not")
            reason = "advance" if slice_.kind is Kind.ROWS else slice_.kind.value
            return _remember(connection, lease, slice_.stream, slice_.position, now, reason, rows, run, outcome)

    def stop(self, lease: Lease, stream: str, reason: str | None, *, now: datetime) -> None:
        with self._write(lease) as connection:
            if reason is not None:
                _introduce_stream(connection, lease, stream)
            connection.execute(update(streams).where(_at(streams, lease.pipeline, stream)).values(stopped=reason))

    def want_reset(self, lease: Lease, stream: str, *, now: datetime) -> None:
        with self._write(lease) as connection:
            _introduce_stream(connection, lease, stream)
            here = _at(streams, lease.pipeline, stream)
            connection.execute(update(streams).where(here).values(reset_wanted=True))

    def rebuild(self, lease: Lease, stream: str, held: Position | None, *, now: datetime, run: str | None) -> int:
        with self._write(lease) as connection:
            _introduce_stream(connection, lease, stream)
            # Also those done: whatever the sink does not hold any more will be moved again.
            above = slices.c.number > (held.number if held else 0)
            here = _at(slices, lease.pipeline, stream)
            connection.execute(update(slices).where(here, above | (slices.c.status == "open")).values(status="dropped"))
            # Nothing held: there is nothing left to reset.
            counts = {} if held else NOTHING | {"reset_wanted": False}
            connection.execute(
                update(streams)
                .where(_at(streams, lease.pipeline, stream))
                .values(
                    **counts,
                    **position_values(held),
                    version=streams.c.version + 1,
                    moved_at=now,
                    intent=None,
                    stopped=None,
                )
            )
            return _remember(connection, lease, stream, held, now, "recover", 0, run)

    def history(self, pipeline: str, stream: str, *, most: int = 50) -> Sequence[Change]:
        newest = select(history).where(_at(history, pipeline, stream)).order_by(history.c.version.desc())
        with self._read() as connection:
            return [change_of(row) for row in connection.execute(newest.limit(most))]

    # ------------------------------------------------------------ the runs

    def start_run(self, lease: Lease, run: str, *, now: datetime) -> RunRecord:
        newest = select(runs).where(runs.c.pipeline == lease.pipeline).order_by(runs.c.number.desc())
        with self._write(lease) as connection:
            last = connection.execute(newest.limit(1)).first()
            goes_on = last is not None and (last.has_more or last.status == "running")
            if last is not None and last.status == "running":
                this = and_(runs.c.pipeline == lease.pipeline, runs.c.number == last.number)
                connection.execute(update(runs).where(this).values(status="lost"))
            record = RunRecord(
                id=run,
                pipeline=lease.pipeline,
                started=now,
                ended=None,
                status="running",
                has_more=False,
                continues=last.id if last is not None and goes_on else None,
                progress=last.progress if last is not None and goes_on else "{}",
            )
            number = last.number + 1 if last is not None else 1
            connection.execute(
                insert(runs).values(
                    number=number,
                    id=run,
                    pipeline=lease.pipeline,
                    started=now,
                    status=record.status,
                    has_more=False,
                    continues=record.continues,
                    progress=record.progress,
                )
            )
            return record

    def note_run(self, lease: Lease, run: str, *, progress: str) -> None:
        this = and_(runs.c.pipeline == lease.pipeline, runs.c.id == run)
        with self._write(lease) as connection:
            connection.execute(update(runs).where(this).values(progress=progress))

    def end_run(self, lease: Lease, run: str, *, now: datetime, status: str, has_more: bool, progress: str) -> None:
        ours = select(leases.c.pipeline).where(_ours(lease)).with_for_update()
        this = and_(runs.c.pipeline == lease.pipeline, runs.c.id == run)
        with self._write() as connection:
            if connection.execute(ours).first() is not None:
                ended = {"ended": now, "status": status, "has_more": has_more, "progress": progress}
                connection.execute(update(runs).where(this).values(ended))

    def runs(self, pipeline: str, *, most: int = 20) -> Sequence[RunRecord]:
        newest = select(runs).where(runs.c.pipeline == pipeline).order_by(runs.c.number.desc())
        with self._read() as connection:
            return [run_of(row) for row in connection.execute(newest.limit(most))]

    # ------------------------------------------------------------ transactions

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """For one statement: no two reads of one method can see different moments."""
        with faults(self._place), self._reads.connect() as connection:
            yield connection

    @contextmanager
    def _write(self, lease: Lease | None = None) -> Iterator[Connection]:
        """One transaction; with a lease, only while it is ours."""
        with faults(self._place), self._writes.begin() as connection:
            if lease is not None:
                _hold(connection, lease)
            yield connection


def _hold(connection: Connection, lease: Lease) -> None:
    """Lock the lease row; LeaseLost if it is not ours."""
    row = connection.execute(select(leases).where(leases.c.pipeline == lease.pipeline).with_for_update()).first()
    if row is None or (row.token, row.epoch) != (lease.owner.token, lease.epoch):
        raise refusals.lost(lease, holder_of(row) if row else None)


def _state(connection: Connection, pipeline: str, stream: str) -> StreamState:
    row = connection.execute(STATES.where(_at(streams, pipeline, stream))).first()
    return state_of(row) if row else StreamState()


def _added(connection: Connection, slice_: Slice, outcome: Outcome) -> str | None:
    """What became of the stream's rows, with those of a slice. Nobody adds meanwhile: we hold the lease row's lock."""
    here = _at(streams, slice_.pipeline, slice_.stream)
    known = connection.execute(select(streams.c.outcome).where(here)).scalar()
    return outcome_text(outcome + outcome_of(known))


def _introduce_stream(connection: Connection, lease: Lease, stream: str) -> None:
    """Give a new stream its row, at the beginning. Nobody else can: we hold the lease row's lock."""
    here = _at(streams, lease.pipeline, stream)
    if connection.execute(select(streams.c.version).where(here)).first() is None:
        connection.execute(insert(streams).values(pipeline=lease.pipeline, stream=stream))


def _remember(
    connection: Connection,
    lease: Lease,
    stream: str,
    position: Position | None,
    now: datetime,
    reason: str,
    rows: int,
    run: str | None,
    outcome: Outcome | None = None,
) -> int:
    """Add the change just made to the history; its version."""
    here = _at(streams, lease.pipeline, stream)
    version: int = connection.execute(select(streams.c.version).where(here)).scalar_one()
    about: dict[str, Any] = {"version": version, "at": now, "reason": reason, "rows": rows, "run": run}
    about["outcome"] = outcome_text(outcome)
    connection.execute(
        insert(history).values(pipeline=lease.pipeline, stream=stream, **about, **position_values(position))
    )
    return version


def _check_pipeline(lease: Lease, slice_: Slice) -> None:
    if lease.pipeline != slice_.pipeline:
        raise ValueError(f"a lease on {lease.pipeline} cannot move a slice of {slice_.pipeline}")


def _ours(lease: Lease) -> ColumnElement[bool]:
    return and_(
        leases.c.pipeline == lease.pipeline,
        leases.c.token == lease.owner.token,
        leases.c.epoch == lease.epoch,
    )


def _at(table: Table, pipeline: str, stream: str) -> ColumnElement[bool]:
    return and_(table.c.pipeline == pipeline, table.c.stream == stream)


def _is(slice_: Slice) -> ColumnElement[bool]:
    return and_(_at(slices, slice_.pipeline, slice_.stream), slices.c.id == slice_.id)
