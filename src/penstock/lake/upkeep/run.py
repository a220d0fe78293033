"""Runs a table's upkeep from beginning to end: the steps in their order, each with its result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from penstock.core.retry import Retry
from penstock.errors import StreamFailed, StreamStopped
from penstock.lake.foreign import stamp
from penstock.lake.head_times import HEAD_TIMES, format_times
from penstock.lake.metadata import read_state
from penstock.lake.tables import LostRace, OutcomeUnknown, set_properties
from penstock.lake.upkeep.compaction import compact
from penstock.lake.upkeep.expiry import expire
from penstock.lake.upkeep.job import StepResult, UpkeepJob, refuse_rolled_back
from penstock.lake.upkeep.orphans import remove_orphans
from penstock.lake.upkeep.retention import retain
from penstock.lake.upkeep.tombstones import purge

#: in their order: what is dropped need not be compacted, and what compaction replaces need not be kept
STEPS: dict[str, Callable[[UpkeepJob], list[StepResult]]] = {
    "retention": retain,
    "tombstones": purge,
    "compaction": compact,
    "expiry": expire,
    "orphans": remove_orphans,
}

#: of a step, from its beginning
STARTS = Retry(5)


def run_upkeep(job: UpkeepJob, only: Collection[str] = tuple(STEPS)) -> Iterator[StepResult]:
    """Run the steps. The error of a failed step is in its result, and the others go on; StreamStopped ends it all."""
    state = read_state(job.lake, job.table)
    if state is None or not state.ours:
        why = "there is no such table" if state is None else "its rows have no order: penstock has not adopted it"
        yield StepResult("table", f"skipped: {why}")
        return
    state.refuse_other_version(job.name)
    refuse_rolled_back(job.name, state)
    yield from _number_foreign_rows(job)
    _record_head(job)
    for name, step in STEPS.items():
        if name in only:
            try:
                yield from _run_step(name, step, job)
            except StreamStopped:
                raise
            except StreamFailed as error:
                yield StepResult(name, error.what, error=error)


def _run_step(name: str, step: Callable[[UpkeepJob], list[StepResult]], job: UpkeepJob) -> list[StepResult]:
    """Run one step; it starts again if another upkeep has removed a file that it was about to read."""
    for _ in STARTS.attempts():
        with contextlib.suppress(FileNotFoundError), job.name_full_disk():
            return step(job)
    raise job.failed(
        f"{name}: files of the table disappeared {STARTS.tries} times while they were read",
        "find out who else removes them, then run the upkeep again",
    )


def _number_foreign_rows(job: UpkeepJob) -> Iterator[StepResult]:
    """Number foreign rows, before anything is removed that tells where they came from."""
    if job.dry_run:
        state = read_state(job.lake, job.table)
        if state is not None and not state.orderly:
            yield StepResult("order", "would number the rows that other programs wrote")
        return
    with job.name_full_disk():
        lines = stamp(job.lake, job.table, job.mover, job.probe)
    for line in lines:
        yield StepResult("order", line)


def _record_head(job: UpkeepJob) -> None:
    """Record where the head is now, as a property only; lost to another commit, the next upkeep records it."""
    table, state = job.load()
    times = format_times(state, (int(job.now.timestamp() * 1000), state.head))
    if not job.dry_run and times != state.properties.get(HEAD_TIMES):
        with contextlib.suppress(LostRace, OutcomeUnknown):
            set_properties(table, {HEAD_TIMES: times})
