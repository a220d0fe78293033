"""What every command on a pipeline has around it: both sides, the lease, the reporter, signals and errors."""

from __future__ import annotations

import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial

from penstock.core.drift import EVOLVE
from penstock.core.fetches import FetchCounts
from penstock.core.limits import Limits
from penstock.core.marks import Mark, Position
from penstock.core.messages import (
    Catalog,
    CatalogStream,
    ConnectionStatus,
    Eof,
    Log,
    Message,
    MoverStatus,
    Status,
    StreamStatus,
    WorkProgress,
)
from penstock.core.names import did_you_mean
from penstock.core.slices import Slice
from penstock.engine import order
from penstock.engine.gate import Gate, Turn
from penstock.engine.lease import Heartbeat
from penstock.engine.look import Look, has_delivered, keep_delivered
from penstock.engine.reporter import Ending, RunReporter
from penstock.engine.reporting import report_of
from penstock.errors import (
    ConnectionFailed,
    InputError,
    Interrupted,
    LeaseLost,
    NotOffered,
    PenstockError,
    PipelineHeld,
    StreamFailed,
)
from penstock.ports import (
    Clock,
    Lease,
    Mover,
    NoSpools,
    Origin,
    Owner,
    Probe,
    Sink,
    Source,
    Spools,
    Store,
    StreamInfo,
    WaitReporting,
)

