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
from penstock.lake import names
from penstock.lake.merging import drop_branches, drop_tags
from penstock.lake.pruning import Pruning, held_by_refs, kept_until, prune
from penstock.lake.table_state import Snapshot, TableState
from penstock.lake.upkeep.job import StepResult, UpkeepJob, count_noun, refuse_rolled_back, retry_lost_races
from penstock.lake.upkeep.orphans import ReferencedFiles, Slices, normalize

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "expiry"
#: how long a branch is kept that no stream of the table claims
STRAY_BRANCH_AGE = timedelta(days=1)
#: branches of upkeep's own begin like this
OWN_BRANCH = "penstock_upkeep"


def expire(job: UpkeepJob) -> list[StepResult]:
    """Drop branches of attempts that are over and tags whose time is, then states that are old enough."""
    dropped = retry_lost_races(job, "dropping branches", lambda table, state: _drop(job, table, state))
    done = retry_lost_races(job, "expiring snapshots", lambda table, state: _expire(job, table, state))
    return [*dropped, *done]


# ---------------------------------------------------------------- branches


def _drop(job: UpkeepJob, table: Table, state: TableState) -> list[StepResult]:
    now_ms = int(job.now.timestamp() * 1000)
    late = [name for name in state.tags if (until := kept_until(name)) is not None and until <= now_ms]
    if late and not job.dry_run:
        drop_tags(table, late)
        table, state = job.loaded()
    old = find_finished_branches(state, int((job.now - STRAY_BRANCH_AGE).timestamp() * 1000))
    if not old:
        return []
    noun = "branch" if len(old) == 1 else "branches"
    if job.dry_run:
        return [StepResult(STEP, f"would drop {len(old)} {noun} of attempts that are over", {"branches": old})]
    drop_branches(table, old)
    return [StepResult(STEP, f"dropped {len(old)} {noun} of attempts that are over", {"branches": old})]


def find_finished_branches(state: TableState, stray_ms: int) -> list[str]:
    """Branches that no one will move main to: their slice is held; or no stream here claims them, and they are old."""
    held = Slices.of(state).held
    found = []
    for name, snapshot in state.branches.items():
        about = names.parse_branch(name)
        made = state.snapshots.get(snapshot)
        stray = made is not None and made.at_ms < stray_ms
        if about is not None:
            ours = about[1] <= held[about[0]] if about[0] in held else stray
        else:
            ours = name.startswith(OWN_BRANCH) and stray
        if ours:
            found.append(name)
    return sorted(found)


# ---------------------------------------------------------------- states


def _expire(job: UpkeepJob, table: Table, state: TableState) -> list[StepResult]:
    refuse_rolled_back(job.name, state)
    if not state.orderly:
        return [StepResult(STEP, "nothing expired: others have written meanwhile, and their rows have no place yet")]
    options = job.options.snapshots
    cutoff = int((job.now - options.keep_for).timestamp() * 1000)
    gone = find_expirable(state, cutoff, options.keep_at_least)
    kept = len(state.snapshots) - len(gone)
    if not gone:
        return [StepResult(STEP, f"nothing to expire in {count_noun(kept, 'snapshot')}", {"snapshots": kept})]
    age = shown_duration(options.keep_for)
    if job.dry_run:
        text = f"would expire {count_noun(len(gone), 'snapshot')} replaced more than {age} ago, keeping {kept}"
        return [StepResult(STEP, text, {"expired": len(gone), "snapshots": kept})]
    files = _only_theirs(table, gone)
    prune(table, state, Pruning(gone))
    job.probe.at("lake.expired")
    # Not before they are forgotten: a crash leaves orphans, never a state without its files.
    removed = _remove(table, Slices.of(state), files)
    text = (
        f"expired {count_noun(len(gone), 'snapshot')} replaced more than {age} ago, keeping {kept}; "
        f"removed {count_noun(removed, 'file')}"
    )
    return [StepResult(STEP, text, {"expired": len(gone), "snapshots": kept, "files_removed": removed})]


def find_expirable(state: TableState, cutoff_ms: int, keep: int) -> list[int]:
    """States that may be forgotten, oldest first."""
    line = list(state.line())
    kept = {snapshot.id for snapshot in line[: _kept(line, cutoff_ms, keep)]}
    kept |= held_by_refs(state)
    shown = {snapshot.id for snapshot in line}
    gone = [
        snapshot
        for snapshot in state.snapshots.values()
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
    staying = ReferencedFiles().add(table, (each for each in snapshots if each.snapshot_id not in leaving))
    going = ReferencedFiles().add(table, (each for each in snapshots if each.snapshot_id in leaving), known=staying)
    return going.all - staying.all


def _remove(table: Table, slices: Slices, files: Iterable[str]) -> int:
    """Remove files that no state names any more; a landing that is tried again may still commit its own."""
    from penstock.lake.parquet import remove

    count = 0
    for path in sorted(files):
        if not slices.awaited(normalize(path)):
            remove(path, table.io)
            count += 1
    return count
