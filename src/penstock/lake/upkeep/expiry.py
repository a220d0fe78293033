"""Snapshot expiry: earlier states of a table are forgotten, and the files that only they named are removed.

By PyIceberg, so that no JVM is needed: Spark's procedure does the same work. PyIceberg itself drops the states alone,
so the files are found here, from the manifests. A state's age counts from the moment another took its place, because
that is how long a reader may have been at work on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.core.sizes import shown_duration
from penstock.errors import StreamStopped
from penstock.lake import names
from penstock.lake.forgetting import Forgetting, forget, held_by_refs, kept_until
from penstock.lake.merging import drop_branches, drop_tags
from penstock.lake.standing import Snapshot, Standing
from penstock.lake.upkeep.racing import raced
from penstock.lake.upkeep.reach import Reach, Slices, plain
from penstock.lake.upkeep.work import Done, Work, counted

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "expiry"
#: how long a branch is kept that no stream of the table claims
STRAY = timedelta(days=1)
#: branches of upkeep's own begin like this
OWN_BRANCH = "penstock_upkeep"


def must_be_whole(name: str, standing: Standing) -> None:
    """StreamStopped if main no longer shows what a stream's chain says: then nothing may be forgotten."""
    for (pipeline, stream), link in standing.links().items():
        if why := standing.stale(link):
            raise StreamStopped(
                f"{name} says it holds slice {link.position.number}, but {why}; upkeep would forget what is needed "
                "to put it right",
                next_step=f"put the table back as it was, or `penstock state recover FILE --stream {stream}`, then run "
                "the upkeep again",
                safe="Nothing was changed: no state was expired, no file removed.",
                pipeline=pipeline,
                stream=stream,
            )


def expire(work: Work) -> list[Done]:
    """Drop branches of attempts that are over and tags whose time is, then states that are old enough."""
    dropped = raced(work, "dropping branches", lambda table, standing: _drop(work, table, standing))
    done = raced(work, "expiring snapshots", lambda table, standing: _expire(work, table, standing))
    return [*dropped, *done]


# ---------------------------------------------------------------- branches


def _drop(work: Work, table: Table, standing: Standing) -> list[Done]:
    now_ms = int(work.now.timestamp() * 1000)
    late = [name for name in standing.tags if (until := kept_until(name)) is not None and until <= now_ms]
    if late and not work.dry_run:
        drop_tags(table, late)
        table, standing = work.loaded()
    old = over(standing, int((work.now - STRAY).timestamp() * 1000))
    if not old:
        return []
    noun = "branch" if len(old) == 1 else "branches"
    if work.dry_run:
        return [Done(STEP, f"would drop {len(old)} {noun} of attempts that are over", {"branches": old})]
    drop_branches(table, old)
    return [Done(STEP, f"dropped {len(old)} {noun} of attempts that are over", {"branches": old})]


def over(standing: Standing, stray_ms: int) -> list[str]:
    """Branches that no one will move main to: their slice is held; or no stream here claims them, and they are old."""
    held = Slices.of(standing).held
    found = []
    for name, snapshot in standing.branches.items():
        about = names.of_branch(name)
        made = standing.snapshots.get(snapshot)
        stray = made is not None and made.at_ms < stray_ms
        if about is not None:
            ours = about[1] <= held[about[0]] if about[0] in held else stray
        else:
            ours = name.startswith(OWN_BRANCH) and stray
        if ours:
            found.append(name)
    return sorted(found)


# ---------------------------------------------------------------- states


def _expire(work: Work, table: Table, standing: Standing) -> list[Done]:
    must_be_whole(work.name, standing)
    if not standing.orderly:
        return [Done(STEP, "nothing expired: others have written meanwhile, and their rows have no place yet")]
    options = work.options.snapshots
    cutoff = int((work.now - options.keep_for).timestamp() * 1000)
    gone = expirable(standing, cutoff, options.keep_at_least)
    kept = len(standing.snapshots) - len(gone)
    if not gone:
        return [Done(STEP, f"nothing to expire in {counted(kept, 'snapshot')}", {"snapshots": kept})]
    age = shown_duration(options.keep_for)
    if work.dry_run:
        text = f"would expire {counted(len(gone), 'snapshot')} replaced more than {age} ago, keeping {kept}"
        return [Done(STEP, text, {"expired": len(gone), "snapshots": kept})]
    files = _only_theirs(table, gone)
    forget(table, standing, Forgetting(gone))
    work.probe.at("lake.expired")
    # Not before they are forgotten: a crash leaves orphans, never a state without its files.
    removed = _remove(table, Slices.of(standing), files)
    text = (
        f"expired {counted(len(gone), 'snapshot')} replaced more than {age} ago, keeping {kept}; "
        f"removed {counted(removed, 'file')}"
    )
    return [Done(STEP, text, {"expired": len(gone), "snapshots": kept, "files_removed": removed})]


def expirable(standing: Standing, cutoff_ms: int, keep: int) -> list[int]:
    """States that may be forgotten, oldest first."""
    line = list(standing.line())
    kept = {snapshot.id for snapshot in line[: _kept(line, cutoff_ms, keep)]}
    kept |= held_by_refs(standing)
    shown = {snapshot.id for snapshot in line}
    gone = [
        snapshot
        for snapshot in standing.snapshots.values()
        if snapshot.id not in kept and (snapshot.id in shown or snapshot.at_ms < cutoff_ms)
    ]
    return [snapshot.id for snapshot in sorted(gone, key=lambda snapshot: snapshot.sequence)]


def _kept(line: list[Snapshot], cutoff_ms: int, keep: int) -> int:
    """How many of main's states stay, newest first: without a gap, so that history ends in one place."""
    young = [index for index in range(1, len(line)) if line[index - 1].at_ms >= cutoff_ms]
    return max(keep, 1, *(index + 1 for index in young)) if young else max(keep, 1)


def _only_theirs(table: Table, gone: Iterable[int]) -> set[str]:
    """Files that no other state names."""
    leaving = set(gone)
    snapshots = table.metadata.snapshots
    staying = Reach().add(table, (each for each in snapshots if each.snapshot_id not in leaving))
    going = Reach().add(table, (each for each in snapshots if each.snapshot_id in leaving), known=staying)
    return going.all - staying.all


def _remove(table: Table, slices: Slices, files: Iterable[str]) -> int:
    """Remove files that no state names any more; a landing that is tried again may still commit its own."""
    from penstock.lake.parquet import remove

    count = 0
    for path in sorted(files):
        if not slices.awaited(plain(path)):
            remove(path, table.io)
            count += 1
    return count
