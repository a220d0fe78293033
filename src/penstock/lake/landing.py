"""Lands one slice in a table, by one conditional commit that carries its data, the head and the chain.

The commit hands out the numbers: files are stamped from the head of the loaded table, and stamped again if the head has
moved by the time of the commit. The assertion of the snapshot makes this safe. A turn, which a writer announces after
it lost two races, only lets a large landing get through between small ones.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.core.documents import canonical
from penstock.core.retry import Backoff
from penstock.core.slices import Kind, Slice
from penstock.errors import CommitUnclear, StreamFailed
from penstock.lake import names
from penstock.lake.disk_space import is_full, make_no_space
from penstock.lake.head_times import HEAD_TIMES, format_times
from penstock.lake.lake import Lake
from penstock.lake.pruning import SnapshotLimits, find_prunable
from penstock.lake.table_state import Link, TableState, Turn, find_link
from penstock.lake.tables import (
    LOST_RACES,
    LostRace,
    NewSnapshot,
    OutcomeUnknown,
    commit_snapshot,
    extract_state,
    load_table,
    prune,
    translate_commit_errors,
)
from penstock.links.pause import iterate_tries, pause
from penstock.ports import Probe, is_never_cancelled

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

#: races that a writer loses before it announces its turn
RACES_BEFORE_TURN = 2
#: how long a turn holds other writers back
TURN_SECONDS = 60.0
#: between two looks whether another writer's turn is over
TURN_POLL = Backoff(0.05, 0.05, jitter=0)
#: how long a landing waits for the turns of others in total
MAX_WAIT_SECONDS = 600.0
#: how long it waits before it reports that it waits
SILENCE_SECONDS = 2.0


@dataclass
class StagedSlice:
    """The files of a slice, stamped from `start`, and how to stamp them again."""

    files: Sequence[DataFile]
    rows: int
    bytes: int
    #: the first number of its files
    start: int
    #: the highest number of its files; start - 1 if there is none
    last: int
    #: writes the same rows with numbers from another start
    restamp: Callable[[Sequence[DataFile], int, int], Sequence[DataFile]]
    #: the table that they were written for; None: unknown
    uuid: str | None = None
    #: whether its commit takes long, so that others must wait for it after it has lost races
    slow: bool = False

    def begin_at(self, start: int) -> None:
        """Give the rows new numbers, above every number handed out since."""
        self.files = self.restamp(self.files, self.start, start)
        self.last += start - self.start
        self.start = start


#: commits a staged slice to a loaded table
Committer = Callable[["Table", TableState, StagedSlice], NewSnapshot]


@dataclass(frozen=True)
class Landing:
    """One attempt to land one slice in one table."""

    lake: Lake
    table: str
    slice: Slice
    attempt: str
    probe: Probe
    #: prints a line at once
    say: Callable[[str], None] = lambda _: None
    #: which earlier snapshots are kept
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    #: whether the run is to end; then a landing that waits for others is given up
    is_cancelled: Callable[[], bool] = is_never_cancelled

    def land(self, staged: StagedSlice, commit: Committer | None = None) -> None:
        """Commit the slice after its predecessor. CommitUnclear: this attempt did not, or the outcome is unknown.

        A log appends; `commit` is how a keyed table takes the slice.
        """
        try:
            for attempt in iterate_tries(LOST_RACES, self.is_cancelled):
                before = self._once(staged, commit or self._append, hurry=attempt > RACES_BEFORE_TURN)
                if before is not None:
                    self.probe.at("lake.landed", number=self.slice.number)
                    self._prune(before)
                    return
                self.probe.at("lake.lost_race", number=self.slice.number)
            raise self._unclear(f"other writers of the table committed first {LOST_RACES.tries} times")
        except BaseException:
            # No one should wait for a writer that has given up. The turn of one that is killed expires.
            return_turn(self.lake, self.table, self.attempt)
            raise

    def _once(self, staged: StagedSlice, commit: Committer, *, hurry: bool) -> TableState | None:
        """Try once. Returns the state before the landing; None: another writer was first, and nothing happened."""
        try:
            table, state = self._wait_until_ready(hurry and (bool(staged.files) or staged.slow))
            self._must_fit(table, staged)
            if staged.files and staged.start <= state.head:
                staged.begin_at(state.head + 1)
                self.probe.at("lake.restamped", number=self.slice.number)
            self.probe.at("lake.prepared", number=self.slice.number)
            commit(table, state, staged)
        except LostRace:
            return None
        except OutcomeUnknown as error:
            if is_full(error, self.lake.folder):
                raise make_no_space(
                    self.lake.warehouse, pipeline=self.slice.pipeline, stream=self.slice.stream
                ) from error
            raise self._unclear(f"the catalog's answer was lost ({error})") from error
        return state

    def _wait_until_ready(self, hurry: bool) -> tuple[Table, TableState]:
        """Load the table once it holds the predecessor and no one else has the turn; with `hurry`, take the turn."""
        began, reported = time.monotonic(), ""
        while True:
            table = load_table(self.lake, self.table)
            if table is None:
                raise self._unclear("the table no longer exists")
            state = extract_state(table)
            self.must_follow(state)
            if other := find_other_turn(state, self.attempt):
                waited = time.monotonic() - began
                if waited > MAX_WAIT_SECONDS:
                    raise self._timed_out(other)
                if waited > SILENCE_SECONDS and reported != other.owner:
                    reported = other.owner
                    self.say(f"slice {self.slice.number} waits for {other.by}, which is writing to {self._name}")
                pause(TURN_POLL, 1, is_cancelled=self.is_cancelled)
            elif hurry and not is_owner(state, self.attempt):
                by = f"slice {self.slice.number} of {self.slice.pipeline}/{self.slice.stream}"
                take_turn(table, state, self.attempt, by=by)
                self.probe.at("lake.turn_taken", number=self.slice.number)
            else:
                return table, state

    def _append(self, table: Table, state: TableState, staged: StagedSlice) -> NewSnapshot:
        return commit_snapshot(
            table,
            kind="landing",
            head=max(state.head, staged.last),
            added=staged.files,
            removed=list_current_files(table) if self.slice.kind is Kind.REFRESH else (),
            properties=lambda new: self.properties(state, staged, new),
            summary=lambda new: self.summary(state, staged, new),
            unset=[names.TURN],
        )

    def _prune(self, before: TableState) -> None:
        """Keep the table's metadata small. Left to the next landing if another writer commits first."""
        if find_prunable(before, self.limits) is None:
            return
        with contextlib.suppress(LostRace, OutcomeUnknown):
            table = load_table(self.lake, self.table)
            state = extract_state(table) if table is not None else before
            pruning = find_prunable(state, self.limits)
            if table is not None and pruning is not None:
                prune(table, state, pruning, {HEAD_TIMES: format_times(state)})
                self.probe.at("lake.forgotten", number=self.slice.number)

    def _link(self, state: TableState, staged: StagedSlice, new: NewSnapshot) -> dict[str, Any]:
        slice_ = self.slice
        counts = staged.rows, staged.bytes
        link = Link(slice_.position, slice_.kind.value, *counts, state.uuid, new.snapshot, new.sequence)
        return {**link.document(), "attempt": self.attempt}

    def properties(self, state: TableState, staged: StagedSlice, new: NewSnapshot) -> dict[str, str]:
        """The properties that record this landing in the table."""
        found = {
            names.chain_property(self.slice.pipeline, self.slice.stream): canonical(self._link(state, staged, new)),
            names.content_property(self.slice.content): self.slice.content,
        }
        if not state.foreign() and not state.gap:
            found[names.INSPECTED] = new.inspected
        return found

    def summary(self, state: TableState, staged: StagedSlice, new: NewSnapshot) -> dict[str, str]:
        """The summary entry that records this landing in its snapshot, for recovery after a rollback."""
        about = {"pipeline": self.slice.pipeline, "stream": self.slice.stream}
        return {names.CHAIN: canonical({**self._link(state, staged, new), **about})}

    # ------------------------------------------------------------ before a commit

    def must_follow(self, state: TableState) -> None:
        """The table must hold exactly the predecessor; the gate decides what anything else means."""
        link = find_link(state, self.slice.pipeline, self.slice.stream, self.table)
        if (link.position.id if link else "") != self.slice.previous:
            raise self._unclear("the table does not have the previous slice")

    def _must_fit(self, table: Table, staged: StagedSlice) -> None:
        """The files must be for this table and its current partitioning; otherwise the slice is staged again."""
        if staged.uuid not in (None, str(table.metadata.table_uuid)):
            raise self._unclear("the table was dropped and created again after its rows were staged")
        # PyIceberg would enter them under the partitioning that the table has now.
        if any(file.spec_id != table.metadata.default_spec_id for file in staged.files):
            raise self._unclear("the table's partitioning was changed after its rows were staged")

    @property
    def _name(self) -> str:
        return f"{self.lake.namespace}.{self.table}"

    def _timed_out(self, other: Turn) -> StreamFailed:
        return StreamFailed(
            f"slice {self.slice.number} waited {MAX_WAIT_SECONDS:.0f} seconds for other writers of {self._name}; "
            f"{other.by} has the turn until {other.until:%H:%M:%S} UTC",
            next_step="check whether that writer is still running, and run again; the slice is still open",
            pipeline=self.slice.pipeline,
            stream=self.slice.stream,
        )

    def _unclear(self, why: str) -> CommitUnclear:
        return CommitUnclear(
            f"slice {self.slice.number} was not committed by this attempt: {why}",
            next_step="ask the table which slice it holds",
            pipeline=self.slice.pipeline,
            stream=self.slice.stream,
        )


