"""Rows that a reader will not see any more, counted exactly, and noted in its own property."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.documents import canonical
from penstock.lake import names
from penstock.lake.pieces import Piece
from penstock.lake.planning import pieces, shelf_of
from penstock.lake.shelf import Shelf
from penstock.lake.standing import ReaderMark, Standing

if TYPE_CHECKING:
    from pyiceberg.table import Table


def losing(table: Table, standing: Standing, paths: Iterable[str], floor: int) -> dict[ReaderMark, int]:
    """For each reader below the floor, how many live rows of these files it has not read."""
    behind = [reader for reader in standing.readers() if reader.mark < floor]
    if not behind:
        return {}
    wanted = set(paths)
    going = [
        piece
        for piece in pieces(table, table.metadata.current_snapshot_id, min(r.mark for r in behind), floor)
        if piece.path in wanted
    ]
    with shelf_of(table) as shelf:
        return {reader: rows_between(shelf, going, reader.mark, floor) for reader in behind}


def rows_between(shelf: Shelf, going: Sequence[Piece], after: int, upto: int) -> int:
    """Live rows with numbers in (after, upto]. Files that lie wholly inside are not opened."""
    count = 0
    for piece in going:
        inside = piece.low is not None and piece.high is not None and piece.low > after and piece.high <= upto
        if inside and not piece.deletes:
            count += piece.rows
            continue
        for unit in shelf.units(piece, after, upto):
            count += int(shelf.selected(unit, after, upto)[1].sum())
    return count


def noted(losses: Mapping[ReaderMark, int]) -> dict[str, str]:
    """The readers' properties, with what they lose added to what they had lost before."""
    return {
        names.reader_property(reader.pipeline, reader.stream): canonical(
            replace(reader, lost=(reader.lost or 0) + count).document()
        )
        for reader, count in losses.items()
        if count
    }


def told(losses: Mapping[ReaderMark, int]) -> list[str]:
    """Who loses how much, in words."""
    return [
        f"{reader.pipeline}/{reader.stream} (at {reader.mark}{', abandoned' if reader.abandoned else ''}) loses "
        f"{count:,} {'row' if count == 1 else 'rows'}"
        for reader, count in losses.items()
        if count
    ]
