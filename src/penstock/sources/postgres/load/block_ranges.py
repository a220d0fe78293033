"""A first load by blocks of the table. A place is a block and an offset in it: the first that is still to be read."""

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
from penstock.ports import Budget, Planned
from penstock.sources.postgres import keyset, spread
from penstock.sources.postgres.load.pieces import Batch, Piece, Stream
from penstock.sources.postgres.load.ways import Obstacle, by_blocks
from penstock.sources.postgres.marks import LoadMark
from penstock.sources.postgres.plan import Walk, parts_for
from penstock.sources.postgres.shape import Shape, look

#: the most rows that a block of 8 KiB holds
ROWS_OF_A_BLOCK = 291
#: a rest that is smaller than this share of a slice goes with the slice before
REST = 0.25

BEGINNING: Key = ("0", "0")


def terms(shape: Shape) -> Document:
    """What a load by blocks must know to go on: the file, and how many blocks it had when H0 was taken."""
    return {"oid": shape.oid, "file": shape.file, "blocks": shape.blocks or 0}


def next_slice(stream: Stream, load: LoadMark, shape: Shape, budget: Budget) -> Planned:
    """The next range of blocks, in pieces; the last one leads to where the keyset goes on."""
    _still_there(stream, load, shape)
    whole = Range(None, load.then.key)
    row_bytes = keyset.bytes_of_a_row(stream.session, stream.name, stream.content, whole, budget) or 1
    walk = Walk.of(budget, row_bytes, parts_for(budget.workers, stream.connections))
    at, end = load.after or BEGINNING, _place(_blocks(load))
    dense = max(1.0, spread.expected(stream.session, stream.name, stream.content) / max(1, shape.blocks or 1))
    if budget.rows is not None or walk.most < ROWS_OF_A_BLOCK:
        upto = _exactly(stream, at, _place(int(at[0]) + max(1, math.ceil(walk.most / dense))), walk.most)
    else:
        most = (keyset.long_walk(walk, budget) or walk).most
        upto = _place(int(at[0]) + max(1, int(most / dense)))
        # A rest that is not worth a slice of its own goes with this one.
        upto = end if _span(upto, end) <= _span(at, upto) * REST else upto
    upto = upto if _span(upto, end) > 0 else end
    rows = round(max(1, _span(at, upto)) * dense)
    count = max(1, min(walk.parts, rows // walk.least, _span(at, upto)))
    cuts = [_place(int(at[0]) + _span(at, upto) * number // count) for number in range(1, count)]
    pieces = [Piece(None, *ends) for ends in pairwise((at, *cuts, upto))]
    mark = load.then if upto == end else replace(load, after=upto)
    return Batch(load, mark, tuple(pieces)).planned(min(rows, budget.rows or rows), row_bytes)


def left(stream: Stream, load: LoadMark, shape: Shape) -> int:
    """Rows in the blocks that are still to be read: a few are counted, of many each block has as many."""
    at, last = load.after or BEGINNING, _blocks(load)
    query = sql.SQL(
        "SELECT count(*) FROM (SELECT FROM {} AS t WHERE t.ctid >= {}::tid AND t.ctid < {}::tid LIMIT {}) x"
    ).format(stream.content.table.sql, _tid(at), _tid(_place(last)), sql.Literal(spread.COUNTED))
    [[count]] = stream.session.rows(query, table=str(stream.content.table), stream=stream.name)
    if count < spread.COUNTED:
        return int(count)
    rows = spread.expected(stream.session, stream.name, stream.content)
    return max(int(count), round(rows * (last - int(at[0])) / max(1, shape.blocks or 1)))


def parts(stream: Stream, batch: Batch) -> list[Part] | None:
    """The parts of a slice; None: they would not cover it."""
    _still_there(stream, batch.start, look(stream.session, stream.content.table, stream=stream.name))
    at = batch.start.after or BEGINNING
    upto = batch.end.after if isinstance(batch.end, LoadMark) else _place(_blocks(batch.start))
    if not tiles([Range(piece.after, piece.upto) for piece in batch.pieces], Range(at, upto)):
        return None
    file: Document = {"oid": batch.start.terms["oid"], "file": batch.start.terms["file"]}
    return [
        Part(
            index,
            canonical(
                {
                    "load": "blocks",
                    "from": keyset.listed(piece.after),
                    "to": keyset.listed(piece.upto),
                    "horizon": keyset.listed(batch.start.then.key),
                    **file,
                }
            ),
        )
        for index, piece in enumerate(batch.pieces)
    ]


def rewritten(table: str, stream: str) -> StreamFailed:
    """The table has another file than it had when the load began."""
    return StreamFailed(
        f"{table} was rewritten (VACUUM FULL, CLUSTER, TRUNCATE or an ALTER TABLE) in the middle of its first load by "
        "blocks: its rows lie elsewhere now, and which of them were delivered cannot be told any more",
        next_step=f"let go of an open slice with `penstock state recover FILE --stream {stream}`, then load the table "
        f"anew with `penstock state reset FILE --stream {stream}`; with `first_load: keys` a rewrite does no harm",
        stream=stream,
    )


def _still_there(stream: Stream, load: LoadMark, shape: Shape) -> None:
    if (shape.oid, shape.file) != (load.terms["oid"], load.terms["file"]):
        raise rewritten(str(stream.content.table), stream.name)
    found = by_blocks(stream, shape)
    if isinstance(found, Obstacle):
        raise StreamRefused(
            f"the first load by blocks cannot go on: {found.what}",
            next_step=f"load the table anew with {stream.reset}, by `first_load: keys`",
            stream=stream.name,
        )


def _exactly(stream: Stream, at: Key, end: Key, most: int) -> Key:
    """A place up to which there are at most `most` rows: the end, or inside of a block before it."""
    query = sql.SQL(
        "SELECT t.ctid::text FROM {} AS t WHERE t.ctid >= {}::tid AND t.ctid < {}::tid "
        "ORDER BY t.ctid OFFSET {} LIMIT 1"
    ).format(stream.content.table.sql, _tid(at), _tid(end), sql.Literal(most))
    found = stream.session.rows(query, table=str(stream.content.table), stream=stream.name)
    return tuple(found[0][0].strip("()").split(",")) if found else end


def _tid(place: Key) -> sql.Literal:
    """A place as Postgres writes the address of a row."""
    return sql.Literal(f"({place[0]},{place[1]})")


def _blocks(load: LoadMark) -> int:
    blocks: Any = load.terms["blocks"]
    return int(blocks)


def _place(block: int) -> Key:
    return str(block), "0"


def _span(start: Key, end: Key) -> int:
    """Blocks from one place to another."""
    return int(end[0]) - int(start[0])
