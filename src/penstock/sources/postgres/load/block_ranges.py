"""A first load by blocks of the table. A position is the first block, and the offset in it, that is not read yet."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

from psycopg import sql

from penstock.core.documents import Document, canonical
from penstock.core.ranges import Key, Range, tiles
from penstock.core.slices import Part
from penstock.errors import StreamFailed, StreamRefused
from penstock.links.postgres.tables import Table
from penstock.ports import Budget, Planned
from penstock.sources.postgres.histogram import MAX_COUNTED_ROWS
from penstock.sources.postgres.keyset import SliceLimits, estimate_row_bytes, parts_for
from penstock.sources.postgres.load.method import Obstacle, try_blocks
from penstock.sources.postgres.load.pieces import LoadSlice, Piece
from penstock.sources.postgres.marks import LoadMark, to_list
from penstock.sources.postgres.stream import TableStream

#: a block of 8 KiB holds no more rows
MAX_ROWS_PER_BLOCK = 291
#: a smaller share of a slice at the end is read with the slice before
MIN_LAST_SLICE_SHARE = 0.25

BEGINNING: Key = ("0", "0")


def load_terms(table: Table) -> Document:
    """What a load by blocks needs to continue: the file, and its number of blocks when H0 was taken."""
    return {"oid": table.oid, "file": table.file, "blocks": table.blocks or 0}


def plan_slice(stream: TableStream, load: LoadMark, table: Table, budget: Budget) -> Planned:
    """Plan the next range of blocks; the last slice leads to the keyset mark."""
    _check_table(stream, load, table)
    row_bytes = estimate_row_bytes(stream, Range(None, load.then.key), budget) or 1
    limits = SliceLimits.of(budget, row_bytes, parts_for(budget.workers, stream.connections))
    at, end = load.after or BEGINNING, _block_start(_blocks(load))
    density = max(1.0, stream.expected_rows() / max(1, table.blocks or 1))
    if budget.rows is not None or limits.most < MAX_ROWS_PER_BLOCK:
        estimate = _block_start(int(at[0]) + max(1, math.ceil(limits.most / density)))
        upto = _find_exact_end(stream, at, estimate, limits.most)
    else:
        most = (limits.for_estimates(budget) or limits).most
        upto = _block_start(int(at[0]) + max(1, int(most / density)))
        upto = end if _span(upto, end) <= _span(at, upto) * MIN_LAST_SLICE_SHARE else upto
    upto = upto if _span(upto, end) > 0 else end
    rows = round(max(1, _span(at, upto)) * density)
    count = max(1, min(limits.parts, rows // limits.least, _span(at, upto)))
    cuts = [_block_start(int(at[0]) + _span(at, upto) * number // count) for number in range(1, count)]
    pieces = [Piece(None, *ends) for ends in pairwise((at, *cuts, upto))]
    mark = load.then if upto == end else replace(load, after=upto)
    return LoadSlice(load, mark, tuple(pieces)).planned(min(rows, budget.rows or rows), row_bytes)


def estimate_rows(stream: TableStream, load: LoadMark, table: Table) -> int:
    """Rows in the blocks that are not read yet: few are counted, many are estimated from the number of blocks."""
    at, last = load.after or BEGINNING, _blocks(load)
    query = sql.SQL(
        "SELECT count(*) FROM (SELECT FROM {} AS t WHERE t.ctid >= {}::tid AND t.ctid < {}::tid LIMIT {}) x"
    ).format(stream.content.table.sql, _tid(at), _tid(_block_start(last)), sql.Literal(MAX_COUNTED_ROWS))
    [[count]] = stream.rows(query)
    if count < MAX_COUNTED_ROWS:
        return int(count)
    rows = stream.expected_rows()
    return max(int(count), round(rows * (last - int(at[0])) / max(1, table.blocks or 1)))


def make_parts(stream: TableStream, slice_: LoadSlice) -> list[Part] | None:
    """The parts of a slice; None: they would not cover it."""
    start = slice_.start
    _check_table(stream, start, stream.describe(storage=True))
    upto = slice_.end.after if isinstance(slice_.end, LoadMark) else _block_start(_blocks(start))
    if not tiles([Range(piece.after, piece.upto) for piece in slice_.pieces], Range(start.after or BEGINNING, upto)):
        return None
    common: Document = {
        "load": "blocks",
        "horizon": to_list(start.then.key),
        "oid": start.terms["oid"],
        "file": start.terms["file"],
    }
    return [
        Part(index, canonical({**common, "from": to_list(piece.after), "to": to_list(piece.upto)}))
        for index, piece in enumerate(slice_.pieces)
    ]


def rewrite_error(table: str, stream: str) -> StreamFailed:
    """The table has another file than when the load began."""
    return StreamFailed(
        f"{table} was rewritten (VACUUM FULL, CLUSTER, TRUNCATE or an ALTER TABLE) during its first load by blocks: "
        "its rows were moved, and it is unknown which of them were delivered",
        next_step=f"drop an open slice with `penstock state recover FILE --stream {stream}`, then load the table again "
        f"with `penstock state reset FILE --stream {stream}`; `first_load: keys` is not affected by a rewrite",
        stream=stream,
    )


def _check_table(stream: TableStream, load: LoadMark, table: Table | None) -> None:
    """StreamFailed if the table was rewritten, StreamRefused if it can no longer be read by blocks."""
    if table is None or (table.oid, table.file) != (load.terms["oid"], load.terms["file"]):
        raise rewrite_error(str(stream.content.table), stream.name)
    obstacle = try_blocks(stream, table)
    if isinstance(obstacle, Obstacle):
        raise StreamRefused(
            f"the first load by blocks cannot continue: {obstacle.what}",
            next_step=f"load the table again with {stream.reset_command}, by `first_load: keys`",
            stream=stream.name,
        )


def _find_exact_end(stream: TableStream, at: Key, end: Key, most: int) -> Key:
    """A position up to which there are at most `most` rows: the end, or a row in a block before it."""
    query = sql.SQL(
        "SELECT t.ctid::text FROM {} AS t WHERE t.ctid >= {}::tid AND t.ctid < {}::tid "
        "ORDER BY t.ctid OFFSET {} LIMIT 1"
    ).format(stream.content.table.sql, _tid(at), _tid(end), sql.Literal(most))
    rows = stream.rows(query)
    return tuple(rows[0][0].strip("()").split(",")) if rows else end


def _tid(place: Key) -> sql.Literal:
    """A position as Postgres writes the address of a row."""
    return sql.Literal(f"({place[0]},{place[1]})")


def _blocks(load: LoadMark) -> int:
    blocks: Any = load.terms["blocks"]
    return int(blocks)


def _block_start(block: int) -> Key:
    return str(block), "0"


def _span(start: Key, end: Key) -> int:
    """Blocks from one position to another."""
    return int(end[0]) - int(start[0])
