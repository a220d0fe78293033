"""The closing table of a run: what each stream moved, and how it ended."""

from __future__ import annotations

from collections import Counter

from rich.console import Group
from rich.text import Text

from penstock.cli.display.columns import Cell, Column, Row, chosen, heading, line, shortened
from penstock.cli.display.frame import COLOURS, mark_cell
from penstock.cli.display.view import Look, Mood, View, clean, clock, held_back, left, mood, state
from penstock.cli.shared.render import count, describe_outcome, size
from penstock.core.progress import StreamProgress

COLUMNS = (
    Column("stream", "stream", 0, least=18, most=40),
    Column("state", "state", 2),
    Column("rows", "rows", 1, right=True),
    Column("size", "size", 5, right=True),
    Column("slices", "slices", 6, right=True),
    Column("time", "time", 7, right=True),
    Column("rate", "rows/s", 4, right=True),
    Column("left", "left", 3, right=True),
    Column("mark", "mark", 8, least=16),
)
#: those that are only counted
_SUMMED = {
    Mood.NOTHING_NEW: "nothing new",
    Mood.UNBEGUN: "not begun",
    Mood.SKIPPED: "skipped",
}


def closing(view: View, look: Look) -> Group:
    """A line for each stream that did something or failed, and one for all others; empty if there is nothing to say."""
    streams = view.progress.streams
    rows = [_row(view, look, name, stream) for name, stream in streams.items() if mood(stream) not in _SUMMED]
    if not rows:
        return Group()
    widths = chosen(COLUMNS, rows, look.width)
    lines = [heading(COLUMNS, widths, ascii_only=look.ascii)]
    shown = [stream for stream in streams.values() if mood(stream) not in _SUMMED]
    for row, stream in zip(rows, shown, strict=True):
        lines.append(line(COLUMNS, widths, row, ascii_only=look.ascii))
        if stream.outcome:
            text = shortened(f"  {describe_outcome(stream.outcome)}", look.width, ascii_only=look.ascii)
            lines.append(Text(text, style="dim", no_wrap=True))
        waiting = held_back(stream)
        if waiting:
            text = shortened(f"  {clean(waiting, look)}", look.width, ascii_only=look.ascii)
            lines.append(Text(text, style="yellow", no_wrap=True))
    rest = Counter(mood(stream) for stream in streams.values() if mood(stream) in _SUMMED)
    if rest:
        text = "; ".join(f"{_SUMMED[found]} in {count(rest[found], 'stream')}" for found in _SUMMED if rest[found])
        lines.append(Text(shortened(text, look.width, ascii_only=look.ascii), style="dim", no_wrap=True))
    return Group(*lines)


def _row(view: View, look: Look, name: str, stream: StreamProgress) -> Row:
    pace = view.pace.of(name)
    colour = COLOURS[mood(stream)]
    cells = {
        "stream": Cell(clean(name, look), "bold"),
        "state": Cell(state(stream, ended=True), colour),
        "rows": Cell(f"{stream.rows:,}"),
        "size": Cell(size(stream.bytes)),
        "slices": Cell(f"{stream.slices:,}"),
    }
    if pace.spent > 0:
        cells["time"] = Cell(clock(pace.spent))
        cells["rate"] = Cell(f"{stream.rows / pace.spent:,.0f}")
    if stream.left:
        cells["left"] = Cell(left(stream), "yellow")
    if stream.mark is not None:
        cells["mark"] = mark_cell(view, stream, look)
    return cells
