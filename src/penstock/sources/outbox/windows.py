"""Windows of an outbox: what one snapshot of the server sees and the one before it did not, in the order of ids.

Neither the order of transaction numbers nor windows between two of them would do: a transaction with a low number may
overwrite a row after one with a higher number has committed, and fall into an earlier window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from penstock.core.documents import Document, canonical
from penstock.core.slices import Part, Slice
from penstock.sources.outbox.marks import OutboxMark

#: documents that change one row take their ids while the row is locked
ORDER = sql.SQL("o.id")


@dataclass(frozen=True, slots=True)
class Window:
    """Documents of one stream."""

    #: seen by this snapshot …
    snapshot: str
    #: … and not by this one
    before: str
    #: documents with higher ids
    after: int = 0
    #: up to this id; None: all
    upto: int | None = None

    def condition(self, stream: str) -> sql.Composed:
        """The documents, as SQL about table `o`."""
        bounds = [
            sql.SQL("o.stream = {}").format(sql.Literal(stream)),
            sql.SQL("o.id > {}").format(sql.Literal(self.after)),
        ]
        if self.upto is not None:
            bounds.append(sql.SQL("o.id <= {}").format(sql.Literal(self.upto)))
        seen = sql.SQL("pg_visible_in_snapshot(o.xid, {}::pg_snapshot)")
        bounds += [seen.format(sql.Literal(self.snapshot)), sql.SQL("NOT ") + seen.format(sql.Literal(self.before))]
        return sql.SQL(" AND ").join(bounds)

    def cut(self, after: int, upto: int | None) -> Window:
        return replace(self, after=after, upto=upto)


def window_of(slice_: Slice) -> Window:
    """The documents of a slice, from its own marks alone."""
    assert slice_.upto is not None
    upto = OutboxMark.of(slice_.upto)
    at = OutboxMark.of(slice_.after) if slice_.after is not None else OutboxMark(upto.token)
    snapshot = upto.window or upto.read
    first = max(at.low, at.id if at.window == snapshot else 0)
    return Window(snapshot, at.read, first, upto.id if upto.window else None)


def make_parts(window: Window, plan: Document) -> list[Part]:
    """The parts of a window, cut at the ids that the plan names; one part where it names none."""
    cuts: Any = plan.get("cuts", ())
    inside = [cut for cut in cuts if cut > window.after and (window.upto is None or cut < window.upto)]
    edges: list[int | None] = [window.after, *inside, window.upto]
    return [
        Part(index, canonical({"after": edges[index], "upto": edges[index + 1]})) for index in range(len(edges) - 1)
    ]
