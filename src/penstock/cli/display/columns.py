"""Cells side by side in a given width: columns leave in the order of their importance, long texts are shortened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

#: between two columns
GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    head: str
    #: the lower, the longer it stays when there is little room
    rank: int
    right: bool = False
    #: the width it may be shortened to; None: it is never shortened
    least: int | None = None
    #: never wider than this
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: str = ""
    #: shortened at its beginning: its end tells more
    tail: bool = False


Row = Mapping[str, Cell]


def shortened(text: str, width: int, *, ascii_only: bool = False, tail: bool = False) -> str:
    """A text in at most `width` cells: its beginning, or its end."""
    if cell_len(text) <= width:
        return text
    dots = "..." if ascii_only else "…"
    if width <= len(dots):
        return set_cell_size(text, max(width, 0))
    if not tail:
        return set_cell_size(text, width - len(dots)).rstrip() + dots
    while text and cell_len(text) > width - len(dots):
        text = text[1:]
    return dots + text.lstrip()


def chosen(columns: Sequence[Column], rows: Sequence[Row], width: int) -> dict[str, int]:
    """The columns that fit, in their order, and how wide each is. The most important one is always there."""
    natural = {column.name: _natural(column, rows) for column in columns}
    least = {c.name: min(natural[c.name], _least(c, width)) for c in columns}
    kept = [column for column in columns if natural[column.name]]
    while len(kept) > 1 and sum(least[c.name] for c in kept) + GAP * (len(kept) - 1) > width:
        kept.remove(max(kept, key=lambda column: column.rank))
    widths = {column.name: least[column.name] for column in kept}
    spare = width - sum(widths.values()) - GAP * (len(kept) - 1)
    for column in sorted(kept, key=lambda column: column.rank):
        more = max(0, min(spare, natural[column.name] - widths[column.name]))
        widths[column.name] += more
        spare -= more
    return {name: min(wide, width) for name, wide in widths.items()}


def heading(columns: Sequence[Column], widths: Mapping[str, int], *, ascii_only: bool = False) -> Text:
    cells = {column.name: Cell(column.head, "dim") for column in columns}
    return line(columns, widths, cells, ascii_only=ascii_only)


def line(columns: Sequence[Column], widths: Mapping[str, int], row: Row, *, ascii_only: bool = False) -> Text:
    """A row as one line."""
    result = Text(no_wrap=True)
    for column in columns:
        if column.name not in widths:
            continue
        wide = widths[column.name]
        cell = row.get(column.name, Cell(""))
        text = shortened(cell.text, wide, ascii_only=ascii_only, tail=cell.tail)
        padding = " " * (wide - cell_len(text))
        if result.plain:
            result.append(" " * GAP)
        result.append(padding + text if column.right else text + padding, cell.style or None)
    result.rstrip()
    return result


def _least(column: Column, width: int) -> int:
    """How far a column may be shortened: on a narrow terminal further, so that a number beside it stays."""
    return width if column.least is None else max(6, min(column.least, width // 3))


def _natural(column: Column, rows: Sequence[Row]) -> int:
    """How wide a column would be; 0 if no row has anything in it."""
    cells = [cell_len(row[column.name].text) for row in rows if column.name in row and row[column.name].text]
    if not cells:
        return 0
    wide = max(*cells, cell_len(column.head))
    return wide if column.most is None else min(wide, column.most)