def find_other_turn(state: TableState, owner: str) -> Turn | None:
    """The turn of another owner that has not expired."""
    turn = state.turn()
    return turn if turn and turn.owner != owner and turn.until > datetime.now(UTC) else None


def is_owner(state: TableState, owner: str) -> bool:
    """Whether the turn is this owner's, expired or not."""
    turn = state.turn()
    return turn is not None and turn.owner == owner


def take_turn(
    table: Table, state: TableState, owner: str, seconds: float | None = None, *, by: str = "another writer"
) -> None:
    """Announce that the next commit is ours, by an empty snapshot, so that every other writer looks again.

    `by` names us in the messages of those who wait.
    """
    until = (datetime.now(UTC) + timedelta(seconds=TURN_SECONDS if seconds is None else seconds)).isoformat()
    turn = json.dumps({"owner": owner, "until": until, "by": by})
    commit_snapshot(table, kind="turn", head=state.head, properties=lambda _: {names.TURN: turn})


def return_turn(lake: Lake, table: str, owner: str) -> None:
    """Let others go on. A turn that cannot be given back expires."""
    for _ in LOST_RACES.attempts():
        loaded = load_table(lake, table)
        if loaded is None or not is_owner(extract_state(loaded), owner):
            return
        remove_turn(loaded)


def remove_turn(table: Table) -> None:
    with contextlib.suppress(LostRace, OutcomeUnknown), translate_commit_errors():
        table.transaction().remove_properties(names.TURN).commit_transaction()


def list_current_files(table: Table) -> list[DataFile]:
    """Every data file that main shows."""
    return [task.file for task in table.scan().plan_files()]
