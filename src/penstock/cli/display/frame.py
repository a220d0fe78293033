"""Draws the live frame of a run: a pure function of the view and of the viewport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from penstock.cli.display.columns import Cell, Column, Row, fit_columns, heading, line, shorten
from penstock.cli.display.view import (
    LISTED,
    Activity,
    RowsLeft,
    View,
    Viewport,
    activity_of,
    clean,
    clock,
    describe_run,
    describe_state,
    format_left,
    held_back,
    mark,
    share_done,
    starting,
    sum_rows_left,
)
from penstock.cli.shared.render import count, describe_fetch, size
from penstock.core.fetches import Part
from penstock.core.progress import StreamProgress

COLUMNS = (
    Column("stream", "stream", 0, least=18, most=32),
    Column("state", "state", 5),
    Column("slice", "slice: rows", 8),
    Column("rows", "rows", 1, right=True),
    Column("last", "last", 6, right=True),
    Column("rate", "rows/s", 4, right=True),
    Column("size", "size", 7, right=True),
    Column("slices", "slices", 9, right=True),
    Column("bar", "", 3),
    Column("left", "left", 2, right=True),
    Column("mark", "mark", 10, least=24),
)
#: seconds for which a number that has changed is highlighted
HIGHLIGHT_SECONDS = 2.0
#: maximum lines of a reason or a next step under its stream
MAX_NOTE_LINES = 3

COLOURS = {
    Activity.BUSY: "cyan",
    Activity.FAILED: "red",
    Activity.WAITING: "",
    Activity.DONE: "green",
    Activity.SKIPPED: "dim",
    Activity.NOT_STARTED: "dim",
    Activity.NOTHING_NEW: "dim",
}
_SIGNS = {Activity.BUSY: "▸>", Activity.FAILED: "✗x", Activity.WAITING: "·.", Activity.DONE: "✓+"}
_RUN_COLOURS = {"done": "green", "failed": "red", "running": "cyan"}


@dataclass(frozen=True, slots=True)
class _Block:
    """A stream's line and the lines under it."""

    index: int
    activity: Activity
    row: Row
    under: tuple[Text, ...]


def draw_frame(view: View, viewport: Viewport) -> Group:
    """Draw the run as it is now, in at most `viewport.height` lines, none wider than `viewport.width`."""
    head = [*_header(view, viewport), *_run_error(view, viewport)]
    listed = sorted(
        (
            (activity_of(stream), index, name, stream)
            for index, (name, stream) in enumerate(view.progress.streams.items())
        ),
        key=lambda entry: entry[:2],
    )
    streams = [entry for entry in listed if entry[0] in LISTED]
    roomy = viewport.height >= 12
    # Room for the heading, the line that counts the rest and, on tall terminals, an empty line.
    room = max(0, viewport.height - len(head) - 2 - roomy)
    blocks = _fitting([_block(view, viewport, *entry) for entry in streams[: room + 1]], room)
    lines = [*head]
    if blocks:
        if roomy:
            lines.append(Text())
        lines += _table(sorted(blocks, key=lambda block: block.index), viewport)
    shown = {block.index for block in blocks}
    rest = Counter(entry[0] for entry in listed if entry[1] not in shown)
    if rest:
        lines.append(_rest(rest, bool(blocks), viewport))
    return Group(*lines[: viewport.height])


# ------------------------------------------------------------ the header


def _header(view: View, viewport: Viewport) -> list[Text]:
    """Name, state and time, then the totals; on one line if there is room."""
    state_ = describe_run(view)
    colour = _RUN_COLOURS.get(state_, "yellow")
    who = [
        Cell(clean(view.pipeline, viewport), "bold"),
        Cell(clean(state_, viewport), f"bold {colour}"),
        Cell(clock(view.elapsed)),
    ]
    totals = _totals(view)
    separator = " - " if viewport.ascii else " · "
    if _width([*who, *totals], separator) <= viewport.width or not totals:
        return [_joined([*who, *totals], separator, viewport)]
    return [_joined(who, separator, viewport), _joined(totals, separator, viewport)]


