"""How fast a run moves rows: folded from messages separately from Progress, because a rate needs timestamps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import singledispatch

from penstock.core.messages import Message, StateChanged, StepDone

#: seconds over which the current rate is computed; the last two slices if they took longer
RATE_WINDOW_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class StreamPace:
    """One stream's slices in time."""

    #: when the intent of the current slice was recorded
    begun: datetime | None = None
    #: rows of the last finished slice, its duration and its end
    rows: int = 0
    seconds: float = 0.0
    done: datetime | None = None
    #: seconds spent in all finished slices
    spent: float = 0.0
    version: int = 0

    @property
    def rate(self) -> float | None:
        """Rows per second in the last slice."""
        return self.rows / self.seconds if self.done and self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Pace:
    """A run's slices in time."""

    streams: Mapping[str, StreamPace] = field(default_factory=dict)
    #: (timestamp, rows done so far), newest last; the first one starts the window
    samples: tuple[tuple[datetime, int], ...] = ()

    def of(self, stream: str) -> StreamPace:
        return self.streams.get(stream, StreamPace())

    def recent(self, now: datetime) -> float | None:
        """The current rate in rows per second; it falls while a slice takes longer than those before."""
        if len(self.samples) < 2:
            return None
        (first, before), (last, after) = self.samples[0], self.samples[-1]
        took = (last - first).total_seconds()
        waiting = (now - last).total_seconds()
        seconds = max(took, waiting)
        return (after - before) / seconds if seconds > 0 else None


def apply(pace: Pace, message: Message) -> Pace:
    """Return the pace after a message."""
    return pace if message.ts is None else _apply(message, pace, message.ts)


def fold(messages: Iterable[Message], pace: Pace | None = None) -> Pace:
    pace = pace or Pace()
    for message in messages:
        pace = apply(pace, message)
    return pace


@singledispatch
def _apply(_message: Message, pace: Pace, _at: datetime) -> Pace:
    return pace


@_apply.register
def _(message: StepDone, pace: Pace, at: datetime) -> Pace:
    if message.step != "intend":
        return pace
    stream = replace(pace.of(message.stream), begun=at)
    return Pace({**pace.streams, message.stream: stream}, pace.samples or ((at, 0),))


@_apply.register
def _(message: StateChanged, pace: Pace, at: datetime) -> Pace:
    known = pace.of(message.stream)
    if message.version <= known.version:
        return pace
    took = max(0.0, (at - known.begun).total_seconds()) if known.begun else 0.0
    stream = StreamPace(None, message.rows, took, at, known.spent + took, message.version)
    begun = pace.samples or ((known.begun or at, 0),)
    samples = (*begun, (at, begun[-1][1] + message.rows))
    return Pace({**pace.streams, message.stream: stream}, _windowed(samples))


def _windowed(samples: tuple[tuple[datetime, int], ...]) -> tuple[tuple[datetime, int], ...]:
    """Drop samples before the window, except the last of them: the window's rows are counted from it."""
    last = samples[-1][0]
    start = 0
    while start < len(samples) - 3 and (last - samples[start + 1][0]).total_seconds() >= RATE_WINDOW_SECONDS:
        start += 1
    return samples[start:]
