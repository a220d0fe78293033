"""Chooses earlier snapshots that landings remove from the metadata, so that a landing costs the same however many
came before it.

A metadata document lists every snapshot that is kept, and each landing and each look reads all of it. Removing a
snapshot here deletes no file; upkeep does that. A snapshot whose files the next one still has can go at once. One whose
files were replaced, by a compaction for example, is kept under a tag for `keep_for`, because a query may still read
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.lake.table_state import Snapshot, TableState

#: snapshots beyond the limit that are removed together: each removal costs a commit
SNAPSHOTS_AT_ONCE = 20
#: snapshots replaced more recently than this stay: a writer such as Spark may check what came since it began
MIN_AGE = timedelta(hours=1)
#: a table that needs more tags than this replaces files with every commit; its snapshots are left to upkeep
MOST_TAGS = 20

_TAG = re.compile(r"penstock_kept_(?P<until>\d+)_(?P<snapshot>\d+)")
#: summary entries that count the files a snapshot no longer has
_REMOVED = (
    "deleted-data-files",
    "removed-delete-files",
    "removed-position-delete-files",
    "removed-equality-delete-files",
)


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """How many snapshots are kept, and for how long their files are."""

    most: int = 100
    least: int = 10
    keep_for: timedelta = timedelta(days=5)


@dataclass(frozen=True, slots=True)
class Pruning:
    """Snapshots to remove, tags for those that must stay, and tags that have expired."""

    snapshots: Sequence[int]
    tags: Mapping[str, int] = field(default_factory=dict)
    over: Sequence[str] = ()


def find_prunable(state: TableState, limits: SnapshotLimits) -> Pruning | None:
    """Find what a landing may remove, at the time of main's newest snapshot; None: too little to be worth a commit."""
    line = list(state.line())
    kept = max(limits.most, limits.least, 1)
    if len(line) < kept + SNAPSHOTS_AT_ONCE or not _is_safe(state):
        return None
    now = line[0].at_ms
    while kept < len(line) and line[kept - 1].at_ms >= now - _ms(MIN_AGE):
        kept += 1
    over = [name for name in state.tags if (until := read_tag_expiry(name)) is not None and until <= now]
    pinned = find_referenced(state, except_for=over)
    gone, tags = [], {}
    for successor, snapshot in zip(line[kept - 1 :], line[kept:], strict=False):
        if snapshot.id in pinned:
            continue
        until = successor.at_ms + _ms(limits.keep_for)
        if until > now and not keeps_files(successor):
            tags[f"penstock_kept_{until}_{snapshot.id}"] = snapshot.id
        else:
            gone.append(snapshot.id)
    if len(gone) < SNAPSHOTS_AT_ONCE or len(tags) > MOST_TAGS:
        return None
    unpinned = [state.tags[name] for name in over if state.tags[name] not in pinned]
    listed = {snapshot.id for snapshot in line}
    return Pruning([*gone, *(snapshot for snapshot in dict.fromkeys(unpinned) if snapshot not in listed)], tags, over)


def _is_safe(state: TableState) -> bool:
    """Whether no snapshot is needed to see what other programs wrote, or to repair a rolled-back table."""
    return state.orderly and all(state.stale(link) is None for link in state.links().values())


def keeps_files(snapshot: Snapshot) -> bool:
    """Whether a snapshot has every file of the one before it."""
    if snapshot.operation == "append":
        return True
    adds_deletes = "added-delete-files" in snapshot.summary
    return adds_deletes and not any(int(snapshot.summary.get(name, "0")) for name in _REMOVED)


def read_tag_expiry(tag: str) -> int | None:
    """Read until when a tag of penstock keeps a snapshot, in milliseconds; None: it is another tag."""
    found = _TAG.fullmatch(tag)
    return int(found["until"]) if found else None


def find_referenced(state: TableState, except_for: Sequence[str] = ()) -> set[int]:
    """Find the snapshots that branches and tags hold: their own, and those below them down to main's history."""
    line = {snapshot.id for snapshot in state.line()}
    found: set[int] = set()
    for name, ref in (state.metadata.get("refs") or {}).items():
        at: int | None = ref["snapshot-id"] if name not in except_for else None
        while at is not None and at in state.snapshots:
            found.add(at)
            if at in line:
                break
            at = state.snapshots[at].parent
    return found


def _ms(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
