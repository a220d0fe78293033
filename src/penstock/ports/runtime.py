"""What sources, sinks and the engine are given: Spark, a mover, a clock, a probe, and the context of a connector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from penstock.core.fetches import FetchCounts
from penstock.core.marks import Mark, Position
from penstock.core.slices import Part, Receipt, Slice
from penstock.ports.rows import Reader, Writer
from penstock.ports.spools import NoSpools, Spools

Made = TypeVar("Made")


class Spark(Protocol):
    """The one Spark session of a process, for relational work; the Mover moves its parts on the same one."""

    def require(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        """Add settings and Maven packages that the session must start with. Called before the session is started."""
        ...

    def session(self) -> Any:
        """Return the session, started by the first call. InputError names what to install if it cannot start."""
        ...

    def wait(self, work: Callable[[], Made], failed: str = "Spark failed") -> Made:
        """Run a Spark action beside this thread, so that a signal can end the wait.

        A PenstockError arrives as itself, anything else as a StreamFailed that begins with `failed`, caused by it.
        """
        ...


class NoSpark:
    """Stands in where there is no Spark: in some of the engine's tests."""

    def require(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        return None

    def session(self) -> Any:
        raise RuntimeError("there is no Spark here")

    def wait(self, work: Callable[[], Made], failed: str = "Spark failed") -> Made:
        raise RuntimeError("there is no Spark here")


def say_nothing(stream: str, text: str) -> None:
    """Print nothing."""


class Report(Protocol):
    """Reports how far a long piece of work is."""

    def __call__(
        self,
        stream: str,
        doing: str,
        *,
        done: int | None = None,
        total: int | None = None,
        fetched: FetchCounts | None = None,
    ) -> None: ...


def report_nothing(
    stream: str,
    doing: str,
    *,
    done: int | None = None,
    total: int | None = None,
    fetched: FetchCounts | None = None,
) -> None:
    """Report nothing."""


def is_never_cancelled() -> bool:
    """Return False: this work cannot be cancelled."""
    return False


def no_mark(stream: str) -> None:
    """Return None: no store is asked."""


def no_position(stream: str) -> Position | None:
    """Return None: no store is asked."""


@dataclass(frozen=True, slots=True)
class Origin:
    """How far the source is read with a slice, for those who watch the other end."""

    #: the slice's mark, for people; None: nobody knows
    cursor: str | None = None
    #: rows that are left up to the run's ceiling or held back above it, the slice's own included; None: not known
    rows_left: int | None = None


def no_origin(_slice: Slice) -> Origin:
    """Know nothing of the source."""
    return Origin()


def no_mover() -> Mover:
    """Fail: this source or sink moves no rows itself."""
    raise RuntimeError("there is no mover here")


@dataclass(frozen=True, slots=True)
class Context:
    """What every source and sink is built with, besides its options.

    A module that offers one has `Options` and `StreamOptions` (Pydantic models) and
    `build(options, streams, context)`; `streams` maps names to StreamOptions.
    """

    #: the pipeline's name
    pipeline: str
    #: the folder of the pipeline file; relative paths start here
    folder: str
    #: for tests
    probe: Probe
    #: for relational work: a keyed merge, upkeep
    spark: Spark = field(default_factory=NoSpark)
    #: moves rows that a source or sink must rewrite itself: rows of a lake without a number
    mover: Callable[[], Mover] = no_mover
    #: print a line about a stream at once: for work that takes long
    say: Callable[[str, str], None] = say_nothing
    #: the same for a warning: something that the user should look at
    warn: Callable[[str, str], None] = say_nothing
    #: report how far a gather, a move or a commit is, as often as it likes: the newest report counts
    report: Report = report_nothing
    #: whether the run is to end soon: asked by work that takes minutes, which then raises StreamFailed
    #: (`links.watch` asks and reports beside work that blocks its thread, `links.pause` during a pause)
    is_cancelled: Callable[[], bool] = is_never_cancelled
    #: where to gather and to stage on disk
    spools: Spools = field(default_factory=NoSpools)
    #: the mark of a stream as the store has it now, before anything is planned: what a source may ask for first
    last_mark: Callable[[str], Mark | None] = no_mark
    #: where the store has a stream: its last slice that was delivered; None: none was
    last_position: Callable[[str], Position | None] = no_position
    #: how far the source is read with a slice
    origin: Callable[[Slice], Origin] = no_origin


class Mover(Protocol):
    """Moves a slice's parts from a reader to a writer, somewhere."""

    @property
    def workers(self) -> int:
        """The number of parts that move at the same time. A cluster may know it only after the first move."""
        ...

    def begin(self) -> None:
        """Start in the background what takes long, because there is something to move. Returns at once. Idempotent.

        `close` ends it, also if nothing was moved after all.
        """
        ...

    def warm(self) -> None:
        """Start what takes long and wait for it, before the caller holds a snapshot or a lock. Idempotent."""
        ...

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Move every part; one receipt per part. Failed parts are tried again here, within reason.

        StreamFailed, with the worker's own reason, when a part cannot be moved.
        """
        ...

    def cancel(self) -> None:
        """Ask a running `move` to end soon, from a signal handler or another thread; returns at once.

        Staged rows stay invisible. A `move` that gives up raises StreamFailed.
        """
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    """Time, as an argument."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        ...

    def elapsed(self) -> float:
        """Seconds since a fixed time; never goes back."""
        ...


class Probe(Protocol):
    """Named points at which a test stops, kills or freezes the process. Does nothing outside tests."""

    def at(self, point: str, **about: Any) -> None: ...


class NoProbe:
    """The probe outside tests."""

    def at(self, point: str, **about: Any) -> None:
        return None
