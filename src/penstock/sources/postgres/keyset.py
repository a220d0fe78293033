"""Slices along the cursor: from key to key. A few rows are walked over; a long way is cut by the statistics."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.documents import Document, canonical
from penstock.core.marks import Mark
from penstock.core.ranges import Key, Range, cut, tiles
from penstock.core.slices import Part, Slice
from penstock.errors import StreamFailed, StreamRefused
from penstock.links.postgres.connection import Session
from penstock.ports import Budget, Planned
from penstock.sources.postgres import marks, spread
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.marks import KeysetMark
from penstock.sources.postgres.plan import Reach, Walk, cuts_of, sample, walk_on

#: a slice of so many rows is walked over rather than guessed: that takes a moment
FAR = 100_000
#: rows after which one may ask the statistics how far it still is
NEAR = 20_000
#: a long way goes by slices of so many times the budget: memory follows from the batches, and each slice costs a job
STRIDE = 4


def next_slice(
    session: Session,
    stream: str,
    content: TableContent,
    upto: KeysetMark,
    after: Key | None,
    budget: Budget,
    parts: int,
) -> Planned | None:
    """The next slice on the way to `upto`; None: there is no row on it."""
    if upto.key is None or after == upto.key:
        return None
    whole = Range(after, upto.key)
    row_bytes = bytes_of_a_row(session, stream, content, whole, budget)
    if row_bytes is None:
        return None
    found = _reach(session, stream, content, whole, Walk.of(budget, row_bytes, parts), budget)
    if found is None:
        return None
    return Planned(
        upto=replace(upto, key=found.upto or upto.key).mark(),
        plan={
            "cuts": [list(key) for key in found.cuts],
            "rows": found.rows,
            "exact": found.exact,
            "row_bytes": row_bytes,
        },
        rows=found.rows,
        exact=found.exact,
    )


def bytes_of_a_row(session: Session, stream: str, content: TableContent, whole: Range, budget: Budget) -> int | None:
    """As the slice before had them, or as a sample has; None: there is no row."""
    if budget.look:
        return 1
    found = round(budget.row_bytes) if budget.row_bytes else sample(session, stream, content, whole)
    return None if found is None else max(1, found)


def long_walk(walk: Walk, budget: Budget) -> Walk | None:
    """What a slice may hold that is cut by statistics; None: it is to be exact, or so small that walking is quick."""
    if budget.rows is not None or walk.most <= FAR:
        return None
    return replace(walk, most=walk.most * STRIDE)


def _reach(
    session: Session, stream: str, content: TableContent, whole: Range, walk: Walk, budget: Budget
) -> Reach | None:
    long = long_walk(walk, budget)
    if long:
        near = replace(walk, most=NEAR, step=min(NEAR, walk.step))
        found = walk_on(session, stream, content, whole, near)
        if found is None or found.upto is None:
            return found
        found = spread.reach(session, stream, content, whole, long)
        if found:
            return found
    return walk_on(session, stream, content, whole, walk)


def parts(slice_: Slice, plan: Document) -> list[Part]:
    """The parts of a slice, from its own bounds and cuts alone; none if it only leads to another mark."""
    after, upto = (read(mark, stream=slice_.stream) for mark in (slice_.after, slice_.upto))
    whole = Range(after.key if after else None, upto.key if upto else None)
    if whole.after == whole.upto:
        return []
    pieces = cut(whole, cuts_of(plan))
    if whole.upto is None or not tiles(pieces, whole):
        raise uncovered(slice_)
    leaves: Document = {"leaves": list(upto.leaves)} if upto and upto.leaves else {}
    return [
        Part(index, canonical({"after": listed(piece.after), "upto": listed(piece.upto), **leaves}))
        for index, piece in enumerate(pieces)
    ]


def read(mark: Mark | None, *, stream: str) -> KeysetMark | None:
    """A mark as a keyset's own."""
    ours = marks.read(mark) if mark else None
    if ours is None or isinstance(ours, KeysetMark):
        return ours
    raise StreamRefused("the stored mark is not one of a keyset", next_step="reset the stream", stream=stream)


def uncovered(slice_: Slice) -> StreamFailed:
    return StreamFailed(
        f"the parts of slice {slice_.number} do not cover it", next_step="report this defect", stream=slice_.stream
    )


def listed(key: Key | None) -> list[str] | None:
    return None if key is None else list(key)
