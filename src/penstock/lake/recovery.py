"""On the operator's word: set a table's chain to what main shows after a rollback. Never lowers the head."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.core.documents import canonical
from penstock.errors import StreamStopped
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.table_state import Link, TableState
from penstock.lake.tables import LostRace, NewSnapshot, commit_snapshot, extract_state, load_table

MAX_LOST_RACES = 20


def recover(lake: Lake, table: str, pipeline: str, stream: str) -> Sequence[str]:
    """Make the chain fit what main shows, with an empty snapshot; what was withdrawn, in words."""
    for _ in range(MAX_LOST_RACES):
        loaded = load_table(lake, table)
        state = extract_state(loaded) if loaded else None
        link = state.link(pipeline, stream) if state else None
        if loaded is None or state is None or link is None or state.stale(link) is None:
            return ()
        shown = last_shown(state, pipeline, stream)
        if shown is None and not _complete(state):
            raise StreamStopped(
                f"the table {table} was rolled back, and its history no longer tells which slice of this stream it "
                "still holds",
                next_step=f"put the table back as it was; or drop {table} and recover again: everything is delivered "
                "anew into a new table",
                safe="Nothing was changed.",
                pipeline=pipeline,
                stream=stream,
            )
        name = names.chain_property(pipeline, stream)

        def properties(
            new: NewSnapshot, shown: Link | None = shown, state: TableState = state, name: str = name
        ) -> dict[str, str]:
            return {name: canonical(_moved(shown, state, new).document())} if shown else {}

        def summary(new: NewSnapshot, shown: Link | None = shown, state: TableState = state) -> dict[str, str]:
            document = _moved(shown, state, new).document() if shown else {"number": 0}
            return {names.CHAIN: canonical({**document, "pipeline": pipeline, "stream": stream})}

        try:
            commit_snapshot(
                loaded,
                kind="recover",
                head=state.head,
                properties=properties,
                summary=summary,
                unset=() if shown else (name,),
            )
        except LostRace:
            continue
        now = f"slice {shown.position.number}" if shown else "nothing"
        return (f"the table {table} held slice {link.position.number} before it was rolled back; it holds {now} now",)
    raise StreamStopped(
        f"other writers of {table} came first {MAX_LOST_RACES} times",
        next_step="recover again when fewer pipelines write to it",
        pipeline=pipeline,
        stream=stream,
    )


def last_shown(state: TableState, pipeline: str, stream: str) -> Link | None:
    """The newest slice of a stream whose landing main's own history still shows."""
    for snapshot in state.line():
        text = snapshot.summary.get(names.CHAIN)
        document = json.loads(text) if text else None
        if document is not None and (document["pipeline"], document["stream"]) == (pipeline, stream):
            # An earlier recovery that found no slice says number 0.
            return Link.read(document, state.properties) if document["number"] else None
    return None


def _complete(state: TableState) -> bool:
    """Whether main's history goes back to the table's beginning.

    A parent that is not named proves nothing: PyIceberg takes the name away when it expires the parent. The first
    snapshot of a table is the one with the first sequence number.
    """
    line = list(state.line())
    return not line or (line[-1].parent is None and line[-1].sequence <= 1)


def _moved(link: Link, state: TableState, new: NewSnapshot) -> Link:
    return Link(
        position=link.position,
        kind=link.kind,
        rows=link.rows,
        bytes=link.bytes,
        uuid=state.uuid,
        snapshot=new.snapshot,
        sequence=new.sequence,
    )
