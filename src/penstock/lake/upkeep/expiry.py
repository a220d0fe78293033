"""Snapshot expiry: removes earlier snapshots of a table, and the files that only they named.

By PyIceberg, so that no JVM is needed: Spark's procedure does the same work. PyIceberg itself removes the snapshots
only, so the files are found here, from the manifests. A snapshot's age counts from the time another took its place,
because that is how long a reader may have been using it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.core.sizes import count_noun, shown_duration
from penstock.lake import names
from penstock.lake.parquet import remove
from penstock.lake.pruning import Pruning, find_referenced, read_tag_expiry
from penstock.lake.table_state import Snapshot, TableState
from penstock.lake.tables import drop_refs, prune
from penstock.lake.upkeep.job import StepResult, UpkeepJob, refuse_rolled_back, retry_lost_races
from penstock.lake.upkeep.orphans import HeldSlices, ReferencedFiles, normalize

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "expiry"
#: how long a branch is kept that no stream of the table claims
STRAY_BRANCH_AGE = timedelta(days=1)
#: names of upkeep's own branches begin like this
OWN_BRANCH = "penstock_upkeep"


def expire(job: UpkeepJob) -> list[StepResult]:
    """Drop branches of finished attempts and expired tags, then snapshots that are old enough."""
    dropped = retry_lost_races(job, "dropping branches", lambda table, state: _drop_refs(job, table, state))
    done = retry_lost_races(job, "expiring snapshots", lambda table, state: _expire(job, table, state))
    return [*dropped, *done]


# ---------------------------------------------------------------- branches


def _drop_refs(job: UpkeepJob, table: Table, state: TableState) -> list[StepResult]:
    now_ms = int(job.now.timestamp() * 1000)
    late = [name for name in state.tags if (until := read_tag_expiry(name)) is not None and until <= now_ms]
    if late and not job.dry_run:
        drop_refs(table, late)
        table, state = job.load()
    old = find_finished_branches(state, int((job.now - STRAY_BRANCH_AGE).timestamp() * 1000))
    if not old:
        return []
    if not job.dry_run:
        drop_refs(table, old)
    noun = "branch" if len(old) == 1 else "branches"
    verb = "would drop" if job.dry_run else "dropped"
    return [StepResult(STEP, f"{verb} {len(old)} {noun} of finished attempts", {"branches": old})]


def find_finished_branches(state: TableState, stray_ms: int) -> list[str]:
    """Find branches to which no one will move main: the slice is held; or no stream claims them, and they are old."""
    held = HeldSlices.of(state).numbers
    found = []
    for name, snapshot in state.branches.items():
        about = names.parse_branch(name)
        made = state.snapshots.get(snapshot)
        stray = made is not None and made.at_ms < stray_ms
        if about is not None:
            finished = about[1] <= held[about[0]] if about[0] in held else stray
        else:
            finished = name.startswith(OWN_BRANCH) and stray
        if finished:
            found.append(name)
    return sorted(found)


# ---------------------------------------------------------------- snapshots


def _expire(job: UpkeepJob, table: Table, state: TableState) -> list[StepResult]:
    refuse_rolled_back(job.name, state)
    if not state.orderly:
        return [StepResult(STEP, "nothing expired: other programs wrote rows that have no numbers yet")]
    options = job.options.snapshots
    cutoff = int((job.now - options.keep_for).timestamp() * 1000)
    gone = find_expirable(state, cutoff, options.keep_at_least)
    kept = len(state.snapshots) - len(gone)
    if not gone:
        return [StepResult(STEP, f"nothing to expire in {count_noun(kept, 'snapshot')}", {"snapshots": kept})]
    what = f"{count_noun(len(gone), 'snapshot')} replaced more than {shown_duration(options.keep_for)} ago"
    facts = {"expired": len(gone), "snapshots": kept}
    if job.dry_run:
        return [StepResult(STEP, f"would expire {what}, keeping {kept}", facts)]
    files = _find_unshared_files(table, gone)
    prune(table, state, Pruning(gone))
    job.probe.at("lake.expired")
    # Only after the snapshots are gone: a crash leaves orphans, never a snapshot without its files.
    removed = _remove(table, HeldSlices.of(state), files)
    text = f"expired {what}, keeping {kept}; removed {count_noun(removed, 'file')}"
    return [StepResult(STEP, text, {**facts, "files_removed": removed})]


def find_expirable(state: TableState, cutoff_ms: int, keep: int) -> list[int]:
    """Find snapshots that may be removed, oldest first."""
    line = list(state.line())
    kept = {snapshot.id for snapshot in line[: _count_kept(line, cutoff_ms, keep)]}
    kept |= find_referenced(state)
    shown = {snapshot.id for snapshot in line}
    gone = [
        snapshot
        for snapshot in state.snapshots.values()
        if snapshot.id not in kept and (snapshot.id in shown or snapshot.at_ms < cutoff_ms)
    ]
    return [snapshot.id for snapshot in sorted(gone, key=lambda snapshot: snapshot.sequence)]


def _count_kept(line: list[Snapshot], cutoff_ms: int, keep: int) -> int:
    """How many of main's snapshots stay, newest first: without a gap, so that history ends in one place."""
    young = (index for index in range(1, len(line)) if line[index - 1].at_ms >= cutoff_ms)
    return max(keep, 1, *(index + 1 for index in young))


def _find_unshared_files(table: Table, gone: Iterable[int]) -> set[str]:
    """Find files that no other snapshot names."""
    leaving = set(gone)
    snapshots = table.metadata.snapshots
    staying = ReferencedFiles().add(table, (each for each in snapshots if each.snapshot_id not in leaving))
    going = ReferencedFiles().add(table, (each for each in snapshots if each.snapshot_id in leaving), known=staying)
    return going.all - staying.all


def _remove(table: Table, held: HeldSlices, files: Iterable[str]) -> int:
    """Remove files that no snapshot names; a landing that is tried again may still commit its own."""
    paths = [path for path in sorted(files) if not held.is_awaited(normalize(path))]
    for path in paths:
        remove(path, table.io)
    return len(paths)
