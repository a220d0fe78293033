"""The chain that a table holds: which slice of a stream came last, and whether main still shows it."""

from __future__ import annotations

from penstock.errors import StreamStopped
from penstock.lake.standing import Link, Standing


def held(standing: Standing | None, pipeline: str, stream: str, table: str) -> Link | None:
    """The last slice a table holds for a stream; StreamStopped if main no longer shows it."""
    link = standing.link(pipeline, stream) if standing else None
    why = standing.stale(link) if standing and link else None
    if link is None or why is None:
        return link
    raise StreamStopped(
        f"the table {table} says it holds slice {link.position.number}, but {why}",
        safe="Nothing was changed: neither the mark nor the table.",
        next_step=f"put the table back as it was; or `penstock state recover FILE --stream {stream}` sets table and "
        "store to what the table shows now, and the next run delivers what is missing",
        pipeline=pipeline,
        stream=stream,
    )
