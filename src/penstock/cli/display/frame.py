"""The live picture of a run: a pure function of what there is to show and of the place it must fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from penstock.cli.display.columns import Cell, Column, Row, chosen, heading, line, shortened
from penstock.cli.display.view import (
    LISTED,
    Look,
    Mood,
    Remains,
    View,
    clean,
    clock,
    held_back,
    left,
    mark,
    mood,
    run_state,
    share,
    starting,
    state,
    total_left,
)
from penstock.cli.shared.render import count, size
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
#: a number that has just changed is bright for this many seconds
FRESH = 2.0
#: lines of a reason or a next step under its stream
MOST_LINES = 3

COLOURS = {
    Mood.BUSY: "cyan",
    Mood.FAILED: "red",
    Mood.BETWEEN: "",
    Mood.DONE: "green",
    Mood.SKIPPED: "dim",
    Mood.UNBEGUN: "dim",
    Mood.NOTHING_NEW: "dim",
}
_SIGNS = {Mood.BUSY: "▸>", Mood.FAILED: "✗x", Mood.BETWEEN: "·.", Mood.DONE: "✓+"}
_RUN_COLOURS = {"done": "green", "failed": "red", "running": "cyan"}
_COUNTED = {
    Mood.BUSY: "at work",
    Mood.FAILED: "failed",
    Mood.BETWEEN: "waiting",
    Mood.DONE: "done",
    Mood.SKIPPED: "skipped",
    Mood.UNBEGUN: "not begun",
    Mood.NOTHING_NEW: "with nothing new",
}


@dataclass(frozen=True, slots=True)
class _Block:
    """A stream's line and what stands under it."""

    index: int
    mood: Mood
    row: Row
    under: tuple[Text, ...]


def frame(view: View, look: Look) -> Group:
    """The run as it is now, in at most `look.height` lines, none wider than `look.width`."""
    head = [*_header(view, look), *_trouble(view, look)]
    listed = sorted(
        ((mood(stream), index, name, stream) for index, (name, stream) in enumerate(view.progress.streams.items())),
        key=lambda found: found[:2],
    )
    streams = [found for found in listed if found[0] in LISTED]
    roomy = look.height >= 12
    # The heading, the line that sums up the rest, and on roomy terminals an empty line above.
    room = max(0, look.height - len(head) - 2 - roomy)
    blocks = _fitting([_block(view, look, *found) for found in streams[: room + 1]], room)
    lines = [*head]
    if blocks:
        if roomy:
            lines.append(Text())
        lines += _table(sorted(blocks, key=lambda block: block.index), look)
    shown = {block.index for block in blocks}
    rest = Counter(found[0] for found in listed if found[1] not in shown)
    if rest:
        lines.append(_rest(rest, bool(blocks), look))
    return Group(*lines[: look.height])


# ------------------------------------------------------------ the header


def _header(view: View, look: Look) -> list[Text]:
    """Name, state and time; then the totals: on the same line if there is room."""
    state_ = run_state(view)
    colour = _RUN_COLOURS.get(state_, "yellow")
    who = [
        Cell(clean(view.pipeline, look), "bold"),
        Cell(clean(state_, look), f"bold {colour}"),
        Cell(clock(view.elapsed)),
    ]
    totals = _totals(view)
    parted = " - " if look.ascii else " · "
    if _wide([*who, *totals], parted) <= look.width or not totals:
        return [_joined([*who, *totals], parted, look)]
    return [_joined(who, parted, look), _joined(totals, parted, look)]


def _totals(view: View) -> list[Cell]:
    """The most important first: what does not fit is left out from the end."""
    progress = view.progress
    if not progress.slices and not any(stream.left for stream in progress.streams.values()):
        return []
    recent = None if progress.ended else view.pace.recent(view.now)
    whole = progress.rows / view.elapsed if view.elapsed > 0 and progress.rows else None
    cells = [Cell(count(progress.rows, "row"))] if progress.slices else []
    if whole is not None:
        cells.append(Cell(f"{whole:,.0f} rows/s" + (f", now {recent:,.0f}" if recent is not None else "")))
    remaining = total_left(progress)
    if remaining.rows:
        cells.append(Cell(f"{remaining} left{_time_left(remaining, recent)}"))
    return [*cells, Cell(size(progress.bytes)), Cell(count(progress.slices, "slice"))] if progress.slices else cells


def _time_left(remaining: Remains, rate: float | None) -> str:
    seconds = remaining.rows / rate if rate else None
    if seconds is None or not remaining.whole or not 1 <= seconds < 1e7:
        return ""
    return f", about {f'{seconds:.0f} s' if seconds < 60 else clock(seconds)}"


def _joined(cells: Sequence[Cell], parted: str, look: Look) -> Text:
    kept = list(cells)
    while len(kept) > 1 and _wide(kept, parted) > look.width:
        kept.pop()
    result = Text(no_wrap=True)
    for cell in kept:
        if result.plain:
            result.append(parted, "dim")
        result.append(shortened(cell.text, look.width, ascii_only=look.ascii), cell.style or None)
    return result


def _wide(cells: Sequence[Cell], parted: str) -> int:
    return sum(cell_len(cell.text) for cell in cells) + len(parted) * (len(cells) - 1)


