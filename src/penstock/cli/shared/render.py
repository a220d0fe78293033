"""Turns messages into lines of text: a pure function of message and progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.core.fetches import FetchCounts
from penstock.core.messages import (
    Catalog,
    ConnectionStatus,
    Eof,
    Log,
    Message,
    StateChanged,
    Status,
    StepDone,
    StreamStatus,
)
from penstock.core.progress import Progress
from penstock.core.sizes import count_noun
from penstock.errors import NOTHING_LOST

count = count_noun

#: stream names listed before the rest is only counted
MAX_LISTED_NAMES = 8


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or a few that belong together."""

    text: str
    #: goes to standard error
    error: bool = False
    #: repeats at the end what the summary table says too
    recap: bool = False


def lines(
    message: Message,
    progress: Progress,
    *,
    pipeline: str,
    describe_mark: Callable[[str | None], str],
    debug: bool = False,
) -> list[Line]:
    """The lines for a message. `progress` already includes it; `describe_mark` turns a stored mark into text."""
    match message:
        case Catalog():
            return _catalog(message, pipeline)
        case StepDone(step="intend", resumed=True):
            return [Line(f"{pipeline}/{message.stream}: finishing slice {message.number}, begun by an earlier run")]
        case StateChanged():
            return [Line(f"{pipeline}/{message.stream}: {_describe_change(message, describe_mark)}")]
        case StreamStatus(status=Status.COMPLETE):
            return _complete(message.stream, progress, pipeline)
        case StreamStatus(status=Status.ERROR):
            where = f"{pipeline}/{message.stream}"
            return [_error(f"{where}: {message.reason or 'failed'}", message.safe or NOTHING_LOST, message.next_step)]
        case StreamStatus(status=Status.SKIP):
            return [Line(f"{pipeline}/{message.stream}: skipped: {message.reason}")]
        case ConnectionStatus(connected=False):
            return [
                _error(
                    f"{pipeline}: {message.side}: {message.reason}",
                    message.safe or NOTHING_LOST,
                    message.next_step,
                )
            ]
        case Log():
            return _log(message, pipeline, debug)
        case Eof():
            return _closing(message, progress, pipeline)
        case _:
            return []


