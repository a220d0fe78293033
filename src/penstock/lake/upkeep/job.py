"""One table's upkeep: what each step is given, and what it says it did."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.sizes import shown_duration
from penstock.errors import PenstockError, StreamFailed, StreamStopped
from penstock.lake import names
from penstock.lake.disk_space import is_full
from penstock.lake.lake import Lake
from penstock.lake.landing import RACES_BEFORE_TURN, TURN_POLL_SECONDS, take_turn
from penstock.lake.table_state import ReaderMark, TableState
from penstock.lake.tables import LostRace, OutcomeUnknown, is_lost_race, translate_commit_errors
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.ports import Mover, Probe, Spark

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: nothing of a table's rows is ever at stake in a step that fails
UNHARMED = "Nothing was lost: the table is as good as before."


@dataclass(frozen=True)
class UpkeepJob:
    """The table, and with what it is kept."""

    lake: Lake
    table: str
    options: UpkeepOptions
    spark: Spark
    mover: Callable[[], Mover]
    probe: Probe
    #: the time that ages are counted to
    now: datetime
    #: pass readers, and take younger orphans
    force: bool = False
    #: say what would be done, and do nothing
    dry_run: bool = False
    #: who takes the turn
    owner: str = field(default_factory=lambda: f"upkeep-{uuid.uuid4().hex[:12]}")

    @property
    def name(self) -> str:
        return f"{self.lake.namespace}.{self.table}"

    def loaded(self) -> tuple[Table, TableState]:
        """The table as it is now; StreamFailed if it is gone."""
        from penstock.lake.tables import extract_state, load_table

        table = load_table(self.lake, self.table)
        if table is None:
            raise self.failed("the table is not there any more", "see who dropped it")
        return table, extract_state(table)

    def unclear(self, error: BaseException, what: str = "") -> StreamFailed:
        """For a commit whose answer is not known: the disk was full, or else the answer was lost."""
        if is_full(error):
            return self.failed(f"no space left for {self.lake.warehouse}", "free some space and run the upkeep again")
        step = f"{what}: " if what else ""
        return self.failed(f"{step}the catalog's answer was lost ({error})", "run the upkeep again")

    @contextmanager
    def full_disk_named(self) -> Iterator[None]:
        """A full disk as the StreamFailed that names it; everything else as it is."""
        try:
            yield
        except StreamFailed as error:
            if error.__cause__ is None or not is_full(error.__cause__):
                raise
            raise self.unclear(error.__cause__) from error
        except PenstockError:
            raise
        except Exception as error:
            if not is_full(error):
                raise
            raise self.unclear(error) from error

    def failed(self, what: str, step: str) -> StreamFailed:
        return StreamFailed(f"{self.name}: {what}", next_step=step, safe=UNHARMED)


@dataclass(frozen=True)
class StepResult:
    """What a step did, in words and in numbers."""

    step: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: why it could not be done
    error: PenstockError | None = None


def describe_holder(reader: ReaderMark, now: datetime) -> str:
    """A reader that keeps rows from being removed, in words."""
    since = datetime.fromisoformat(reader.at)
    ago = shown_duration(now - (since if since.tzinfo else since.replace(tzinfo=UTC)))
    return f"{reader.pipeline}/{reader.stream} has read up to {reader.mark} (last heard of {ago} ago)"


def count_noun(number: int, thing: str) -> str:
    """`1 file`, `1,200 files`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


MAX_LOST_RACES = 20
#: how long a turn holds landings back; a group of files takes seconds
TURN_SECONDS = 60.0
#: how long one waits for the turns of others
MAX_WAIT_SECONDS = 600.0

Outcome = TypeVar("Outcome")


def retry_lost_races(job: UpkeepJob, what: str, attempt: Callable[[Table, TableState], Outcome]) -> Outcome:
    """Let `attempt` commit on the table as it is now, again and again until no one else was first."""
    for lost in range(MAX_LOST_RACES):
        try:
            if lost < RACES_BEFORE_TURN:
                return attempt(*job.loaded())
            with hold_turn(job):
                return attempt(*job.loaded())
        except LostRace:
            job.probe.at("lake.upkeep_lost_race")
            time.sleep(random.uniform(0, TURN_POLL_SECONDS * min(lost + 1, 4)))
        except OutcomeUnknown as error:
            raise job.unclear(error, what) from error
    raise job.failed(
        f"{what}: other writers came first {MAX_LOST_RACES} times", "run the upkeep again when fewer are at work"
    )


@contextmanager
def hold_turn(job: UpkeepJob) -> Iterator[None]:
    """Landings wait while this is open, or until it has expired."""
    _take(job)
    try:
        yield
    finally:
        _release(job)


def _take(job: UpkeepJob) -> None:
    began = time.monotonic()
    while time.monotonic() - began < MAX_WAIT_SECONDS:
        table, state = job.loaded()
        other = state.turn()
        if other is not None and other.owner != job.owner and other.until > datetime.now(UTC):
            time.sleep(TURN_POLL_SECONDS)
            continue
        try:
            take_turn(table, state, job.owner, TURN_SECONDS, by="penstock upkeep")
        except LostRace:
            continue
        except OutcomeUnknown as error:
            raise job.unclear(error) from error
        job.probe.at("lake.upkeep_turn_taken")
        return
    raise job.failed(
        f"other writers had the turn for {MAX_WAIT_SECONDS:.0f} seconds", "run the upkeep again when fewer are at work"
    )


def _release(job: UpkeepJob) -> None:
    for _ in range(MAX_LOST_RACES):
        table, state = job.loaded()
        mine = state.turn()
        if mine is None or mine.owner != job.owner:
            return
        try:
            with translate_commit_errors():
                table.transaction().remove_properties(names.TURN).commit_transaction()
        except LostRace:
            continue
        except OutcomeUnknown:
            return  # it expires by itself
        return


class Conflict(Exception):
    """Others changed the files that were being rewritten: nothing of ours happened."""


def run_procedure(job: UpkeepJob, sql: str, settings: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """The first row of what Spark answers; Conflict if other writers undid it, StreamFailed for anything else.

    `settings` hold for this statement alone.
    """
    session = job.spark.session()
    try:
        rows: Any = job.spark.wait(lambda: _answer(session, sql, settings or {}), failed=f"{job.name}: Spark failed")
    except StreamFailed as error:
        text = str(error.__cause__)
        if is_lost_race(text):
            lines = text.splitlines()
            raise Conflict(next((line.strip(": ") for line in lines if "Exception" in line), lines[0])) from error
        error.safe = UNHARMED
        raise
    found: Mapping[str, Any] = rows[0].asDict() if rows else {}
    return found


def _answer(session: Any, sql: str, settings: Mapping[str, str]) -> Any:
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        return session.sql(sql).collect()
    finally:
        for name in settings:
            session.conf.unset(name)


def refuse_rolled_back(name: str, state: TableState) -> None:
    """StreamStopped if main no longer shows what a stream's chain says: then nothing may be forgotten."""
    for (pipeline, stream), link in state.links().items():
        if why := state.stale(link):
            raise StreamStopped(
                f"{name} says it holds slice {link.position.number}, but {why}; upkeep would forget what is needed "
                "to put it right",
                next_step=f"put the table back as it was, or `penstock state recover FILE --stream {stream}`, then run "
                "the upkeep again",
                safe="Nothing was changed: no state was expired, no file removed.",
                pipeline=pipeline,
                stream=stream,
            )
