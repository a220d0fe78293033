"""Earlier states that landings forget as they go, so that a landing costs the same however many came before it.

A metadata document lists every state that is kept, and each landing and each look reads it whole. Forgetting a state
removes no file: that is left to upkeep. A state whose files the next one still has can go at once. One whose files were
replaced (by a compaction, say) is kept under a tag until `keep_for` is over, since a query may still read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.lake import names
from penstock.lake.table_state import Snapshot, TableState

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: states beyond the limit that are forgotten together: each time costs a commit
SNAPSHOTS_AT_ONCE = 20
#: states replaced more recently than this stay: a writer such as Spark may check what came since it began
MIN_AGE = timedelta(hours=1)
#: a table that needs more tags than this replaces files with every commit; its states are left to upkeep
MOST_TAGS = 20

_TAG = re.compile(r"penstock_kept_(?P<until>\d+)_(?P<snapshot>\d+)")
#: in a summary: the files that a state no longer has
_REMOVED = (
    "deleted-data-files",
    "removed-delete-files",
    "removed-position-delete-files",
    "removed-equality-delete-files",
)


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """How many states stay, and for how long their files do."""

    most: int = 100
    least: int = 10
    keep_for: timedelta = timedelta(days=5)


@dataclass(frozen=True, slots=True)
class Pruning:
    """States to forget, tags for those that must stay, and tags whose time is over."""

    snapshots: Sequence[int]
    tags: Mapping[str, int] = field(default_factory=dict)
    over: Sequence[str] = ()


def find_prunable(state: TableState, limits: SnapshotLimits) -> Pruning | None:
    """What a landing may forget at the time of main's newest state; None: not enough to be worth a commit."""
    line = list(state.line())
    kept = max(limits.most, limits.least, 1)
    if len(line) < kept + SNAPSHOTS_AT_ONCE or not _is_safe(state):
        return None
    now = line[0].at_ms
    while kept < len(line) and line[kept - 1].at_ms >= now - _ms(MIN_AGE):
        kept += 1
    over = [name for name in state.tags if (until := kept_until(name)) is not None and until <= now]
    pinned = held_by_refs(state, leaving_out=over)
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
    """Nothing is forgotten that tells what others wrote, or that is needed to put a rolled-back table right."""
    return state.orderly and all(state.stale(link) is None for link in state.links().values())


def keeps_files(snapshot: Snapshot) -> bool:
    """Whether a state has every file of the one before it."""
    if snapshot.operation == "append":
        return True
    adds_deletes = "added-delete-files" in snapshot.summary
    return adds_deletes and not any(int(snapshot.summary.get(name, "0")) for name in _REMOVED)


def kept_until(tag: str) -> int | None:
    """Until when a tag of ours keeps a state, in milliseconds; None: it is not one of ours."""
    found = _TAG.fullmatch(tag)
    return int(found["until"]) if found else None


def held_by_refs(state: TableState, leaving_out: Sequence[str] = ()) -> set[int]:
    """What branches and tags hold: their states, and those below them up to main's history."""
    line = {snapshot.id for snapshot in state.line()}
    found: set[int] = set()
    for name, ref in (state.metadata.get("refs") or {}).items():
        at: int | None = ref["snapshot-id"] if name not in leaving_out else None
        while at is not None and at in state.snapshots:
            found.add(at)
            if at in line:
                break
            at = state.snapshots[at].parent
    return found


def prune(table: Table, state: TableState, forgetting: Pruning, properties: Mapping[str, str] | None = None) -> None:
    """Forget states, if main is still what was looked at; and say that everything up to there was in order."""
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        RemoveSnapshotsUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    from penstock.lake.tables import translate_commit_errors

    main = state.main
    assert main is not None
    seen = json.dumps({"snapshot": str(main.id), "sequence": main.sequence})
    updates: list[Any] = [
        SetPropertiesUpdate(updates={names.INSPECTED: seen, **(properties or {})}),
        *(
            SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": "tag", "snapshot-id": snapshot})
            for name, snapshot in forgetting.tags.items()
        ),
        *(RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in forgetting.over),
        RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(forgetting.snapshots)}),
    ]
    with translate_commit_errors():
        table.catalog.commit_table(
            table,
            requirements=(
                AssertTableUUID(uuid=table.metadata.table_uuid),
                AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": main.id}),
            ),
            updates=tuple(updates),
        )


def _ms(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
