"""A table's upkeep from beginning to end: the steps in their order, each with what it did."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from penstock.errors import StreamFailed, StreamStopped
from penstock.lake.foreign import stamp
from penstock.lake.head_times import HEAD_TIMES, format_times
from penstock.lake.metadata import read_state
from penstock.lake.tables import LostRace, OutcomeUnknown, translate_commit_errors
from penstock.lake.upkeep.job import StepResult, UpkeepJob

#: in their order: what is dropped need not be compacted, and what compaction replaces need not be kept
STEPS = ("retention", "tombstones", "compaction", "expiry", "orphans")

#: how often a step is begun
MAX_STARTS = 5


def run_upkeep(job: UpkeepJob, only: Collection[str] = STEPS) -> Iterator[StepResult]:
    """Do the steps. A step that fails is told with its error, and the others go on; StreamStopped ends it all."""
    state = read_state(job.lake, job.table)
    if state is None or not state.ours:
        why = "there is no such table" if state is None else "its rows have no order: penstock has not adopted it"
        yield StepResult("table", f"left alone: {why}")
        return
    from penstock.lake.upkeep.job import refuse_rolled_back

    refuse_rolled_back(job.name, state)
    yield from _numbered(job)
    from penstock.lake.upkeep.run import record

    record(job)
    for name in STEPS:
        if name in only:
            try:
                yield from _done(name, job)
            except StreamStopped:
                raise
            except StreamFailed as error:
                yield StepResult(name, error.what, error=error)


def _done(name: str, job: UpkeepJob) -> list[StepResult]:
    """One step; begun again where another upkeep has meanwhile removed a file that it was about to look at."""
    for _ in range(MAX_STARTS):
        with contextlib.suppress(FileNotFoundError), job.full_disk_named():
            return _step(name)(job)
    raise job.failed(
        f"{name}: files of the table went away {MAX_STARTS} times while they were looked at",
        "see who else removes them, then run the upkeep again",
    )


def _numbered(job: UpkeepJob) -> Iterator[StepResult]:
    """Rows that others have put in get their place before anything is forgotten that tells where they came from."""
    if job.dry_run:
        state = read_state(job.lake, job.table)
        if state is not None and not state.orderly:
            yield StepResult("order", "would give rows that others have put in their place in the order")
        return
    with job.full_disk_named():
        lines = stamp(job.lake, job.table, job.mover, job.probe)
    for line in lines:
        yield StepResult("order", line)


def _step(name: str) -> Callable[[UpkeepJob], list[StepResult]]:
    from penstock.lake.upkeep.compaction import compact
    from penstock.lake.upkeep.expiry import expire
    from penstock.lake.upkeep.orphans import remove_orphans
    from penstock.lake.upkeep.retention import retain
    from penstock.lake.upkeep.tombstones import purge

    steps = {
        "retention": retain,
        "tombstones": purge,
        "compaction": compact,
        "expiry": expire,
        "orphans": remove_orphans,
    }
    return steps[name]


def record(job: UpkeepJob) -> None:
    """Note where the head is now. A property alone; lost to another commit, the next upkeep notes it."""
    table, state = job.loaded()
    now = (int(job.now.timestamp() * 1000), state.head)
    times = format_times(state, now)
    if job.dry_run or times == state.properties.get(HEAD_TIMES):
        return
    try:
        with translate_commit_errors():
            table.transaction().set_properties({HEAD_TIMES: times}).commit_transaction()
    except (LostRace, OutcomeUnknown):
        return
