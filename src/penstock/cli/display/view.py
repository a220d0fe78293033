"""What the display shows, as plain text: needs neither Rich nor a terminal."""

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

#: turns a stored mark into text
DescribeMark = Callable[[str | None], str]


@dataclass(frozen=True, slots=True)
class View:
    """The input of a frame."""

    pipeline: str
    progress: Progress
    now: datetime
    pace: Pace = field(default_factory=Pace)
    describe_mark: DescribeMark = str
    #: the start of the run, until a message carries it
    begun: datetime | None = None
    #: a signal has arrived and the run is ending
    stopping: bool = False

    @property
    def elapsed(self) -> float:
        if self.progress.ended:
            return self.progress.elapsed
        started = self.progress.started or self.begun or self.now
        return max(0.0, (self.now - started).total_seconds())


@dataclass(frozen=True, slots=True)
class Viewport:
    """The size of the terminal that a frame must fit."""

    width: int
    height: int = 24
    #: the terminal can show only ASCII
    ascii: bool = False


class Activity(enum.IntEnum):
    """What a stream is doing; lower values are shown first when there is little room."""

    BUSY = 0
    FAILED = 1
    WAITING = 2
    DONE = 3
    SKIPPED = 4
    NOT_STARTED = 5
    NOTHING_NEW = 6

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


#: streams with these activities get a line of their own
LISTED = (Activity.BUSY, Activity.FAILED, Activity.WAITING, Activity.DONE)

_STEPS = {"intend": "moving", "move": "committing", "commit": "advancing"}


def starting(progress: Progress, now: datetime) -> str | None:
    """`starting Spark (23 s)` during the start; None otherwise."""
    if progress.starting is None:
        return None
    seconds = max(0.0, (now - (progress.starting_since or now)).total_seconds())
    return f"starting {progress.starting} ({clock(seconds)})"


def activity_of(stream: StreamProgress) -> Activity:
    match stream.status:
        case Status.ERROR:
            return Activity.FAILED
        case Status.SKIP:
            return Activity.SKIPPED
        case Status.COMPLETE:
            # Rows that are held back do not count as nothing new.
            return Activity.DONE if stream.slices else Activity.WAITING if stream.blocker else Activity.NOTHING_NEW
    if stream.step in _STEPS or stream.doing:
        return Activity.BUSY
    if stream.slices and stream.left == 0 and stream.left_exact:
        return Activity.DONE
    return Activity.WAITING if stream.slices or stream.step else Activity.NOT_STARTED


def describe_state(stream: StreamProgress, *, ended: bool = False, starting: str | None = None) -> str:
    """A stream's state in a word or two; `starting` is what it waits for before its rows move."""
    activity = activity_of(stream)
    if activity is Activity.WAITING and stream.status is Status.COMPLETE:
        return "held back"
    if activity is Activity.WAITING and ended:
        return "more to do"
    if activity is Activity.BUSY:
        if ended:
            return "open"
        if stream.step not in _STEPS:
            return "fetching" if stream.fetched else "working"
        return starting if starting and stream.step == "intend" else _STEPS[stream.step]
    return activity.label


def describe_run(view: View) -> str:
    """Describe the run's state in a few words."""
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
        return "checking for new rows"
    return "running"


def held_back(stream: StreamProgress) -> str | None:
    """One line about rows that cannot be read yet, and why."""
    return render.held_back(stream.held_back, stream.blocker)


def format_left(stream: StreamProgress) -> str:
    """Rows left: `0`, `1,200`, `~1,200` if estimated, `?` if unknown."""
    if stream.left is None:
        return "?"
    return f"{'' if stream.left_exact or not stream.left else '~'}{stream.left:,}"


def share_done(stream: StreamProgress) -> float | None:
    """The share of this run's rows that is done, from 0 to 1; None if unknown."""
    if stream.left is None:
        return None
    whole = stream.rows + stream.left
    return stream.rows / whole if whole else 1.0


@dataclass(frozen=True, slots=True)
class RowsLeft:
    """Rows left in all streams."""

    rows: int
    #: whether the number is counted, not estimated
    exact: bool
    #: whether it is known for every stream that may have rows left
    whole: bool

    def __str__(self) -> str:
        if not self.whole:
            return f"over {self.rows:,}"
        return f"{'' if self.exact else '~'}{self.rows:,}"


def sum_rows_left(progress: Progress) -> RowsLeft:
    settled = (Activity.FAILED, Activity.SKIPPED, Activity.NOTHING_NEW)
    going = [stream for stream in progress.streams.values() if activity_of(stream) not in settled]
    return RowsLeft(
        sum(stream.left or 0 for stream in going),
        all(stream.left_exact or not stream.left for stream in going),
        all(stream.left is not None for stream in going),
    )


def mark(view: View, stream: StreamProgress, viewport: Viewport) -> str:
    """A stream's mark as text, without `up to`."""
    return clean(view.describe_mark(stream.mark), viewport).removeprefix("up to ")


def clean(text: str, viewport: Viewport) -> str:
    """Put a text on one line and remove control characters; names, marks and reasons may contain anything."""
    text = " ".join(text.split())
    text = "".join(char if unicodedata.category(char)[0] != "C" else "?" for char in text)
    return text.encode("ascii", "replace").decode() if viewport.ascii else text


def clock(seconds: float) -> str:
    """Format seconds as `0.4 s`, `42 s`, `2:05` or `3:07:09`: a steady width for a display that is repainted."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