#: what errors say of a mark, and what is not so where the run has delivered slices before
NOT_MOVED = "the mark has not moved"
#: the errors that end a whole run rather than one stream
_FATAL = (LeaseLost, PipelineHeld, ConnectionFailed, Interrupted)


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine works, apart from what it works on."""

    #: a lease that is not renewed for this long may be taken over
    lease_seconds: float = 30.0
    #: Arrow bytes to aim for in one slice
    slice_bytes: int = 256 << 20
    #: parts that move at the same time; asked for every slice, since a cluster's size is known once it has moved some
    workers: Callable[[], int] = lambda: 2
    #: renew the lease beside the work; tests that stop time turn it off
    heartbeat: bool = True
    #: by stream, what happens when its columns change; see core.drift. One that is not named evolves
    drift: Mapping[str, str] = field(default_factory=dict)
    #: by stream, columns that were dropped at the source and not renamed
    dropped_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Execution:
    """One execution of a command on a pipeline. Known errors end as messages and an exit code, not as an exception."""

    def __init__(
        self,
        pipeline: str,
        *,
        source: Source,
        sink: Sink,
        store: Store,
        mover: Callable[[], Mover],
        clock: Clock,
        probe: Probe,
        owner: Owner,
        gone: Callable[[Owner], bool],
        emit: Callable[[Message], None],
        settings: Settings | None = None,
        spools: Spools | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.source, self.sink, self.store = source, sink, store
        self.clock, self.probe, self.owner, self.gone = clock, probe, owner, gone
        self.settings = settings or Settings()
        self.spools: Spools = spools or NoSpools()
        self._make_mover = mover
        self._mover: Mover | None = None
        self._signal: int | None = None
        self._is_lease_lost = False
        #: the lease could not be renewed, and is about to end
        self._lease_overdue: ConnectionFailed | None = None
        self._heartbeat: Heartbeat | None = None
        self._run = uuid.uuid4().hex
        self._reporter = RunReporter(clock, emit, pipeline)
        self._failures: list[PenstockError] = []
        self._ahead: order.Ahead = {}
        self._ending = Ending("failed", 1)
        #: when the run began, by the clock's `elapsed`
        self._begun = 0.0
        self._verb = "run"
        #: the streams to work on, and those that were asked for; None: not yet reached, all
        self._stream_names: list[str] | None = None
        self._only: tuple[str, ...] | None = None

    def stop(self, signal_number: int) -> None:
        """Ask the run to end soon, from a signal handler: a move is given up, its slice stays open."""
        self._signal = signal_number
        if self._mover is not None:
            self._mover.cancel()

    def _report_errors(self, verb: str, work: Callable[[], Ending]) -> Eof:
        """Known errors become the run's last message, and its report what people find who ask later."""
        self._verb = verb
        if isinstance(self.store, WaitReporting):
            self.store.report_waits(partial(self._report_wait, threading.get_ident()))
        try:
            ending = work()
            self._save_report(ending)
        except LeaseLost:
            # The other process reports what becomes of the pipeline.
            ending = Ending.of(self._describe_takeover())
        except PenstockError as error:
            if self._reporter.request.slices:
                error.safe = error.safe.replace(NOT_MOVED, "the marks are where this run has brought them")
            ending = Ending.of(error.at(pipeline=self.pipeline))
            self._save_report(ending, error)
        finally:
            if self._mover is not None:
                self._mover.close()
            self.source.close()
            self.sink.close()
        return self._reporter.close(ending)

    def _report_wait(self, thread: int, text: str) -> None:
        """Say what the run waits for; the heartbeat's own waits are reported as its troubles."""
        if threading.get_ident() == thread:
            self._reporter.report(Log(level="info", text=text))

    def _save_report(self, ending: Ending, error: PenstockError | None = None) -> None:
        """Keep how it ended in the store. A store that cannot take it changes nothing about how it ended."""
        if isinstance(error, PipelineHeld):
            return  # the run that holds the pipeline reports
        report = report_of(
            ending,
            self._reporter.request,
            at=self.clock.now(),
            is_run=self._verb == "run",
            looked=self._stream_names,
            only=self._only,
            failures=self._failures,
            error=error,
        )
        try:
            self.store.save_report(self.pipeline, report)
        except PenstockError as refused:
            if not ending.exit_code:
                what = f"`penstock status` will not show this run: {refused.what}"
                self._reporter.report(Log(level="warning", text=what))

    def _connect(self, only: Sequence[str] | None) -> list[StreamInfo]:
        """Reach both sides, say the catalog, and give the streams to work on."""
        for side, connect in (("sink", self.sink.connect), ("source", self.source.connect)):
            try:
                connect()
            except ConnectionFailed as error:
                self._reporter.report(
                    ConnectionStatus(
                        side=side,
                        connected=False,
                        reason=error.what,
                        safe=error.safe,
                        next_step=error.next_step,
                    )
                )
                raise
        catalog = [self._keep_delivered(info) for info in self.source.catalog()]
        known = [info.name for info in catalog]
        for name in only or ():
            if name not in known:
                raise InputError(
                    f"there is no stream {name!r}{did_you_mean(name, known)}",
                    next_step=f"use one of: {', '.join(known) or 'none are known'}",
                    pipeline=self.pipeline,
                )
        chosen = [info for info in catalog if not only or info.name in only]
        self._reporter.report(
            Catalog(
                pipeline=self.pipeline,
                run=self._run,
                streams=tuple(CatalogStream(s.name, s.kind.value, s.primary_key, s.order, s.skipped) for s in chosen),
            )
        )
        streams = [info for info in chosen if info.skipped is None]
        self._ahead = self.sink.begin_run(streams)
        self._stream_names, self._only = [info.name for info in streams], tuple(sorted(only)) if only else None
        return streams

    def _keep_delivered(self, info: StreamInfo) -> StreamInfo:
        return info if info.skipped is None else keep_delivered(info, self.store.state(self.pipeline, info.name))

    @contextmanager
    def _hold_lease(self) -> Iterator[Lease]:
        """Hold the pipeline; the run is recorded as long as it is ours."""
        now, ttl = self.clock.now(), self.settings.lease_seconds
        lease = self.store.acquire(self.pipeline, self.owner, now=now, ttl=ttl, gone=self.gone)
        self.probe.at("engine.leased")
        record = self.store.start_run(lease, self._run, now=self.clock.now(), verb=self._verb)
        self._reporter.continue_run(record)
        try:
            if self.settings.heartbeat:
                with Heartbeat(self.store, lease, self.clock, ttl, self._on_lost, self._on_overdue) as self._heartbeat:
                    yield lease
            else:
                yield lease
        except PenstockError as error:
            # A store that takes no heartbeat need not take this either.
            with suppress(PenstockError) if error is self._lease_overdue else nullcontext():
                self._end_lease(lease, Ending.of(error))
            raise
        self._end_lease(lease, self._ending)

    def _end_lease(self, lease: Lease, ending: Ending) -> None:
        self.store.end_run(
            lease,
            self._run,
            now=self.clock.now(),
            status=ending.status,
            has_more=ending.has_more,
            totals=self._reporter.totals(),
            streams=self._reporter.progress_to_close(),
        )
        self.store.release(lease)
        self.probe.at("engine.released")

    def _gate(self, info: StreamInfo, limits: Limits, lease: Lease | None) -> Gate:
        return Gate(
            look=Look(
                self.pipeline,
                info,
                self.source,
                self.sink,
                self._run,
                drift=self.settings.drift.get(info.name, EVOLVE),
                dropped_columns=self.settings.dropped_columns.get(info.name, ()),
            ),
            sink=self.sink,
            store=self.store,
            spools=self.spools,
            lease=lease or Lease(self.pipeline, self.owner, 0),
            mover=self.mover,
            clock=self.clock,
            probe=self.probe,
            emit=self._reporter.report,
            slice_bytes=self.settings.slice_bytes,
            workers=self.settings.workers,
            rows_left=lambda: limits.rows_left(self._reporter.request.rows),
            seconds_left=lambda: limits.seconds_left(self.clock.elapsed() - self._begun),
        )

    def mover(self) -> Mover:
        """The mover, made when the first row must move: nothing new must not cost a JVM, nor a run that is to end."""
        self._check_interrupts()
        if self._mover is None:
            self._mover = self._make_mover()
        return self._mover

    def report_mover_starting(self, program: str) -> None:
        """The mover starts a program that takes a while; the engine knows of it from here on, and ends it."""
        self.mover()
        self._reporter.report(MoverStatus(program=program))

    def report_mover_ready(self, program: str) -> None:
        """The program that the mover has started is ready."""
        self._reporter.report(MoverStatus(program=program, ready=True))

    def report_work(
        self,
        stream: str,
        doing: str,
        *,
        done: int | None = None,
        total: int | None = None,
        fetched: FetchCounts | None = None,
    ) -> None:
        """Report how far a source or sink is with something that takes long."""
        self._reporter.report(WorkProgress(stream=stream, doing=doing, done=done, total=total, fetched=fetched))

    def is_cancelled(self) -> bool:
        """Whether the run is to end soon: a signal, or a lease that is lost or about to be."""
        return self._signal is not None or self._is_lease_lost or self._lease_overdue is not None

    def report_line(self, stream: str, text: str) -> None:
        """A source or sink says what it is doing."""
        self._reporter.report(Log(level="info", stream=stream, text=text))

    def report_warning(self, stream: str, text: str) -> None:
        """A source or sink has met something that the user should look at."""
        self._reporter.report(Log(level="warning", stream=stream, text=text))

    def last_mark(self, stream: str) -> Mark | None:
        """The mark that the next slice of a stream starts at, as far as is known before anything is planned."""
        state = self.store.state(self.pipeline, stream)
        if state.last is None or state.intent or state.reset_wanted:
            return None
        return state.last.mark

    def last_position(self, stream: str) -> Position | None:
        """The last slice of a stream that was delivered, as the store has it."""
        return self.store.state(self.pipeline, stream).last

    def origin(self, slice_: Slice) -> Origin:
        """How far the source is read with a slice, and the rows that were left when it was planned."""
        progress = self._reporter.run.streams.get(slice_.stream)
        left = progress.left if progress is not None and progress.number == slice_.number else None
        if left is not None and progress is not None:
            left += progress.held_back or 0
        return Origin(self.source.describe(slice_.upto), left)

    def _on_lost(self) -> None:
        self._is_lease_lost = True
        if self._mover is not None:
            self._mover.cancel()

    def _on_overdue(self) -> None:
        """The run ends before its lease does: another one may begin then."""
        heartbeat, ttl = self._heartbeat, self.settings.lease_seconds
        silent = heartbeat.silent if heartbeat else ttl
        why = (heartbeat.trouble if heartbeat else None) or "it does not answer"
        self._lease_overdue = ConnectionFailed(
            f"the lease could not be renewed for {silent:.0f} s, and ends after {ttl:g} s: {why}",
            safe="Nothing was lost: the next run finishes the open slice.",
            next_step="see that the store answers, then run again",
            pipeline=self.pipeline,
        )
        if self._mover is not None:
            self._mover.cancel()

    def _check_interrupts(self, lease: Lease | None = None) -> None:
        """Give way to a signal, or to a process that took over.

        After a failure the lease is asked for: a process that was replaced meets the traces of the other one's
        work (what it staged is swept), and that is no failure of the stream.
        """
        if self._lease_overdue is not None:
            raise self._lease_overdue
        if self._heartbeat is not None and (recovered := self._heartbeat.recovered):
            self._heartbeat.recovered = None
            text = f"the lease could not be renewed at first: {recovered}; it is renewed again"
            self._reporter.report(Log(level="warning", text=text))
        if lease is not None:
            self.store.heartbeat(lease, now=self.clock.now(), ttl=self.settings.lease_seconds)
        if self._is_lease_lost:
            raise LeaseLost("the lease was taken over", next_step="", pipeline=self.pipeline)
        if self._signal is not None:
            raise Interrupted(self._signal)

    def _describe_takeover(self) -> LeaseLost:
        """Describe what happened to a process that was frozen for too long."""
        holder = self.store.holder(self.pipeline)
        by = f"by process {holder.lease.owner.pid} on {holder.lease.owner.host}" if holder else "in the meantime"
        return LeaseLost(
            f"this run sent no heartbeat for longer than its lease (frozen or cut off) and was replaced {by}; "
            "the other run continued from the open slice, and rows that this run had staged were not delivered twice",
            safe="Nothing was lost and nothing delivered twice.",
            next_step="none needed; `penstock status FILE` shows the progress of the other run",
            pipeline=self.pipeline,
        )

    def _fail(self, stream: str, error: PenstockError) -> None:
        error.at(pipeline=self.pipeline, stream=stream)
        self._failures.append(error)
        self._reporter.report_failure(stream, error)

    # ------------------------------------------------------------ one stream

    def _take_turn(self, gate: Gate) -> Turn | None:
        """One turn of one stream."""
        return self._isolate(gate, gate.turn)

    def _isolate(self, gate: Gate, work: Callable[[], Turn]) -> Turn | None:
        """Work on one stream; its failure is its own. None: it failed."""
        try:
            return work()
        except ConnectionFailed:
            # The server ends the transaction of a frozen process, which is no failure of the connection.
            if self._lease_overdue is None:
                with suppress(ConnectionFailed):
                    self._check_interrupts(gate.lease)
            raise
        except _FATAL:
            raise
        except NotOffered as error:
            self._check_interrupts(gate.lease)
            self._skip_or_fail(gate.stream, error)
        except PenstockError as error:
            self._check_interrupts(gate.lease)
            if gate.last_delivered is not None:
                number = gate.last_delivered.number
                at = f"the mark is at slice {number}, up to which everything was delivered"
                error.safe = error.safe.replace(NOT_MOVED, at)
            self._fail(gate.stream, error)
        except Exception as error:  # noqa: BLE001 (a stream's defect is its own: the others go on, and it is reported)
            self._check_interrupts(gate.lease)
            self._reporter.report(Log(level="debug", stream=gate.stream, text=traceback.format_exc()))
            self._fail(gate.stream, _as_defect(error))
        return None

    def _skip_or_fail(self, stream: str, error: NotOffered) -> None:
        """As for one that the catalog skips: the source's answer came later."""
        state = self.store.state(self.pipeline, stream)
        if has_delivered(state):
            self._fail(stream, error)
        else:
            self._reporter.report(StreamStatus(stream=stream, status=Status.SKIP, reason=error.what))

    def _conclude(self, limit: str | None, waiting: Sequence[Gate]) -> Ending:
        more = [gate for gate in waiting if self._has_more(gate)]
        for gate in waiting:
            if gate not in more:
                self._reporter.report(StreamStatus(stream=gate.stream, status=Status.COMPLETE))
        if self._failures:
            bad_input = all(isinstance(error, InputError) for error in self._failures)
            names = ", ".join(sorted({error.stream or "?" for error in self._failures}))
            return Ending("failed", 2 if bad_input else 1, True, f"failed: {names}")
        if limit and more:
            return Ending("limited", 0, True, f"stopped at {limit}")
        return Ending("complete", 0)

    def _has_more(self, gate: Gate) -> bool:
        try:
            return gate.has_more()
        except _FATAL:
            raise
        except PenstockError as error:
            self._fail(gate.stream, error)
        except Exception as error:  # noqa: BLE001 (as in a turn)
            self._reporter.report(Log(level="debug", stream=gate.stream, text=traceback.format_exc()))
            self._fail(gate.stream, _as_defect(error))
        return True


def _as_defect(error: Exception) -> StreamFailed:
    return StreamFailed(
        f"unexpected {type(error).__name__}: {error}",
        next_step="this is a defect in penstock or in a connector: please report it with the output of `--json`",
    )
