"""The summary table at the end of a run: what each stream moved and how it ended."""

from __future__ import annotations

from collections import Counter

from rich.console import Group
from rich.text import Text

from penstock.cli.display.columns import Cell, Column, Row, fit_columns, heading, line, shorten
from penstock.cli.display.frame import COLOURS, mark_cell, note
from penstock.cli.display.view import (
    Activity,
    View,
    Viewport,
    activity_of,
    clean,
    clock,
    describe_state,
    format_left,
    held_back,
)
from penstock.cli.shared.render import count, describe_fetch, describe_outcome, size
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
#: streams with these activities are only counted
_COUNTED_ONLY = (Activity.NOTHING_NEW, Activity.NOT_STARTED)


def summary_table(view: View, viewport: Viewport) -> Group:
    """A line for each stream that moved rows, failed or was skipped, and one that counts the others.

    A stream that failed or was skipped has the reason below it. Empty if all streams had nothing new.
    """
    streams = view.progress.streams
    listed = {name: stream for name, stream in streams.items() if activity_of(stream) not in _COUNTED_ONLY}
    rows = [_row(view, viewport, name, stream) for name, stream in listed.items()]
    if not rows:
        return Group()
    widths = fit_columns(COLUMNS, rows, viewport.width)
    lines = [heading(COLUMNS, widths, ascii_only=viewport.ascii)]
    for row, stream in zip(rows, listed.values(), strict=True):
        lines.append(line(COLUMNS, widths, row, ascii_only=viewport.ascii))
        if stream.error:
            lines += note(stream.error, COLOURS[activity_of(stream)], viewport)
        if stream.outcome:
            text = shorten(f"  {describe_outcome(stream.outcome)}", viewport.width, ascii_only=viewport.ascii)
            lines.append(Text(text, style="dim", no_wrap=True))
        if stream.fetched:
            text = shorten(f"  {describe_fetch(stream.fetched)}", viewport.width, ascii_only=viewport.ascii)
            lines.append(Text(text, style="dim", no_wrap=True))
        waiting = held_back(stream)
        if waiting:
            text = shorten(f"  {clean(waiting, viewport)}", viewport.width, ascii_only=viewport.ascii)
            lines.append(Text(text, style="yellow", no_wrap=True))
    rest = Counter(activity_of(stream) for stream in streams.values() if activity_of(stream) in _COUNTED_ONLY)
    if rest:
        text = "; ".join(f"{kind.label} in {count(rest[kind], 'stream')}" for kind in _COUNTED_ONLY if rest[kind])
        lines.append(Text(shorten(text, viewport.width, ascii_only=viewport.ascii), style="dim", no_wrap=True))
    return Group(*lines)


def _row(view: View, viewport: Viewport, name: str, stream: StreamProgress) -> Row:
    pace = view.pace.of(name)
    colour = COLOURS[activity_of(stream)]
    cells = {
        "stream": Cell(clean(name, viewport), "bold"),
        "state": Cell(describe_state(stream, ended=True), colour),
        "rows": Cell(f"{stream.rows:,}"),
        "size": Cell(size(stream.bytes)),
        "slices": Cell(f"{stream.slices:,}"),
    }
    if pace.spent > 0:
        cells["time"] = Cell(clock(pace.spent))
        cells["rate"] = Cell(f"{stream.rows / pace.spent:,.0f}")
    if stream.left:
        cells["left"] = Cell(format_left(stream), "yellow")
    if stream.mark is not None:
        cells["mark"] = mark_cell(view, stream, viewport)
    return cells
