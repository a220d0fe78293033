"""Lays out cells in columns of a given total width: drops the least important columns and shortens long texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

#: spaces between two columns
COLUMN_GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    head: str
    #: columns with the highest rank are dropped first when there is little room
    rank: int
    right: bool = False
    #: minimum width when shortened; None if it is never shortened
    least: int | None = None
    #: maximum width
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: str = ""
    #: shorten at the beginning: the end is more informative
    tail: bool = False


Row = Mapping[str, Cell]


def shorten(text: str, width: int, *, ascii_only: bool = False, tail: bool = False) -> str:
    """Shorten a text to at most `width` cells; with `tail`, keep its end instead of its beginning."""
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


def fit_columns(columns: Sequence[Column], rows: Sequence[Row], width: int) -> dict[str, int]:
    """Choose the columns that fit, and the width of each. The most important column is always included."""
    natural = {column.name: _natural(column, rows) for column in columns}
    least = {c.name: min(natural[c.name], _least(c, width)) for c in columns}
    fitting = [column for column in columns if natural[column.name]]
    while len(fitting) > 1 and sum(least[c.name] for c in fitting) + COLUMN_GAP * (len(fitting) - 1) > width:
        fitting.remove(max(fitting, key=lambda column: column.rank))
    widths = {column.name: least[column.name] for column in fitting}
    spare = width - sum(widths.values()) - COLUMN_GAP * (len(fitting) - 1)
    for column in sorted(fitting, key=lambda column: column.rank):
        more = max(0, min(spare, natural[column.name] - widths[column.name]))
        widths[column.name] += more
        spare -= more
    return {name: min(wide, width) for name, wide in widths.items()}


def heading(columns: Sequence[Column], widths: Mapping[str, int], *, ascii_only: bool = False) -> Text:
    cells = {column.name: Cell(column.head, "dim") for column in columns}
    return line(columns, widths, cells, ascii_only=ascii_only)


def line(columns: Sequence[Column], widths: Mapping[str, int], row: Row, *, ascii_only: bool = False) -> Text:
    """Format a row as one line."""
    result = Text(no_wrap=True)
    for column in columns:
        if column.name not in widths:
            continue
        wide = widths[column.name]
        cell = row.get(column.name, Cell(""))
        text = shorten(cell.text, wide, ascii_only=ascii_only, tail=cell.tail)
        padding = " " * (wide - cell_len(text))
        if result.plain:
            result.append(" " * COLUMN_GAP)
        result.append(padding + text if column.right else text + padding, cell.style or None)
    result.rstrip()
    return result


def _least(column: Column, width: int) -> int:
    """The minimum width of a column: smaller on a narrow terminal, so that the numbers beside it stay."""
    return width if column.least is None else max(6, min(column.least, width // 3))


def _natural(column: Column, rows: Sequence[Row]) -> int:
    """The width of a column without limits; 0 if all its cells are empty."""
    cells = [cell_len(row[column.name].text) for row in rows if column.name in row and row[column.name].text]
    if not cells:
        return 0
    wide = max(*cells, cell_len(column.head))
    return wide if column.most is None else min(wide, column.most)
