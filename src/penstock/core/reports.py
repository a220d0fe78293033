"""What a store keeps of each run for people who ask later: failures, the last look, and days. Pure.

No mark rests on it. So it is kept without the lease, by a run that found nothing new and by one that never began too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

#: stands for the run as a whole where a stream is named
WHOLE_RUN = ""
#: a day's counts are kept for this many days
DAYS_KEPT = 400


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a stream or a run failed, and what to do about it."""

    what: str
    safe: str
    #: as the error has it, with FILE for the pipeline file
    next_step: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The last error of a stream or of a pipeline as a whole."""

    problem: Problem
    #: the last time it failed
    at: datetime
    #: the first time it failed after its last success
    since: datetime
    #: how often it has failed since its last success; 0: it has succeeded since
    times: int


@dataclass(frozen=True, slots=True)
class LastLook:
    """When a run last compared streams with their source."""

    #: None: all streams of the pipeline
    streams: tuple[str, ...] | None
    at: datetime

    def covers(self, stream: str) -> bool:
        return self.streams is None or stream in self.streams


@dataclass(frozen=True, slots=True)
class DayOfRuns:
    """A pipeline's runs of one day in UTC, by the time they ended."""

    day: date
    runs: int
    #: those that found nothing new
    idle: int
    failed: int
    #: delivered
    rows: int
    bytes: int
    #: when the last one ended
    last: datetime


@dataclass(frozen=True, slots=True)
class RunReport:
    """How one execution ended."""

    at: datetime
    #: False: an operator's command that changed marks; it is no run, and only what succeeded counts
    is_run: bool = True
    #: the streams it was asked for; None: all of the pipeline
    streams: tuple[str, ...] | None = None
    #: whether both sides were reached
    looked: bool = False
    idle: bool = False
    failed: bool = False
    #: delivered by this execution alone
    rows: int = 0
    bytes: int = 0
    #: by stream, or WHOLE_RUN
    problems: Mapping[str, Problem] = field(default_factory=dict)
    #: streams, or WHOLE_RUN
    succeeded: tuple[str, ...] = ()