def _trouble(view: View, look: Look) -> list[Text]:
    """What is wrong with the run as a whole."""
    progress = view.progress
    failed = any(mood(stream) is Mood.FAILED for stream in progress.streams.values())
    what = progress.disconnected
    if not what and progress.ended in ("failed", "lost") and not failed:
        what = progress.reason
    if not what:
        return []
    lines = _under(what, "red", look)
    return lines + (_under(f"Next: {progress.next_step}", "", look) if progress.next_step else [])


# ------------------------------------------------------------ the streams


def _block(view: View, look: Look, mood_: Mood, index: int, name: str, stream: StreamProgress) -> _Block:
    under: list[Text] = []
    if mood_ is Mood.FAILED:
        under += _under(stream.error or "it failed", "red", look)
        if stream.next_step:
            under += _under(f"Next: {stream.next_step}", "", look)
    waits = held_back(stream)
    if waits:
        under += _under(waits, "yellow", look, most=1)
    return _Block(index, mood_, _row(view, look, mood_, name, stream), tuple(under))


def _row(view: View, look: Look, mood_: Mood, name: str, stream: StreamProgress) -> Row:
    pace = view.pace.of(name)
    colour = COLOURS[mood_]
    sign = _SIGNS[mood_][look.ascii]
    wait = clean(starting(view.progress, view.now) or "", look) or None
    cells = {
        "stream": Cell(f"{sign} {clean(name, look)}", colour),
        "state": Cell(state(stream, ended=view.progress.ended is not None, starting=wait), colour),
        "rows": Cell(f"{stream.rows:,}"),
        "size": Cell(size(stream.bytes)),
        "slices": Cell(f"{stream.slices:,}"),
        "left": Cell(left(stream) if mood_ is not Mood.FAILED else ""),
        "bar": bar(share(stream), 20 if look.width >= 160 else 10, mood_, look),
    }
    if mood_ is Mood.BUSY:
        expected = f": {stream.expected:,}" if stream.expected is not None else ""
        cells["slice"] = Cell(f"{stream.number}{expected}", "dim")
    if pace.done:
        fresh = (view.now - pace.done).total_seconds() < FRESH
        cells["last"] = Cell(f"+{pace.rows:,}", "bold green" if fresh else "")
    if pace.rate is not None:
        cells["rate"] = Cell(f"{pace.rate:,.0f}")
    if stream.mark is not None:
        cells["mark"] = mark_cell(view, stream, look)
    return cells


def mark_cell(view: View, stream: StreamProgress, look: Look) -> Cell:
    """A mark in words: of a long key the end changes soonest, and is kept."""
    text = mark(view, stream, look)
    return Cell(text, "dim", tail="," in text)


def bar(done: float | None, wide: int, mood_: Mood, look: Look) -> Cell:
    """How much is done, as a bar; empty if nobody knows."""
    if done is None:
        return Cell("")
    full, half, empty = ("#", "", "-") if look.ascii else ("━", "╸", "┈")
    halves = int(done * wide * 2)
    text = full * (halves // 2) + (half if halves % 2 else "")
    return Cell(text + empty * (wide - len(text)), COLOURS[mood_])


def _under(text: str, style: str, look: Look, most: int = MOST_LINES) -> list[Text]:
    """A text under its stream, indented, on a few lines."""
    indent = "    " if look.width >= 30 else ""
    lines = wrapped(clean(text, look), look.width - len(indent), most, ascii_only=look.ascii)
    return [Text(indent + part, style=style, no_wrap=True) for part in lines]


def wrapped(text: str, width: int, most: int, *, ascii_only: bool = False) -> list[str]:
    """A text broken between words into at most `most` lines; the last one is shortened."""
    lines: list[str] = []
    words = text.split(" ")
    while words and len(lines) < most - 1:
        taken = 1
        while taken < len(words) and cell_len(" ".join(words[: taken + 1])) <= width:
            taken += 1
        lines.append(shortened(" ".join(words[:taken]), width, ascii_only=ascii_only))
        words = words[taken:]
    if words:
        lines.append(shortened(" ".join(words), width, ascii_only=ascii_only))
    return lines


def _fitting(blocks: Sequence[_Block], room: int) -> list[_Block]:
    """As many as there is room for, the most important first, with what stands under them."""
    kept = []
    for block in blocks:
        if room < 1:
            break
        under = block.under[: room - 1]
        kept.append(_Block(block.index, block.mood, block.row, under))
        room -= 1 + len(under)
    return kept


def _table(blocks: Sequence[_Block], look: Look) -> list[Text]:
    widths = chosen(COLUMNS, [block.row for block in blocks], look.width)
    lines = [heading(COLUMNS, widths, ascii_only=look.ascii)]
    for block in blocks:
        lines += [line(COLUMNS, widths, block.row, ascii_only=look.ascii), *block.under]
    return lines


def _rest(rest: Counter[Mood], some: bool, look: Look) -> Text:
    """Everything that has no line of its own, in one line."""
    parts = [f"{rest[mood_]:,} {_COUNTED[mood_]}" for mood_ in sorted(rest)]
    dots = "..." if look.ascii else "…"
    text = f"{dots} and " + ", ".join(parts) if some else f"{count(rest.total(), 'stream')}: {', '.join(parts)}"
    return Text(shortened(text, look.width, ascii_only=look.ascii), style="dim", no_wrap=True)