def align(table: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """A table as lines, its cells aligned to the left, and to the right in the columns of `right`."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(wide) if index in right else cell.ljust(wide)
            for index, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def print_json(document: Mapping[str, Any], indent: int | None = None) -> None:
    """Print a document on standard output; with `indent`, over several lines."""
    print(json.dumps(document, ensure_ascii=False, indent=indent))


def dated(text: str, at: datetime) -> str:
    """Put the time before each line of a text."""
    return "\n".join(f"{at:%Y-%m-%dT%H:%M:%SZ} {line}" for line in text.splitlines())


def size(number: int) -> str:
    """`512 B`, `1.5 MiB`."""
    if number < 1024:
        return f"{number} B"
    value = float(number)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:,.1f} {unit}"


def span(seconds: float) -> str:
    """`0.4 s`, `2 min 5 s`, `3 h 7 min`, `2 d 4 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _catalog(message: Catalog, pipeline: str) -> list[Line]:
    synced = [stream.stream for stream in message.streams if stream.skipped is None]
    head = f"{pipeline}: {count(len(synced), 'stream')}" + (f": {_listed(synced)}" if synced else "")
    skipped = [stream for stream in message.streams if stream.skipped is not None]
    return [Line(head), *(Line(f"{pipeline}/{stream.stream}: skipped: {stream.skipped}") for stream in skipped)]


def _describe_change(message: StateChanged, describe_mark: Callable[[str | None], str]) -> str:
    place = message.at or describe_mark(message.mark)
    if message.reason == "reset":
        return "reset: the next run reads the stream from the beginning"
    if message.reason == "begin":
        return f"starts here; mark: {place}; earlier rows are not delivered"
    if message.reason in ("rewind", "undo"):
        done = "rewound" if message.reason == "rewind" else "undone"
        return f"{done}; mark: {place}; the next run continues from there"
    if message.reason == "recover":
        if not message.number:
            return "recovered: the sink holds no slice, so the next run starts from the beginning"
        return f"recovered: the sink holds slice {message.number}; mark: {place}"
    became = f" ({describe_outcome(message.outcome)})" if message.outcome else ""
    moved = f"{count(message.rows, 'row')}, {size(message.bytes)}{became}"
    if message.reason == "repair":
        return f"slice {message.number} repaired {moved}; the mark stays"
    return f"slice {message.number} done: {moved}; mark: {place}"


def describe_outcome(outcome: Mapping[str, int]) -> str:
    """What the sink did with the rows: `5 created, 3 updated, 1 skipped as stale`."""
    words = {"stale": "skipped as stale", "equal": "skipped as equal"}
    return ", ".join(f"{number:,} {words.get(name, name)}" for name, number in outcome.items() if number)


def describe_fetch(fetched: FetchCounts) -> str:
    """What fetching has cost: `1,200 records fetched, 80/s, 1.03 requests per page, 2 retries, waited 4.0 s`."""
    parts = [f"{count(fetched.records, 'record')} fetched"]
    if fetched.records_per_second is not None:
        parts.append(f"{fetched.records_per_second:,.0f}/s")
    if fetched.requests_per_page is not None:
        parts.append(f"{fetched.requests_per_page:.2f} requests per page")
    if fetched.retries:
        parts.append("1 retry" if fetched.retries == 1 else f"{fetched.retries:,} retries")
    if fetched.waited >= 0.05:
        parts.append(f"waited {span(fetched.waited)}")
    return ", ".join(parts)


def _complete(name: str, progress: Progress, pipeline: str) -> list[Line]:
    stream = progress.streams.get(name)
    if stream is None or not (stream.slices or stream.blocker):
        return []  # nothing new: the last line says so once for all streams
    done = f"done: {count(stream.rows, 'row')} in {count(stream.slices, 'slice')}" if stream.slices else ""
    held = held_back(stream.held_back, stream.blocker)
    fetched = describe_fetch(stream.fetched) if stream.fetched and stream.slices else ""
    return [Line(f"{pipeline}/{name}: {'; '.join(each for each in (done, fetched, held) if each)}")]


def held_back(rows: int | None, blocker: str | None) -> str | None:
    """Rows that cannot be read yet, and what blocks them; None if there are none."""
    if not rows and not blocker:
        return None
    return f"held back: {count(rows, 'row') if rows else 'rows'}" + (f", by {blocker}" if blocker else "")


def _log(message: Log, pipeline: str, debug: bool) -> list[Line]:
    where = f"{pipeline}/{message.stream}" if message.stream else pipeline
    if message.level in ("debug", "info"):
        shown = message.level == "info" or debug
        return [Line(f"{where}: {message.text}", error=message.level == "debug")] if shown else []
    return [Line(f"{message.level}: {where}: {message.text}", error=True)]


def _closing(message: Eof, progress: Progress, pipeline: str) -> list[Line]:
    broken = [name for name, stream in progress.streams.items() if stream.status is Status.ERROR]
    reported = bool(broken) or progress.disconnected is not None or message.status == "interrupted"
    result = []
    if message.exit_code and not reported:
        what = f"{pipeline}: {message.reason or message.status}"
        result.append(_error(what, message.safe or NOTHING_LOST, message.next_step))
    if message.exit_code and not progress.slices and not broken and message.status != "interrupted":
        return result  # the run ended before it did anything, and the error says why
    skipped = [name for name, stream in progress.streams.items() if stream.status is Status.SKIP]
    without = f"; skipped: {_listed(skipped)}" if skipped else ""
    if message.status == "complete" and not progress.slices:
        known = count(len(progress.streams) - len(skipped), "stream")
        held = any(stream.blocker for stream in progress.streams.values())
        what = "nothing that can be read yet" if held else "nothing new"
        return [*result, Line(f"{pipeline}: {what} in {known}, {span(progress.elapsed)}{without}")]
    result += _recap(progress, pipeline)
    head = message.status
    if broken:
        head = f"failed: {len(broken)} of {count(len(progress.streams), 'stream')} ({_listed(broken)})"
    elif message.reason and message.status in ("limited", "interrupted"):
        head = message.reason
    more = ""
    if message.has_more and message.exit_code in (0, 130, 143):
        more = "; more to do: run the same command again"
    return [*result, Line(f"{pipeline}: {head}{without}; {_totals(progress)}{more}")]


def _recap(progress: Progress, pipeline: str) -> list[Line]:
    """The streams that failed or were skipped, with the reasons: what was said of them may lie hours back."""
    words = {Status.ERROR: "failed", Status.SKIP: "skipped"}
    return [
        Line(f"{pipeline}/{name}: {words[stream.status]}: {stream.error or 'without a reason'}", recap=True)
        for name, stream in progress.streams.items()
        if stream.status in words
    ]


def _listed(names: Sequence[str]) -> str:
    """`orders, items`; the names after the first few are only counted."""
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(names[:MAX_LISTED_NAMES]) + more


def _totals(progress: Progress) -> str:
    totals = f"{count(progress.rows, 'row')}, {size(progress.bytes)} in {count(progress.slices, 'slice')}"
    rate = f", {progress.rows / progress.elapsed:,.0f} rows/s" if progress.rows and progress.elapsed else ""
    return f"{totals}, {span(progress.elapsed)}{rate}"


def _error(what: str, safe: str, next_step: str | None) -> Line:
    text = [f"error: {what}", safe, f"Next: {next_step}" if next_step else ""]
    return Line("\n".join(line for line in text if line), error=True)
