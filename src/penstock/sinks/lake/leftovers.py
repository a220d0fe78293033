"""Data files that attempts at a slice left behind, found by their names in a local warehouse. Without PyIceberg."""

from __future__ import annotations

import json
import os

from penstock.core.marks import Position
from penstock.lake import names
from penstock.lake.standing import Standing


def leftovers(standing: Standing, pipeline: str, stream: str, held: Position) -> list[str]:
    """Files of slice `held` that the attempt which landed it did not write.

    Only where the table says that it holds this slice, and never those of an attempt that any snapshot names: one
    that was rolled back may be rolled forward again.
    """
    landed = _attempts(standing, pipeline, stream, held)
    folder = _data_folder(standing)
    if not landed or folder is None or not os.path.isdir(folder):
        return []
    tag = names.stream_tag(pipeline, stream)
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            about = names.of_file(entry.name)
            if about and about[:2] == (tag, held.number) and about[2] not in landed:
                found.append(entry.path)
    return found


def _attempts(standing: Standing, pipeline: str, stream: str, held: Position) -> set[str]:
    """The attempts that have landed this slice number; empty: the table does not say."""
    own = json.loads(standing.properties.get(names.chain_property(pipeline, stream)) or "{}")
    if own.get("id") != held.id or "attempt" not in own:
        return set()
    attempts = {own["attempt"]}
    for snapshot in standing.snapshots.values():
        said = json.loads(snapshot.summary.get(names.CHAIN) or "{}")
        if (said.get("pipeline"), said.get("stream"), said.get("number")) == (pipeline, stream, held.number):
            attempts.add(said.get("attempt", ""))
    return attempts


def _data_folder(standing: Standing) -> str | None:
    """Where the table's data files lie; None: not on this machine's disk."""
    location = standing.properties.get("write.data.path") or f"{standing.location.rstrip('/')}/data"
    return location.removeprefix("file://") if location.startswith(("file://", "/")) else None
