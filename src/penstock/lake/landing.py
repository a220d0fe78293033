"""Landing: one slice into a table by one conditional commit that carries its data, the head and the chain.

Numbers are handed out by the commit: files are stamped from the head the table was loaded with, and if the head has
moved by the time of the commit they are stamped again. The assertion of the snapshot is the safety; the turn, which a
writer announces after it lost two races, is only so that a large landing gets through between small ones.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.core.documents import canonical
from penstock.core.slices import Kind, Slice
from penstock.errors import CommitUnclear, StreamFailed
from penstock.lake import names
from penstock.lake.disk_space import is_full, make_no_space
from penstock.lake.head_times import HEAD_TIMES, format_times
from penstock.lake.lake import Lake
from penstock.lake.pruning import SnapshotLimits, find_prunable, prune
from penstock.lake.table_state import Link, TableState, Turn, find_link
from penstock.lake.tables import (
    LostRace,
    NewSnapshot,
    OutcomeUnknown,
    commit_snapshot,
    extract_state,
    fixed,
    load_table,
    translate_commit_errors,
)
from penstock.ports import Probe

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

#: races a writer loses before it announces its turn
RACES_BEFORE_TURN = 2
#: how long a turn holds others back, and how often it is given up before the slice is left open
TURN_SECONDS = 60.0
MAX_LOST_RACES = 40
#: how long one who waits for another's turn sleeps
TURN_POLL_SECONDS = 0.05
#: how long a landing waits for the turns of others in all
MAX_WAIT_SECONDS = 600.0
#: how long it waits before it says so
SILENCE_SECONDS = 2.0


@dataclass
class StagedSlice:
    """What a slice brings: its files, stamped from `start`, and how to stamp them anew."""

    files: Sequence[DataFile]
    rows: int
    bytes: int
    #: the first number of its files
    start: int
    #: the highest number of its files; start - 1 if there is none
    last: int
    #: the same rows with numbers from another start
    restamp: Callable[[Sequence[DataFile], int, int], Sequence[DataFile]]
    #: the table that they were written for; None: not known
    uuid: str | None = None

    def begin_at(self, start: int) -> None:
        """Give the rows new numbers, above everything handed out since."""
        self.files = self.restamp(self.files, self.start, start)
        self.last += start - self.start
        self.start = start


@dataclass(frozen=True)
class Landing:
    """One slice's way into one table."""

    lake: Lake
    table: str
    slice: Slice
    attempt: str
    probe: Probe
    #: prints a line at once
    say: Callable[[str], None] = lambda _: None
    #: which earlier states stay
    states: SnapshotLimits = field(default_factory=SnapshotLimits)

    def land(
        self, staged: StagedSlice, put: Callable[[Table, TableState, StagedSlice], NewSnapshot] | None = None
    ) -> None:
        """Commit the slice after the one before it. CommitUnclear: it was not this attempt, or nobody knows yet.

        `put` is how a keyed table takes it; a log just appends.
        """
        lost = 0
        try:
            while lost < MAX_LOST_RACES:
                before = self._once(staged, put or self._append, hurry=lost >= RACES_BEFORE_TURN)
                if before is not None:
                    self.probe.at("lake.landed", number=self.slice.number)
                    self._forget_states(before)
                    return
                lost += 1
                self.probe.at("lake.lost_race", number=self.slice.number)
                time.sleep(random.uniform(0, TURN_POLL_SECONDS * min(lost, 4)))
        except BaseException:
            self._give_turn_back()
            raise
        self._give_turn_back()
        raise self._unclear(f"other writers of the table came first {lost} times")

    def _once(
        self, staged: StagedSlice, put: Callable[[Table, TableState, StagedSlice], NewSnapshot], *, hurry: bool
    ) -> TableState | None:
        """One try; how the table stood before; None: someone else was first, and nothing happened."""
        try:
            table, state = self._ready(hurry and bool(staged.files))
            self._must_fit(table, staged)
            if staged.files and staged.start <= state.head:
                staged.begin_at(state.head + 1)
                self.probe.at("lake.restamped", number=self.slice.number)
            self.probe.at("lake.prepared", number=self.slice.number)
            put(table, state, staged)
        except LostRace:
            return None
        except OutcomeUnknown as error:
            if is_full(error):
                raise self._no_space() from error
            raise self._unclear(f"the catalog's answer was lost ({error})") from error
        return state

    def _ready(self, hurry: bool) -> tuple[Table, TableState]:
        """The table, once it holds the slice before and nobody else has the turn; one in a hurry takes the turn."""
        began, said = time.monotonic(), ""
        while True:
            table, state = self._loaded()
            self.must_follow(state)
            if other := self._others_turn(state):
                waited = time.monotonic() - began
                if waited > MAX_WAIT_SECONDS:
                    raise self._waited(other)
                if waited > SILENCE_SECONDS and said != other.owner:
                    said = other.owner
                    self.say(f"slice {self.slice.number} waits for {other.by}, which writes the table {self._name}")
                time.sleep(TURN_POLL_SECONDS)
            elif hurry and not self._mine(state):
                by = f"slice {self.slice.number} of {self.slice.pipeline}/{self.slice.stream}"
                take_turn(table, state, self.attempt, by=by)
                self.probe.at("lake.turn_taken", number=self.slice.number)
            else:
                return table, state

    def _append(self, table: Table, state: TableState, staged: StagedSlice) -> NewSnapshot:
        removed = list_current_files(table) if self.slice.kind is Kind.REFRESH else ()
        return commit_snapshot(
            table,
            kind="landing",
            head=max(state.head, staged.last),
            added=staged.files,
            removed=removed,
            properties=lambda new: self.properties(state, staged, new),
            summary=lambda new: self.summary(state, staged, new),
            unset=[names.TURN] if names.TURN in state.properties else (),
        )

    def _forget_states(self, before: TableState) -> None:
        """Keep the table's document small. Left to the next landing if someone else commits first."""
        if find_prunable(before, self.states) is None:
            return
        with contextlib.suppress(LostRace, OutcomeUnknown):
            table = load_table(self.lake, self.table)
            state = extract_state(table) if table is not None else before
            forgetting = find_prunable(state, self.states)
            if table is not None and forgetting is not None:
                prune(table, state, forgetting, {HEAD_TIMES: format_times(state)})
                self.probe.at("lake.forgotten", number=self.slice.number)

    def link(self, state: TableState, staged: StagedSlice, new: NewSnapshot) -> Link:
        return Link(
            position=self.slice.position,
            kind=self.slice.kind.value,
            rows=staged.rows,
            bytes=staged.bytes,
            uuid=state.uuid,
            snapshot=new.snapshot,
            sequence=new.sequence,
        )

    def properties(self, state: TableState, staged: StagedSlice, new: NewSnapshot) -> dict[str, str]:
        """What the table remembers of this landing beside its data."""
        document = {**self.link(state, staged, new).document(), "attempt": self.attempt}
        found = {
            names.chain_property(self.slice.pipeline, self.slice.stream): canonical(document),
            names.content_property(self.slice.content): self.slice.content,
        }
        if not state.foreign() and not state.gap:
            found[names.INSPECTED] = format_inspected(new)
        return found

    def summary(self, state: TableState, staged: StagedSlice, new: NewSnapshot) -> dict[str, str]:
        """What the snapshot tells of this landing, for those who find it after a rollback."""
        about = {"pipeline": self.slice.pipeline, "stream": self.slice.stream, "attempt": self.attempt}
        return {names.CHAIN: canonical({**self.link(state, staged, new).document(), **about})}

    # ------------------------------------------------------------ before a commit

    def _loaded(self) -> tuple[Table, TableState]:
        table = load_table(self.lake, self.table)
        if table is None:
            raise self._unclear("the table is not there any more")
        return table, extract_state(table)

    def must_follow(self, state: TableState) -> None:
        """The table must hold exactly the slice before; the gate decides what anything else means."""
        link = find_link(state, self.slice.pipeline, self.slice.stream, self.table)
        if (link.position.id if link else "") != self.slice.previous:
            raise self._unclear("the table does not hold the slice before it")

    def _must_fit(self, table: Table, staged: StagedSlice) -> None:
        """Files belong to the table and the partitioning they were written for; the slice is put aside anew if not."""
        if staged.uuid not in (None, str(table.metadata.table_uuid)):
            raise self._unclear("the table was dropped and made again since its rows were put aside")
        # PyIceberg would enter them under the partitioning that the table has now.
        if any(file.spec_id != table.metadata.default_spec_id for file in staged.files):
            raise self._unclear("the table's partitioning was changed since its rows were put aside")

    def _others_turn(self, state: TableState) -> Turn | None:
        turn = state.turn()
        theirs = turn is not None and turn.owner != self.attempt and turn.until > datetime.now(UTC)
        return turn if theirs else None

    def _mine(self, state: TableState) -> bool:
        turn = state.turn()
        return turn is not None and turn.owner == self.attempt

    def _give_turn_back(self) -> None:
        """So that nobody waits for one that has given up; who is killed gives it back by its expiry."""
        table = load_table(self.lake, self.table)
        if table is not None and self._mine(extract_state(table)):
            give_turn_back(table)

    @property
    def _name(self) -> str:
        return f"{self.lake.namespace}.{self.table}"

    def _waited(self, other: Turn) -> StreamFailed:
        return StreamFailed(
            f"slice {self.slice.number} waited {MAX_WAIT_SECONDS:.0f} seconds for other writers of {self._name}; the "
            f"turn is that of {other.by}, until {other.until:%H:%M:%S} UTC",
            next_step="see whether that writer still runs, and run again; the slice is still open",
            pipeline=self.slice.pipeline,
            stream=self.slice.stream,
        )

    def _no_space(self) -> StreamFailed:
        return make_no_space(self.lake.warehouse, pipeline=self.slice.pipeline, stream=self.slice.stream)

    def _unclear(self, why: str) -> CommitUnclear:
        return CommitUnclear(
            f"slice {self.slice.number} was not committed by this attempt: {why}",
            next_step="ask the table which slice it holds",
            pipeline=self.slice.pipeline,
            stream=self.slice.stream,
        )


def take_turn(
    table: Table, state: TableState, owner: str, seconds: float | None = None, *, by: str = "another writer"
) -> None:
    """Announce that the next commit is ours; an empty snapshot, so that every other writer looks again.

    `by` says who we are, for the messages of those that wait.
    """
    until = (datetime.now(UTC) + timedelta(seconds=TURN_SECONDS if seconds is None else seconds)).isoformat()
    commit_snapshot(
        table,
        kind="turn",
        head=state.head,
        properties=fixed({names.TURN: json.dumps({"owner": owner, "until": until, "by": by})}),
    )


def give_turn_back(table: Table) -> None:
    """Let others go on; a lost race leaves it to the turn's expiry."""
    with contextlib.suppress(LostRace, OutcomeUnknown), translate_commit_errors():
        table.transaction().remove_properties(names.TURN).commit_transaction()


def format_inspected(new: NewSnapshot) -> str:
    return json.dumps({"snapshot": str(new.snapshot), "sequence": new.sequence})


def list_current_files(table: Table) -> list[DataFile]:
    """Every data file that main shows."""
    return [task.file for task in table.scan().plan_files()]
