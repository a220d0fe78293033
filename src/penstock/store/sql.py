"""The Store on a SQL database, the same for every dialect.

Every write is one transaction that first locks the pipeline's lease row: so writes to one pipeline come one
after the other, and a writer that lost its lease finds out before it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from penstock.core.history import HistoryLimits
from penstock.core.marks import Position
from penstock.core.outcome import Delivered, Outcome
from penstock.core.reports import DayOfRuns, Failure, LastLook, RunReport
from penstock.core.slices import Kind, Seal, Slice
from penstock.ports import Change, Holder, Lease, Owner, RunRecord, StreamState
from penstock.store import past, refusals, reports
from penstock.store.location import StoreLocation, translate_errors
from penstock.store.records import (
    CHANGES,
    STATES,
    Inconsistent,
    change_of,
    holder_of,
    outcome_of,
    position_values,
    run_of,
    slice_values,
    state_of,
    text_of,
    total_values,
)
from penstock.store.schema import days, failures, history, intents, leases, looks, progress, runs, streams


class SqlStore:
    """See `ports.Store` for what each method must keep."""

    def __init__(self, engine: Engine, place: StoreLocation, limits: HistoryLimits) -> None:
        self._reads = engine
        self._limits = limits
        self._writes = engine.execution_options(writes=True)
        self._location = place

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
            past.keep_content(connection, lease.pipeline, slice_.stream, slice_.content)
            about = {"intended_at": now, "run": run, "epoch": lease.epoch}
            connection.execute(insert(intents).values(**slice_values(slice_), **about))

    def seal(self, lease: Lease, slice_: Slice, seal: Seal, *, now: datetime) -> Seal:
        _check_pipeline(lease, slice_)
        with self._write(lease) as connection:
            state = _state(connection, lease.pipeline, slice_.stream)
            if state.intent is None or state.intent.id != slice_.id:
                raise refusals.elsewhere(slice_, state, "sealed")
            if state.seal is not None:
                return state.seal
            here = and_(_at(intents, lease.pipeline, slice_.stream), intents.c.id == slice_.id)
            connection.execute(update(intents).where(here).values(seal=seal.text))
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
        _check_pipeline(lease, slice_)
        delivered = Delivered(rows, bytes_, outcome)
        values: dict[str, Any] = {"reset_wanted": False} if slice_.kind is Kind.RESET else {}
        if rows > 0 or slice_.kind is Kind.REFRESH:
            values["last_rows"] = rows
        with self._write(lease) as connection:
            total = _total(connection, slice_, delivered)
            moved = connection.execute(
                update(streams)
                .where(_at(streams, lease.pipeline, slice_.stream), streams.c.intent == slice_.id)
                .values(
                    **values,
                    **total_values(total),
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
            here = _at(intents, lease.pipeline, slice_.stream)
            done = connection.execute(delete(intents).where(here, intents.c.id == slice_.id))
            if done.rowcount != 1:
                raise Inconsistent(f"stream {slice_.stream} names slice {slice_.id[:12]} as open, which it is not")
            return past.remember(
                connection,
                lease.pipeline,
                slice_.stream,
                slice_.position,
                now=now,
                reason=slice_.reason,
                run=run,
                delivered=delivered,
                limits=self._limits,
            )

    def stop(self, lease: Lease, stream: str, reason: str | None, *, now: datetime) -> None:
        with self._write(lease) as connection:
            if reason is not None:
                _introduce_stream(connection, lease, stream)
            connection.execute(update(streams).where(_at(streams, lease.pipeline, stream)).values(stopped=reason))

    def request_reset(self, lease: Lease, stream: str, *, now: datetime) -> None:
        with self._write(lease) as connection:
            _introduce_stream(connection, lease, stream)
            here = _at(streams, lease.pipeline, stream)
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
            _introduce_stream(connection, lease, stream)
            connection.execute(delete(intents).where(_at(intents, lease.pipeline, stream)))
            if held is not None:
                past.keep_content(connection, lease.pipeline, stream, held.content)
            # Nothing held: there is nothing left to reset.
            counts = {} if held else total_values(Delivered()) | {"reset_wanted": False}
            connection.execute(
                update(streams)
                .where(_at(streams, lease.pipeline, stream))
                .values(
                    **counts,
                    **position_values(held),
                    version=streams.c.version + 1,
                    moved_at=now,
                    intent=sealed[0].id if sealed else None,
                    stopped=None,
                )
            )
            if sealed is not None:
                slice_, seal = sealed
                past.keep_content(connection, lease.pipeline, stream, slice_.content)
                about = {"intended_at": now, "run": run or "", "epoch": lease.epoch, "seal": seal.text}
                connection.execute(insert(intents).values(**slice_values(slice_), **about))
            return past.remember(
                connection,
                lease.pipeline,
                stream,
                held,
                now=now,
                reason="recover",
                run=run,
                delivered=Delivered(),
                limits=self._limits,
            )

    def history(self, pipeline: str, stream: str, *, most: int = 50) -> Sequence[Change]:
        newest = CHANGES.where(_at(history, pipeline, stream)).order_by(history.c.version.desc())
        with self._read() as connection:
            return [change_of(row) for row in connection.execute(newest.limit(most))]

    # ------------------------------------------------------------ the runs

    def start_run(self, lease: Lease, run: str, *, now: datetime, verb: str = "run") -> RunRecord:
        newest = select(runs).where(runs.c.pipeline == lease.pipeline).order_by(runs.c.number.desc())
        with self._write(lease) as connection:
            last = connection.execute(newest.limit(1)).first()
            goes_on = last is not None and last.verb == verb == "run" and (last.has_more or last.status == "running")
            if last is not None and last.status == "running":
                this = and_(runs.c.pipeline == lease.pipeline, runs.c.number == last.number)
                connection.execute(update(runs).where(this).values(status="lost"))
            number = last.number + 1 if last is not None else 1
            continues, totals, noted = None, "{}", {}
            if last is not None and goes_on:
                continues, totals = last.id, last.totals
                past.pass_progress_on(connection, lease.pipeline, last.id, run)
                theirs = connection.execute(_progress(lease.pipeline).where(progress.c.run == run))
                noted = past.progress_by_run(theirs).get(run, {})
            record = RunRecord(
                id=run,
                pipeline=lease.pipeline,
                started=now,
                ended=None,
                status="running",
                has_more=False,
                continues=continues,
                totals=totals,
                streams=noted,
                verb=verb,
            )
            about = {"started": now, "status": "running", "has_more": False, "continues": continues, "totals": totals}
            about["verb"] = verb
            connection.execute(insert(runs).values(pipeline=lease.pipeline, number=number, id=run, **about))
            past.forget_old_runs(connection, lease.pipeline, number, now=now, limits=self._limits)
            return record

    def save_progress(self, lease: Lease, run: str, *, totals: str, streams: Mapping[str, str]) -> None:
        this = and_(runs.c.pipeline == lease.pipeline, runs.c.id == run)
        with self._write(lease) as connection:
            connection.execute(update(runs).where(this).values(totals=totals))
            past.keep_progress(connection, lease.pipeline, run, streams)

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
        ours = select(leases.c.pipeline).where(_ours(lease)).with_for_update()
        this = and_(runs.c.pipeline == lease.pipeline, runs.c.id == run)
        with self._write() as connection:
            if connection.execute(ours).first() is not None:
                ended = {"ended": now, "status": status, "has_more": has_more, "totals": totals}
                connection.execute(update(runs).where(this).values(ended))
                past.keep_progress(connection, lease.pipeline, run, streams)

    def runs(self, pipeline: str, *, most: int = 20) -> Sequence[RunRecord]:
        newest = select(runs).where(runs.c.pipeline == pipeline).order_by(runs.c.number.desc()).limit(most).subquery()
        of_run = and_(progress.c.pipeline == newest.c.pipeline, progress.c.run == newest.c.id)
        noted = select(newest, progress.c.run, progress.c.stream, progress.c.progress)
        query = noted.select_from(newest.outerjoin(progress, of_run)).order_by(newest.c.number.desc())
        with self._read() as connection:
            rows = list(connection.execute(query))
        by_run = past.progress_by_run(row for row in rows if row.run is not None)
        return [run_of(row, by_run.get(row.id, {})) for row in {row.id: row for row in rows}.values()]

    # ------------------------------------------------------------ how runs ended

    def save_report(self, pipeline: str, report: RunReport) -> None:
        # Another process may be faster with a new row of each table; after that the row is only updated.
        for tables_left in range(len(reports.TABLES), -1, -1):
            try:
                with self._write() as connection:
                    reports.keep(connection, pipeline, report)
            except IntegrityError:
                if not tables_left:
                    raise
            else:
                return

    def failures(self, pipeline: str) -> Mapping[str, Failure]:
        with self._read() as connection:
            return reports.failures_of(connection.execute(select(failures).where(failures.c.pipeline == pipeline)))

    def last_looks(self, pipeline: str) -> Sequence[LastLook]:
        newest = select(looks).where(looks.c.pipeline == pipeline).order_by(looks.c.at.desc())
        with self._read() as connection:
            return reports.looks_of(connection.execute(newest))

    def days(self, pipeline: str, *, most: int = 14) -> Sequence[DayOfRuns]:
        newest = select(days).where(days.c.pipeline == pipeline).order_by(days.c.day.desc())
        with self._read() as connection:
            return reports.days_of(connection.execute(newest.limit(most)))

    # ------------------------------------------------------------ transactions

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """For one statement: no two reads of one method can see different moments."""
        with translate_errors(self._location), self._reads.connect() as connection:
            yield connection

    @contextmanager
    def _write(self, lease: Lease | None = None) -> Iterator[Connection]:
        """One transaction; with a lease, only while it is ours."""
        with translate_errors(self._location), self._writes.begin() as connection:
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


def _total(connection: Connection, slice_: Slice, delivered: Delivered) -> Delivered:
    """What the stream has delivered once a slice is done. Nobody adds meanwhile: we hold the lease row's lock."""
    if slice_.kind is Kind.RESET:
        return Delivered()
    if (version := slice_.undoes_to) is not None:
        found = past.delivered_up_to_and_since(connection, slice_.pipeline, slice_.stream, version)
        if found is not None:
            return found + delivered
    here = _at(streams, slice_.pipeline, slice_.stream)
    known = connection.execute(select(streams.c.rows, streams.c.bytes, streams.c.outcome).where(here)).first()
    return (Delivered(known.rows, known.bytes, outcome_of(known.outcome)) if known else Delivered()) + delivered


def _introduce_stream(connection: Connection, lease: Lease, stream: str) -> None:
    """Give a new stream its row, at the beginning. Nobody else can: we hold the lease row's lock."""
    here = _at(streams, lease.pipeline, stream)
    if connection.execute(select(streams.c.version).where(here)).first() is None:
        connection.execute(insert(streams).values(pipeline=lease.pipeline, stream=stream))


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


def _progress(pipeline: str) -> Select[Any]:
    return select(progress.c.run, progress.c.stream, progress.c.progress).where(progress.c.pipeline == pipeline)
