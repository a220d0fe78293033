"""What there is to show, in plain words: neither Rich nor a terminal is needed here."""

from __future__ import annotations

import enum
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from penstock.cli.display.pace import Pace
from penstock.cli.shared import render
from penstock.core.messages import Status
from penstock.core.progress import Progress, StreamProgress

Words = Callable[[str | None], str]


@dataclass(frozen=True, slots=True)
class View:
    """Everything that a picture is made of."""

    pipeline: str
    progress: Progress
    now: datetime
    pace: Pace = field(default_factory=Pace)
    #: a mark in words
    words: Words = str
    #: when it began, as long as no message says so
    begun: datetime | None = None
    #: a signal has come, and the run is about to end
    stopping: bool = False

    @property
    def elapsed(self) -> float:
        if self.progress.ended:
            return self.progress.elapsed
        started = self.progress.started or self.begun or self.now
        return max(0.0, (self.now - started).total_seconds())


@dataclass(frozen=True, slots=True)
class Look:
    """The place that a picture must fit."""

    width: int
    height: int = 24
    #: for terminals that cannot show more
    ascii: bool = False


class Mood(enum.IntEnum):
    """What a stream is about; the lower, the sooner it is shown where there is little room."""

    BUSY = 0
    FAILED = 1
    BETWEEN = 2
    DONE = 3
    SKIPPED = 4
    UNBEGUN = 5
    NOTHING_NEW = 6


#: those that get a line of their own
LISTED = (Mood.BUSY, Mood.FAILED, Mood.BETWEEN, Mood.DONE)

_STEPS = {"intend": "moving", "move": "committing", "commit": "advancing"}


def starting(progress: Progress, now: datetime) -> str | None:
    """`starting Spark (23 s)` while it is; None otherwise."""
    if progress.starting is None:
        return None
    seconds = max(0.0, (now - (progress.starting_since or now)).total_seconds())
    return f"starting {progress.starting} ({clock(seconds)})"


def mood(stream: StreamProgress) -> Mood:
    match stream.status:
        case Status.ERROR:
            return Mood.FAILED
        case Status.SKIP:
            return Mood.SKIPPED
        case Status.COMPLETE:
            # What may not be read yet is not nothing.
            return Mood.DONE if stream.slices else Mood.BETWEEN if stream.blocker else Mood.NOTHING_NEW
    if stream.step in _STEPS:
        return Mood.BUSY
    if stream.slices and stream.left == 0 and stream.left_exact:
        return Mood.DONE
    return Mood.BETWEEN if stream.slices or stream.step else Mood.UNBEGUN


def state(stream: StreamProgress, *, ended: bool = False, starting: str | None = None) -> str:
    """A stream's state in a word or two; `starting`: what it waits for before its rows move."""
    match mood(stream):
        case Mood.FAILED:
            return "failed"
        case Mood.SKIPPED:
            return "skipped"
        case Mood.DONE:
            return "done"
        case Mood.NOTHING_NEW:
            return "nothing new"
        case Mood.UNBEGUN:
            return "not begun"
        case Mood.BETWEEN:
            if stream.status is Status.COMPLETE:
                return "held back"
            return "more to do" if ended else "waiting"
        case Mood.BUSY:
            if ended:
                return "open"
            return starting if starting and stream.step == "intend" else _STEPS[stream.step or "intend"]


def run_state(view: View) -> str:
    """The run's state in a few words."""
    progress = view.progress
    if progress.ended in ("limited", "interrupted") and progress.reason:
        return progress.reason
    if progress.ended:
        return {"complete": "done", "lost": "replaced by another run"}.get(progress.ended, progress.ended)
    if progress.disconnected:
        return "failed"
    if view.stopping:
        return "stopping"
    if progress.starting:
        return starting(progress, view.now) or ""
    if not progress.streams:
        return "connecting"
    if all(stream.status in (Status.PENDING, Status.SKIP) for stream in progress.streams.values()):
        return "looking for what is new"
    return "running"


def held_back(stream: StreamProgress) -> str | None:
    """Rows that may not be read yet and why, in a line."""
    return render.held_back(stream.held_back, stream.blocker)


def left(stream: StreamProgress) -> str:
    """Rows left: `0`, `1,200`, `~1,200` if estimated, `?` if nobody knows."""
    if stream.left is None:
        return "?"
    return f"{'' if stream.left_exact or not stream.left else '~'}{stream.left:,}"


def share(stream: StreamProgress) -> float | None:
    """How much of what this run is to do is done, from 0 to 1."""
    if stream.left is None:
        return None
    whole = stream.rows + stream.left
    return stream.rows / whole if whole else 1.0


@dataclass(frozen=True, slots=True)
class Remains:
    """Rows left in all streams."""

    rows: int
    #: counted, not estimated
    exact: bool
    #: known for every stream that may still have something
    whole: bool

    def __str__(self) -> str:
        if not self.whole:
            return f"over {self.rows:,}"
        return f"{'' if self.exact else '~'}{self.rows:,}"


def total_left(progress: Progress) -> Remains:
    settled = (Mood.FAILED, Mood.SKIPPED, Mood.NOTHING_NEW)
    going = [stream for stream in progress.streams.values() if mood(stream) not in settled]
    return Remains(
        sum(stream.left or 0 for stream in going),
        all(stream.left_exact or not stream.left for stream in going),
        all(stream.left is not None for stream in going),
    )


def mark(view: View, stream: StreamProgress, look: Look) -> str:
    """A stream's mark in words; `up to` goes without saying."""
    return clean(view.words(stream.mark), look).removeprefix("up to ")


def clean(text: str, look: Look) -> str:
    """A text on one line, without what would move a cursor; names, marks and reasons may hold anything."""
    text = " ".join(text.split())
    text = "".join(char if unicodedata.category(char)[0] != "C" else "?" for char in text)
    return text.encode("ascii", "replace").decode() if look.ascii else text


def clock(seconds: float) -> str:
    """`0.4 s`, `42 s`, `2:05`, `3:07:09`: of a steady width, for something that is painted again and again."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
