"""A table's upkeep from beginning to end: the steps in their order, each with what it did."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from penstock.errors import StreamFailed, StreamStopped
from penstock.lake.foreign import stamp
from penstock.lake.peek import peek
from penstock.lake.upkeep.work import Done, Work

#: in their order: what is dropped need not be compacted, and what compaction replaces need not be kept
STEPS = ("retention", "tombstones", "compaction", "expiry", "orphans")

#: how often a step is begun
LOOKS = 5


def keep(work: Work, only: Collection[str] = STEPS) -> Iterator[Done]:
    """Do the steps. A step that fails is told with its error, and the others go on; StreamStopped ends it all."""
    standing = peek(work.place, work.table)
    if standing is None or not standing.ours:
        why = "there is no such table" if standing is None else "its rows have no order: penstock has not adopted it"
        yield Done("table", f"left alone: {why}")
        return
    from penstock.lake.upkeep.expiry import must_be_whole

    must_be_whole(work.name, standing)
    yield from _numbered(work)
    from penstock.lake.upkeep.times import record

    record(work)
    for name in STEPS:
        if name in only:
            try:
                yield from _done(name, work)
            except StreamStopped:
                raise
            except StreamFailed as error:
                yield Done(name, error.what, error=error)


def _done(name: str, work: Work) -> list[Done]:
    """One step; begun again where another upkeep has meanwhile removed a file that it was about to look at."""
    for _ in range(LOOKS):
        with contextlib.suppress(FileNotFoundError), work.full_disk_named():
            return _step(name)(work)
    raise work.failed(
        f"{name}: files of the table went away {LOOKS} times while they were looked at",
        "see who else removes them, then run the upkeep again",
    )


def _numbered(work: Work) -> Iterator[Done]:
    """Rows that others have put in get their place before anything is forgotten that tells where they came from."""
    if work.dry_run:
        standing = peek(work.place, work.table)
        if standing is not None and not standing.orderly:
            yield Done("order", "would give rows that others have put in their place in the order")
        return
    with work.full_disk_named():
        lines = stamp(work.place, work.table, work.mover, work.probe)
    for line in lines:
        yield Done("order", line)


def _step(name: str) -> Callable[[Work], list[Done]]:
    from penstock.lake.upkeep.compaction import compact
    from penstock.lake.upkeep.expiry import expire
    from penstock.lake.upkeep.orphans import sweep
    from penstock.lake.upkeep.retention import retain
    from penstock.lake.upkeep.tombstones import purge

    steps = {"retention": retain, "tombstones": purge, "compaction": compact, "expiry": expire, "orphans": sweep}
    return steps[name]
