"""Sets a table's chain to what main shows after a rollback, at the operator's request. Never lowers the head."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.documents import canonical
from penstock.errors import StreamStopped
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.table_state import Link, TableState
from penstock.lake.tables import NewSnapshot, commit_snapshot, extract_state, load_table, retry_commit

if TYPE_CHECKING:
    from pyiceberg.table import Table


def recover(lake: Lake, table: str, pipeline: str, stream: str) -> Sequence[str]:
    """Make the chain fit what main shows, with an empty snapshot; returns which slice was withdrawn."""

    def attempt() -> Sequence[str]:
        loaded = load_table(lake, table)
        state = extract_state(loaded) if loaded else None
        link = state.link(pipeline, stream) if state else None
        if loaded is None or state is None or link is None or state.stale(link) is None:
            return ()
        shown = find_last_shown(state, pipeline, stream)
        if shown is None and not state.whole:
            raise StreamStopped(
                f"the table {table} was rolled back, and its history no longer shows which slice of this stream it "
                "holds",
                next_step=f"restore the table as it was; or drop {table} and recover again: everything is delivered "
                "again into a new table",
                safe="Nothing was changed.",
                pipeline=pipeline,
                stream=stream,
            )
        _commit_chain(loaded, state, shown, pipeline, stream)
        now = f"slice {shown.position.number}" if shown else "no slice"
        return (f"the table {table} held slice {link.position.number} before it was rolled back; it now holds {now}",)

    def give_up(why: str) -> StreamStopped:
        step = "recover again when fewer pipelines write to it"
        return StreamStopped(f"{table}: {why}", next_step=step, pipeline=pipeline, stream=stream)

    return retry_commit(attempt, give_up)


def _commit_chain(table: Table, state: TableState, shown: Link | None, pipeline: str, stream: str) -> None:
    name = names.chain_property(pipeline, stream)
    side = find_side(state)

    def document(new: NewSnapshot) -> dict[str, Any]:
        if shown is None:
            return {"number": 0}
        return replace(shown, uuid=state.uuid, snapshot=new.snapshot, sequence=new.sequence).document()

    commit_snapshot(
        table,
        kind="recover",
        head=state.head,
        properties=lambda new: {**({name: canonical(document(new))} if shown else {}), **side},
        summary=lambda new: {names.CHAIN: canonical({**document(new), "pipeline": pipeline, "stream": stream})},
        unset=[*(() if shown else (name,)), *(() if side else (names.SIDE,))],
    )


def find_side(state: TableState) -> dict[str, str]:
    """Find the side data that belongs to what main shows: as the newest snapshot that names it says."""
    named = (snapshot.summary.get(names.SIDE) for snapshot in state.line())
    return next(({names.SIDE: side} for side in named if side), {})


def find_last_shown(state: TableState, pipeline: str, stream: str) -> Link | None:
    """Find the newest slice of a stream whose landing main's own history still shows."""
    for snapshot in state.line():
        text = snapshot.summary.get(names.CHAIN)
        document = json.loads(text) if text else None
        if document is not None and (document["pipeline"], document["stream"]) == (pipeline, stream):
            # An earlier recovery that found no slice wrote number 0.
            return Link.read(document, state.properties) if document["number"] else None
    return None
