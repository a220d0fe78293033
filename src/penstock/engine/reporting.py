"""How an execution ended, as the store keeps it for people who ask later. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from penstock.core.messages import Status
from penstock.core.progress import Progress
from penstock.core.reports import WHOLE_RUN, Problem, RunReport
from penstock.engine.reporter import Ending
from penstock.errors import Interrupted, PenstockError


def report_of(
    ending: Ending,
    progress: Progress,
    *,
    at: datetime,
    is_run: bool,
    looked: Sequence[str] | None,
    only: tuple[str, ...] | None,
    failures: Sequence[PenstockError],
    error: PenstockError | None,
) -> RunReport:
    """`progress` is of this execution alone; `looked` are its streams, None if both sides were not reached.

    `failures` are the streams' own errors, `error` is the one that ended the run as a whole.
    """
    problems = {failure.stream or WHOLE_RUN: _problem(failure) for failure in failures}
    if error is not None and not isinstance(error, Interrupted):
        problems[WHOLE_RUN] = _problem(error)
    succeeded = [stream for stream in looked or () if stream not in problems and error is None]
    if is_run:
        # At a limit, or when the run was ended, some streams had no turn: their state is unknown.
        good = (Status.COMPLETE, Status.RANGE_COMPLETE)
        succeeded = [name for name, stream in progress.streams.items() if stream.status in good]
    if looked is not None and WHOLE_RUN not in problems:
        succeeded.append(WHOLE_RUN)
    return RunReport(
        at=at,
        is_run=is_run,
        streams=only,
        looked=looked is not None,
        idle=ending.status == "complete" and not progress.slices,
        failed=ending.status == "failed",
        rows=progress.rows,
        bytes=progress.bytes,
        problems=problems,
        succeeded=tuple(succeeded),
    )


def _problem(error: PenstockError) -> Problem:
    return Problem(error.what, error.safe, error.next_step)