def _totals(view: View) -> list[Cell]:
    """The totals, most important first: the last ones are dropped if they do not fit."""
    progress = view.progress
    if not progress.slices and not any(stream.left for stream in progress.streams.values()):
        return []
    recent = None if progress.ended else view.pace.recent(view.now)
    whole = progress.rows / view.elapsed if view.elapsed > 0 and progress.rows else None
    cells = [Cell(count(progress.rows, "row"))] if progress.slices else []
    if whole is not None:
        cells.append(Cell(f"{whole:,.0f} rows/s" + (f", now {recent:,.0f}" if recent is not None else "")))
    remaining = sum_rows_left(progress)
    if remaining.rows:
        cells.append(Cell(f"{remaining} left{_time_left(remaining, recent)}"))
    return [*cells, Cell(size(progress.bytes)), Cell(count(progress.slices, "slice"))] if progress.slices else cells


def _time_left(remaining: RowsLeft, rate: float | None) -> str:
    seconds = remaining.rows / rate if rate else None
    if seconds is None or not remaining.whole or not 1 <= seconds < 1e7:
        return ""
    return f", about {f'{seconds:.0f} s' if seconds < 60 else clock(seconds)}"


def _joined(cells: Sequence[Cell], separator: str, viewport: Viewport) -> Text:
    fitting = list(cells)
    while len(fitting) > 1 and _width(fitting, separator) > viewport.width:
        fitting.pop()
    result = Text(no_wrap=True)
    for cell in fitting:
        if result.plain:
            result.append(separator, "dim")
        result.append(shorten(cell.text, viewport.width, ascii_only=viewport.ascii), cell.style or None)
    return result


def _width(cells: Sequence[Cell], separator: str) -> int:
    return sum(cell_len(cell.text) for cell in cells) + len(separator) * (len(cells) - 1)


def _run_error(view: View, viewport: Viewport) -> list[Text]:
    """The error of the run as a whole."""
    progress = view.progress
    failed = any(activity_of(stream) is Activity.FAILED for stream in progress.streams.values())
    what = progress.disconnected
    if not what and progress.ended in ("failed", "lost") and not failed:
        what = progress.reason
    if not what:
        return []
    lines = note(what, "red", viewport)
    return lines + (note(f"Next: {progress.next_step}", "", viewport) if progress.next_step else [])


# ------------------------------------------------------------ the streams


def _block(view: View, viewport: Viewport, activity: Activity, index: int, name: str, stream: StreamProgress) -> _Block:
    under: list[Text] = []
    if activity is Activity.FAILED:
        under += note(stream.error or "failed", "red", viewport)
        if stream.next_step:
            under += note(f"Next: {stream.next_step}", "", viewport)
    if stream.fetched and activity is Activity.BUSY:
        under += note(describe_fetch(stream.fetched), "dim", viewport, most=1)
    waits = held_back(stream)
    if waits:
        under += note(waits, "yellow", viewport, most=1)
    return _Block(index, activity, _row(view, viewport, activity, name, stream), tuple(under))


def _row(view: View, viewport: Viewport, activity: Activity, name: str, stream: StreamProgress) -> Row:
    pace = view.pace.of(name)
    colour = COLOURS[activity]
    sign = _SIGNS[activity][viewport.ascii]
    wait = clean(starting(view.progress, view.now) or "", viewport) or None
    cells = {
        "stream": Cell(f"{sign} {clean(name, viewport)}", colour),
        "state": Cell(describe_state(stream, ended=view.progress.ended is not None, starting=wait), colour),
        "rows": Cell(f"{stream.rows:,}"),
        "size": Cell(size(stream.bytes)),
        "slices": Cell(f"{stream.slices:,}"),
        "left": Cell(format_left(stream) if activity is not Activity.FAILED else ""),
        "bar": _bar(stream, 20 if viewport.width >= 160 else 10, activity, viewport),
    }
    if activity is Activity.BUSY and stream.number is not None:
        expected = f": {stream.expected:,}" if stream.expected is not None else ""
        cells["slice"] = Cell(f"{stream.number}{expected}", "dim")
    if pace.done:
        fresh = (view.now - pace.done).total_seconds() < HIGHLIGHT_SECONDS
        cells["last"] = Cell(f"+{pace.rows:,}", "bold green" if fresh else "")
    if pace.rate is not None:
        cells["rate"] = Cell(f"{pace.rate:,.0f}")
    if stream.mark is not None:
        cells["mark"] = mark_cell(view, stream, viewport)
    return cells


