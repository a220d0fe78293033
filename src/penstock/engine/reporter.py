"""What a run says: every message stamped, folded into state and progress, and passed on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace

from penstock.core import progress as progress_fold
from penstock.core import state as state_fold
from penstock.core.messages import Eof, Message, Status, StreamStatus
from penstock.core.progress import Progress
from penstock.core.state import State
from penstock.errors import Interrupted, LeaseLost, PenstockError, StreamStopped
from penstock.ports import Clock, RunRecord


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends."""

    #: complete, limited, failed, interrupted, lost
    status: str
    exit_code: int
    has_more: bool = False
    reason: str | None = None
    safe: str | None = None
    next_step: str | None = None

    @classmethod
    def of(cls, error: PenstockError) -> Ending:
        """How a run ends that an error has ended."""
        if isinstance(error, Interrupted):
            return cls("interrupted", error.code, True, error.what, error.safe, error.next_step)
        status = "lost" if isinstance(error, LeaseLost) else "failed"
        return cls(status, error.exit_code, True, error.what, error.safe, error.next_step)


class RunReporter:
    """Speaks for one execution."""

    def __init__(self, clock: Clock, emit: Callable[[Message], None], pipeline: str | None = None) -> None:
        self._clock, self._emit = clock, emit
        self._state = State()
        # A sink that works for long reports from a thread of its own.
        self._lock = threading.RLock()
        #: the run over all its continuations, and this execution alone
        self.run = self.request = Progress(pipeline=pipeline)
        #: messages from before the run was recorded; None: it is recorded
        self._early: list[Message] | None = []

    def report(self, message: Message) -> None:
        with self._lock:
            self._report(message.stamped(self._clock.now()))

    def _report(self, message: Message) -> None:
        self.run = progress_fold.apply(self.run, message)
        self.request = progress_fold.apply(self.request, message)
        self._state = state_fold.apply(self._state, message)
        if self._early is not None:
            self._early.append(message)
        self._emit(message)

    def continue_run(self, record: RunRecord) -> None:
        """The run goes on from the progress of the execution before."""
        before = {
            "pipeline": record.pipeline,
            "started": json.loads(record.totals).get("started"),
            "streams": [{"stream": stream} | json.loads(text) for stream, text in record.streams.items()],
        }
        self.run = progress_fold.fold(self._early or (), Progress.continued(before))
        self._early = None

    def totals(self) -> str:
        """What the run has done so far, for its record."""
        return json.dumps(self.run.totals())

    def progress_of(self, streams: Iterable[str]) -> dict[str, str]:
        """Streams of the run as its record keeps them."""
        return {stream: json.dumps(asdict(self.run.streams[stream])) for stream in streams}

    def progress_to_close(self) -> dict[str, str | None]:
        """Every stream of the run at its end; None: nothing to report."""
        kept = [stream for stream, progress in self.run.streams.items() if progress.is_worth_keeping]
        return {**dict.fromkeys(self.run.streams), **self.progress_of(kept)}

    def report_failure(self, stream: str, error: PenstockError) -> None:
        self.report(
            StreamStatus(
                stream=stream,
                status=Status.ERROR,
                reason=error.what,
                safe=error.safe,
                next_step=error.next_step,
                stopped=isinstance(error, StreamStopped),
            )
        )

    def close(self, ending: Ending) -> Eof:
        """The last message."""
        eof = Eof(
            status=ending.status,
            exit_code=ending.exit_code,
            has_more=ending.has_more,
            reason=ending.reason,
            safe=ending.safe,
            next_step=ending.next_step,
        ).stamped(self._clock.now())
        # Its own status is in the progress that it carries: no stream runs any more.
        run, request = (progress_fold.apply(progress, eof) for progress in (self.run, self.request))
        eof = replace(
            eof,
            ending_state=self._state.document(),
            run_progress=run.document(),
            request_progress=request.document(),
        )
        self._emit(eof)
        return eof
