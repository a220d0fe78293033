"""Data files that attempts at a slice left behind, found by their names in a local warehouse. Without PyIceberg."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from penstock.core.marks import Position
from penstock.lake import names
from penstock.lake.table_state import TableState


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Leftovers in the folder of a table's data files."""

    #: files of slice `held` that the attempt which landed it did not write
    files: list[str]
    #: whether there are files of the slice after it already
    next_begun: bool


def leftovers(state: TableState, pipeline: str, stream: str, held: Position) -> Leftovers:
    """Look for files that attempts at slice `held` left behind.

    Only where the table says that it holds this slice, and never those of an attempt that any snapshot names: one
    that was rolled back may be rolled forward again.
    """
    staged = _attempts(state, pipeline, stream, held)
    folder = _data_folder(state)
    if not staged or folder is None or not os.path.isdir(folder):
        return Leftovers([], next_begun=True)
    # By the beginning of their names: a folder may have a file for each of many thousand slices.
    this, following = (names.file_stem(pipeline, stream, held.number + more, "") for more in (0, 1))
    listed = os.listdir(folder)
    found = [name for name in listed if name.startswith(this)]
    return Leftovers(
        [
            os.path.join(folder, name)
            for name in found
            if (about := names.parse_file_name(name)) and about[2] not in staged
        ],
        next_begun=any(name.startswith(following) for name in listed),
    )


def _attempts(state: TableState, pipeline: str, stream: str, held: Position) -> set[str]:
    """The attempts that have landed this slice number; empty: unknown."""
    own = json.loads(state.properties.get(names.chain_property(pipeline, stream)) or "{}")
    if own.get("id") != held.id or "attempt" not in own:
        return set()
    attempts = {own["attempt"]}
    for snapshot in state.snapshots.values():
        said = json.loads(snapshot.summary.get(names.CHAIN) or "{}")
        if (said.get("pipeline"), said.get("stream"), said.get("number")) == (pipeline, stream, held.number):
            attempts.add(said.get("attempt", ""))
    return attempts


def _data_folder(state: TableState) -> str | None:
    """Where the table's data files lie; None: not on this machine's disk."""
    location = state.properties.get("write.data.path") or f"{state.location.rstrip('/')}/data"
    return location.removeprefix("file://") if location.startswith(("file://", "/")) else None
