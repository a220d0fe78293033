"""Slices along the cursor, from key to key.

A short range is walked along the index, which counts its rows exactly. A long range is cut by the server's statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from penstock.core.documents import Document, canonical
from penstock.core.ranges import Key, Range, cut, tiles
from penstock.core.slices import Part, Slice
from penstock.errors import StreamFailed
from penstock.links.postgres.column_sql import size_expression
from penstock.links.postgres.key_walk import Cut, walk_steps
from penstock.links.postgres.literals import join_identifiers
from penstock.ports import Budget, Planned
from penstock.sources.postgres.content import form_of
from penstock.sources.postgres.histogram import Extent, estimate_extent
from penstock.sources.postgres.marks import KeysetMark, require_keyset, to_list
from penstock.sources.postgres.stream import TableStream

#: a slice of up to this many rows is walked rather than estimated, which takes less than a second
MAX_WALKED_ROWS = 100_000
#: rows to walk before the statistics are asked for the rest
FIRST_WALK_ROWS = 20_000
#: an estimated slice may hold this many times the budget: batches limit the memory, and each slice costs a job
LONG_SLICE_FACTOR = 4
#: a smaller part is not worth a worker of its own; the limit in rows is for small rows
MIN_PART_BYTES = 8 << 20
MIN_PART_ROWS = 50_000
#: parts for each worker, so that one slow part does not keep the others waiting
PARTS_PER_WORKER = 2
#: steps along the index, or steps for each part; a slice that turns out short can still be cut evenly
WALK_STEPS = 256
WALK_STEPS_PER_PART = 4
#: rows from which the size of a row is estimated
SAMPLE_ROWS = 100


@dataclass(frozen=True, slots=True)
class SliceLimits:
    """The size of a slice and of its parts, in rows."""

    most: int
    #: rows between two possible cuts
    step: int
    #: rows that are worth a part of their own
    least: int
    #: parts that the workers can use
    parts: int
    row_bytes: int

    @classmethod
    def of(cls, budget: Budget, row_bytes: int, parts: int) -> SliceLimits:
        if budget.rows is not None and budget.rows < 1:
            raise ValueError("a slice needs a budget of at least one row")
        most = max(1, budget.bytes // row_bytes)
        if budget.rows is not None:
            most = min(most, budget.rows)
        least = max(1, min(MIN_PART_ROWS, MIN_PART_BYTES // row_bytes))
        step = min(most, max(least, -(-most // max(WALK_STEPS, parts * WALK_STEPS_PER_PART))))
        return cls(most=most, step=step, least=least, parts=parts, row_bytes=row_bytes)

    def for_estimates(self, budget: Budget) -> SliceLimits | None:
        """The limits of a slice that is cut by statistics; None: it must be exact, or is small enough to walk."""
        if budget.rows is not None or self.most <= MAX_WALKED_ROWS:
            return None
        return replace(self, most=self.most * LONG_SLICE_FACTOR)

    def choose_cuts(self, cuts: Sequence[Cut], rows: int) -> list[Cut]:
        """The cuts that make parts of about equal size, as many as are worth it."""
        parts = max(1, min(self.parts, rows // self.least))
        wanted = [rows * part // parts for part in range(1, parts)]
        nearest = [min(cuts, key=lambda cut: abs(cut.rows - want)) for want in wanted if cuts]
        return sorted(set(nearest), key=lambda cut: cut.rows)


def parts_for(workers: int, connections: int | None = None) -> int:
    """Parts that the workers can use; limited by the number of connections if that is lower."""
    if connections is not None and connections < workers:
        return connections
    return max(1, workers) * PARTS_PER_WORKER


def plan_slice(stream: TableStream, goal: KeysetMark, after: Key | None, budget: Budget) -> Planned | None:
    """Plan the next slice on the way to a goal; None: there is no row on the way."""
    if goal.key is None or after == goal.key:
        return None
    whole = Range(after, goal.key)
    row_bytes = estimate_row_bytes(stream, whole, budget)
    if row_bytes is None:
        return None
    limits = SliceLimits.of(budget, row_bytes, parts_for(budget.workers, stream.connections))
    extent = _find_extent(stream, whole, limits, budget)
    if extent is None:
        return None
    return Planned(
        upto=replace(goal, key=extent.upto or goal.key).mark(),
        plan={
            "cuts": [list(key) for key in extent.cuts],
            "rows": extent.rows,
            "exact": extent.exact,
            "row_bytes": row_bytes,
        },
        rows=extent.rows,
        exact=extent.exact,
    )


def estimate_row_bytes(stream: TableStream, whole: Range, budget: Budget) -> int | None:
    """Bytes of a row as Arrow: as in the previous slice, or by a sample of the range; None: it has no row."""
    if budget.look:
        return 1
    if budget.row_bytes:
        return max(1, round(budget.row_bytes))
    content = stream.content
    query = sql.SQL("SELECT avg({})::bigint FROM (SELECT {} FROM {} AS t WHERE {} ORDER BY {} LIMIT {}) x").format(
        sql.SQL(" + ").join(size_expression(column.name, form_of(column)) for column in content.columns),
        join_identifiers(column.name for column in content.columns),
        content.table.sql,
        content.range_sql(whole),
        content.ascending,
        sql.Literal(SAMPLE_ROWS),
    )
    average: int | None = stream.rows(query)[0][0]
    return None if average is None else max(1, average)


def _find_extent(stream: TableStream, whole: Range, limits: SliceLimits, budget: Budget) -> Extent | None:
    estimated = limits.for_estimates(budget)
    if estimated:
        short = replace(limits, most=FIRST_WALK_ROWS, step=min(FIRST_WALK_ROWS, limits.step))
        extent = walk(stream, whole, short)
        if extent is None or extent.upto is None:
            return extent
        extent = estimate_extent(stream, whole, estimated)
        if extent:
            return extent
    return walk(stream, whole, limits)


def walk(stream: TableStream, whole: Range, limits: SliceLimits) -> Extent | None:
    """Find how far the next slice of a range goes, by walking along the index; None: the range has no row."""
    cuts, rest = _walk_steps(stream, whole, limits)
    if not cuts and not rest:
        return None
    rows = (cuts[-1].rows if cuts else 0) + rest
    # Fewer rows than wanted are all that the range has.
    upto = None if rows < limits.most else cuts[-1].key
    # The walk also counts rows that `where` leaves out.
    exact = stream.content.where is None
    return Extent(tuple(cut.key for cut in limits.choose_cuts(cuts, rows) if cut.key != upto), upto, rows, exact)


def _walk_steps(stream: TableStream, whole: Range, limits: SliceLimits) -> tuple[list[Cut], int]:
    """The keys at every step, and the number of rows after the last."""
    content = stream.content
    return walk_steps(
        stream.rows,
        content.table.sql,
        content.key_sql,
        whole=content.range_sql(whole),
        below=content.range_sql(Range(None, whole.upto)),
        step=limits.step,
        most=limits.most,
    )


def make_parts(slice_: Slice, plan: Document) -> list[Part]:
    """The parts of a slice, from its own bounds and cuts alone; none if it only moves the mark."""
    after, upto = (require_keyset(mark, stream=slice_.stream) for mark in (slice_.after, slice_.upto))
    whole = Range(after.key if after else None, upto.key if upto else None)
    if whole.after == whole.upto:
        return []
    cuts: Any = plan.get("cuts")
    if not isinstance(cuts, list) or not all(isinstance(key, list) for key in cuts):
        raise ValueError("the plan of the slice has no cuts")
    pieces = cut(whole, [tuple(key) for key in cuts])
    if whole.upto is None or not tiles(pieces, whole):
        raise uncovered_error(slice_)
    leaves: Document = {"leaves": list(upto.leaves)} if upto and upto.leaves else {}
    return [
        Part(index, canonical({"after": to_list(piece.after), "upto": to_list(piece.upto), **leaves}))
        for index, piece in enumerate(pieces)
    ]


def uncovered_error(slice_: Slice) -> StreamFailed:
    return StreamFailed(
        f"the parts of slice {slice_.number} do not cover it", next_step="report this defect", stream=slice_.stream
    )