def mark_cell(view: View, stream: StreamProgress, viewport: Viewport) -> Cell:
    """A mark as a cell: the end of a long key changes first, so the end is fitting."""
    text = mark(view, stream, viewport)
    return Cell(text, "dim", tail="," in text)


def _bar(stream: StreamProgress, wide: int, activity: Activity, viewport: Viewport) -> Cell:
    fetched = stream.fetched
    if fetched is None or fetched.begin is None or activity is Activity.DONE:
        return bar(share_done(stream), wide, activity, viewport)
    return range_bar(fetched.done, wide, activity, viewport)


def range_bar(parts: Sequence[Part], wide: int, activity: Activity, viewport: Viewport) -> Cell:
    """A bar of a range of which parts are done, each drawn where it lies; a cell is full if all of it is done."""
    full, some, empty = ("#", "=", "-") if viewport.ascii else ("━", "╺", "┈")
    text = ""
    for cell in range(wide):
        low, high = cell / wide, (cell + 1) / wide
        done = sum(max(0.0, min(high, upto) - max(low, after)) for after, upto in parts) * wide
        text += full if done > 0.999 else some if done > 0.001 else empty
    return Cell(text, COLOURS[activity])


def bar(done: float | None, wide: int, activity: Activity, viewport: Viewport) -> Cell:
    """A progress bar; empty if the share is unknown."""
    if done is None:
        return Cell("")
    full, half, empty = ("#", "", "-") if viewport.ascii else ("━", "╸", "┈")
    halves = int(done * wide * 2)
    text = full * (halves // 2) + (half if halves % 2 else "")
    return Cell(text + empty * (wide - len(text)), COLOURS[activity])


def note(text: str, style: str, viewport: Viewport, most: int = MAX_NOTE_LINES) -> list[Text]:
    """A text under its stream, indented and wrapped."""
    indent = "    " if viewport.width >= 30 else ""
    lines = wrap_text(clean(text, viewport), viewport.width - len(indent), most, ascii_only=viewport.ascii)
    return [Text(indent + part, style=style, no_wrap=True) for part in lines]


def wrap_text(text: str, width: int, most: int, *, ascii_only: bool = False) -> list[str]:
    """Wrap a text between words into at most `most` lines, and shorten the last one."""
    lines: list[str] = []
    words = text.split(" ")
    while words and len(lines) < most - 1:
        taken = 1
        while taken < len(words) and cell_len(" ".join(words[: taken + 1])) <= width:
            taken += 1
        lines.append(shorten(" ".join(words[:taken]), width, ascii_only=ascii_only))
        words = words[taken:]
    if words:
        lines.append(shorten(" ".join(words), width, ascii_only=ascii_only))
    return lines


def _fitting(blocks: Sequence[_Block], room: int) -> list[_Block]:
    """The blocks that fit, most important first, with the lines under them."""
    fitting = []
    for block in blocks:
        if room < 1:
            break
        under = block.under[: room - 1]
        fitting.append(_Block(block.index, block.activity, block.row, under))
        room -= 1 + len(under)
    return fitting


def _table(blocks: Sequence[_Block], viewport: Viewport) -> list[Text]:
    widths = fit_columns(COLUMNS, [block.row for block in blocks], viewport.width)
    lines = [heading(COLUMNS, widths, ascii_only=viewport.ascii)]
    for block in blocks:
        lines += [line(COLUMNS, widths, block.row, ascii_only=viewport.ascii), *block.under]
    return lines


def _rest(rest: Counter[Activity], some: bool, viewport: Viewport) -> Text:
    """One line that counts the streams without a line of their own."""
    parts = [f"{rest[a]:,} {'with ' * (a is Activity.NOTHING_NEW)}{a.label}" for a in sorted(rest)]
    dots = "..." if viewport.ascii else "…"
    text = f"{dots} and " + ", ".join(parts) if some else f"{count(rest.total(), 'stream')}: {', '.join(parts)}"
    return Text(shorten(text, viewport.width, ascii_only=viewport.ascii), style="dim", no_wrap=True)
