"""On the operator's word: set a table's chain to what main shows after a rollback. Never lowers the head."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.core.documents import canonical
from penstock.errors import StreamStopped
from penstock.lake import names
from penstock.lake.place import Place
from penstock.lake.standing import Link, Standing
from penstock.lake.tables import LostRace, Planted, commit, load, standing_of

TRIES = 20


def recover(place: Place, table: str, pipeline: str, stream: str) -> Sequence[str]:
    """Make the chain fit what main shows, with an empty snapshot; what was withdrawn, in words."""
    for _ in range(TRIES):
        loaded = load(place, table)
        standing = standing_of(loaded) if loaded else None
        link = standing.link(pipeline, stream) if standing else None
        if loaded is None or standing is None or link is None or standing.stale(link) is None:
            return ()
        shown = last_shown(standing, pipeline, stream)
        if shown is None and not _complete(standing):
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
            planted: Planted, shown: Link | None = shown, standing: Standing = standing, name: str = name
        ) -> dict[str, str]:
            return {name: canonical(_moved(shown, standing, planted).document())} if shown else {}

        def summary(planted: Planted, shown: Link | None = shown, standing: Standing = standing) -> dict[str, str]:
            document = _moved(shown, standing, planted).document() if shown else {"number": 0}
            return {names.CHAIN: canonical({**document, "pipeline": pipeline, "stream": stream})}

        try:
            commit(
                loaded,
                kind="recover",
                head=standing.head,
                properties=properties,
                summary=summary,
                unset=() if shown else (name,),
            )
        except LostRace:
            continue
        now = f"slice {shown.position.number}" if shown else "nothing"
        return (f"the table {table} held slice {link.position.number} before it was rolled back; it holds {now} now",)
    raise StreamStopped(
        f"other writers of {table} came first {TRIES} times",
        next_step="recover again when fewer pipelines write to it",
        pipeline=pipeline,
        stream=stream,
    )


def last_shown(standing: Standing, pipeline: str, stream: str) -> Link | None:
    """The newest slice of a stream whose landing main's own history still shows."""
    for snapshot in standing.line():
        text = snapshot.summary.get(names.CHAIN)
        document = json.loads(text) if text else None
        if document is not None and (document["pipeline"], document["stream"]) == (pipeline, stream):
            # An earlier recovery that found no slice says number 0.
            return Link.read(document, standing.properties) if document["number"] else None
    return None


def _complete(standing: Standing) -> bool:
    """Whether main's history goes back to the table's beginning.

    A parent that is not named proves nothing: PyIceberg takes the name away when it expires the parent. The first
    snapshot of a table is the one with the first sequence number.
    """
    line = list(standing.line())
    return not line or (line[-1].parent is None and line[-1].sequence <= 1)


def _moved(link: Link, standing: Standing, planted: Planted) -> Link:
    return Link(
        position=link.position,
        kind=link.kind,
        rows=link.rows,
        bytes=link.bytes,
        uuid=standing.uuid,
        snapshot=planted.snapshot,
        sequence=planted.sequence,
    )
