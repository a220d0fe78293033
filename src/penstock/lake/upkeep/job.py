"""The upkeep of one table: what each step is given, how it commits next to other writers, and its result.

A commit that lost a race is tried again on the table as it is then; after two lost races the turn is taken. The turn
only keeps landings waiting. Each conditional commit makes sure that it undoes nothing of theirs.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.sizes import shown_duration
from penstock.errors import PenstockError, StreamFailed, StreamStopped
from penstock.lake.disk_space import is_full
from penstock.lake.lake import Lake
from penstock.lake.landing import RACES_BEFORE_TURN, TURN_POLL, find_other_turn, return_turn, take_turn
from penstock.lake.merging import run_statement
from penstock.lake.table_state import ReaderMark, TableState
from penstock.lake.tables import LOST_RACES, LostRace, OutcomeUnknown, extract_state, is_lost_race, load_table
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.links.pause import iterate_tries, pause
from penstock.ports import Mover, Probe, Spark

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: a step that fails never endangers rows of the table
UNHARMED = "Nothing was lost: the table is as good as before."
#: what to do if other writers keep a step from committing
FEWER_WRITERS = "run the upkeep again when fewer writers are active"
#: how long a turn holds landings back; a group of files takes seconds
TURN_SECONDS = 60.0
#: how long upkeep waits for the turns of others
MAX_WAIT_SECONDS = 600.0

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class UpkeepJob:
    """The table, and what its upkeep needs."""

    lake: Lake
    table: str
    options: UpkeepOptions
    spark: Spark
    mover: Callable[[], Mover]
    probe: Probe
    #: the time up to which ages are counted
    now: datetime
    #: pass readers, and remove younger orphans
    force: bool = False
    #: report what would be done, and change nothing
    dry_run: bool = False
    #: who takes the turn
    owner: str = field(default_factory=lambda: f"upkeep-{uuid.uuid4().hex[:12]}")

    @property
    def name(self) -> str:
        return f"{self.lake.namespace}.{self.table}"

    def load(self) -> tuple[Table, TableState]:
        """Load the table as it is now; StreamFailed if it is gone."""
        table = load_table(self.lake, self.table)
        if table is None:
            raise self.failed("the table no longer exists", "find out who dropped it")
        return table, extract_state(table)

    def unclear(self, error: BaseException, step: str = "") -> StreamFailed:
        """For a commit whose outcome is unknown: the disk was full, or the answer was lost."""
        if is_full(error, self.lake.folder):
            return self.failed(f"no space left for {self.lake.warehouse}", "free some space and run the upkeep again")
        return self.failed(f"{step}{step and ': '}the catalog's answer was lost ({error})", "run the upkeep again")

    @contextmanager
    def name_full_disk(self) -> Iterator[None]:
        """Raise a StreamFailed that names the full disk, if that is the reason for an error."""
        try:
            yield
        except Exception as error:
            cause = error.__cause__ if isinstance(error, StreamFailed) else error
            if cause is None or isinstance(cause, PenstockError) or not is_full(cause):
                raise
            raise self.unclear(cause) from error

    def failed(self, what: str, step: str) -> StreamFailed:
        return StreamFailed(f"{self.name}: {what}", next_step=step, safe=UNHARMED)


@dataclass(frozen=True)
class StepResult:
    """What a step did, as text and as numbers."""

    step: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: why it failed
    error: PenstockError | None = None


def describe_holder(reader: ReaderMark | None, now: datetime) -> str:
    """Describe the reader that keeps rows from being removed; empty: there is none."""
    if reader is None:
        return ""
    since = datetime.fromisoformat(reader.at)
    ago = shown_duration(now - (since if since.tzinfo else since.replace(tzinfo=UTC)))
    return f"; held back: {reader.name} has read up to {reader.mark} (last registered {ago} ago)"


def refuse_rolled_back(name: str, state: TableState) -> None:
    """StreamStopped if main no longer shows what a stream's chain records: then no snapshot may be removed."""
    for (pipeline, stream), link in state.links().items():
        if why := state.stale(link):
            raise StreamStopped(
                f"{name} says it holds slice {link.position.number}, but {why}; upkeep would remove what is needed to "
                "repair it",
                next_step=f"restore the table as it was, or `penstock state recover FILE --stream {stream}`, then run "
                "the upkeep again",
                safe="Nothing was changed: no snapshot was expired, no file removed.",
                pipeline=pipeline,
                stream=stream,
            )


# ---------------------------------------------------------------- next to other writers


def retry_lost_races(
    job: UpkeepJob,
    step: str,
    attempt: Callable[[Table, TableState], Outcome],
    *,
    races_before_turn: int = RACES_BEFORE_TURN,
) -> Outcome:
    """Let `attempt` commit on the table as it is now, until no other writer commits first."""
    for number in iterate_tries(LOST_RACES):
        try:
            with hold_turn(job) if number > races_before_turn else nullcontext():
                return attempt(*job.load())
        except LostRace:
            job.probe.at("lake.upkeep_lost_race")
        except OutcomeUnknown as error:
            raise job.unclear(error, step) from error
    raise job.failed(f"{step}: other writers committed first {LOST_RACES.tries} times", FEWER_WRITERS)


@contextmanager
def hold_turn(job: UpkeepJob) -> Iterator[None]:
    """Keep landings waiting while this is open, or until the turn has expired."""
    _take_turn(job)
    try:
        yield
    finally:
        return_turn(job.lake, job.table, job.owner)


def _take_turn(job: UpkeepJob) -> None:
    began = time.monotonic()
    while time.monotonic() - began < MAX_WAIT_SECONDS:
        table, state = job.load()
        if find_other_turn(state, job.owner):
            pause(TURN_POLL, 1)
            continue
        try:
            take_turn(table, state, job.owner, TURN_SECONDS, by="penstock upkeep")
        except LostRace:
            continue
        except OutcomeUnknown as error:
            raise job.unclear(error) from error
        job.probe.at("lake.upkeep_turn_taken")
        return
    raise job.failed(f"other writers had the turn for {MAX_WAIT_SECONDS:.0f} seconds", FEWER_WRITERS)


def run_procedure(job: UpkeepJob, sql: str, settings: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """Run a statement in Spark and return its first row; LostRace if another commit undid it.

    `settings` hold for this statement alone.
    """
    session = job.spark.session()
    try:
        rows: Any = job.spark.wait(
            lambda: run_statement(session, sql, settings or {}).collect(), failed=f"{job.name}: Spark failed"
        )
    except StreamFailed as error:
        text = str(error.__cause__)
        if is_lost_race(text):
            lines = text.splitlines()
            raise LostRace(next((line.strip(": ") for line in lines if "Exception" in line), lines[0])) from error
        error.safe = UNHARMED
        raise
    return rows[0].asDict() if rows else {}
