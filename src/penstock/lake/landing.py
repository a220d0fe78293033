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
from penstock.lake.chain import held
from penstock.lake.forgetting import Rules, forget, forgettable
from penstock.lake.place import Place
from penstock.lake.space import is_full, no_space
from penstock.lake.standing import Link, Standing, Turn
from penstock.lake.tables import LostRace, Planted, Unclear, commit, fixed, load, standing_of, translated
from penstock.lake.times import TIMES, noted
from penstock.ports import Probe

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

#: races a writer loses before it announces its turn
PATIENT = 2
#: how long a turn holds others back, and how often it is given up before the slice is left open
TURN_SECONDS = 60.0
TRIES = 40
#: how long one who waits for another's turn sleeps
NAP = 0.05
#: how long a landing waits for the turns of others in all
WAIT_SECONDS = 600.0
#: how long it waits before it says so
SILENT_SECONDS = 2.0


@dataclass
class Landed:
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

    place: Place
    table: str
    slice: Slice
    attempt: str
    probe: Probe
    #: prints a line at once
    say: Callable[[str], None] = lambda _: None
    #: which earlier states stay
    states: Rules = field(default_factory=Rules)

    def land(self, landed: Landed, put: Callable[[Table, Standing, Landed], Planted] | None = None) -> None:
        """Commit the slice after the one before it. CommitUnclear: it was not this attempt, or nobody knows yet.

        `put` is how a keyed table takes it; a log just appends.
        """
        lost = 0
        try:
            while lost < TRIES:
                before = self._once(landed, put or self._append, hurry=lost >= PATIENT)
                if before is not None:
                    self.probe.at("lake.landed", number=self.slice.number)
                    self._forget_states(before)
                    return
                lost += 1
                self.probe.at("lake.lost_race", number=self.slice.number)
                time.sleep(random.uniform(0, NAP * min(lost, 4)))
        except BaseException:
            self._give_turn_back()
            raise
        self._give_turn_back()
        raise self._unclear(f"other writers of the table came first {lost} times")

    def _once(
        self, landed: Landed, put: Callable[[Table, Standing, Landed], Planted], *, hurry: bool
    ) -> Standing | None:
        """One try; how the table stood before; None: someone else was first, and nothing happened."""
        try:
            table, standing = self._ready(hurry and bool(landed.files))
            self._must_fit(table, landed)
            if landed.files and landed.start <= standing.head:
                landed.begin_at(standing.head + 1)
                self.probe.at("lake.restamped", number=self.slice.number)
            self.probe.at("lake.prepared", number=self.slice.number)
            put(table, standing, landed)
        except LostRace:
            return None
        except Unclear as error:
            if is_full(error):
                raise self._no_space() from error
            raise self._unclear(f"the catalog's answer was lost ({error})") from error
        return standing

    def _ready(self, hurry: bool) -> tuple[Table, Standing]:
        """The table, once it holds the slice before and nobody else has the turn; one in a hurry takes the turn."""
        began, said = time.monotonic(), ""
        while True:
            table, standing = self._loaded()
            self.must_follow(standing)
            if other := self._others_turn(standing):
                waited = time.monotonic() - began
                if waited > WAIT_SECONDS:
                    raise self._waited(other)
                if waited > SILENT_SECONDS and said != other.owner:
                    said = other.owner
                    self.say(f"slice {self.slice.number} waits for {other.by}, which writes the table {self._name}")
                time.sleep(NAP)
            elif hurry and not self._mine(standing):
                by = f"slice {self.slice.number} of {self.slice.pipeline}/{self.slice.stream}"
                take_turn(table, standing, self.attempt, by=by)
                self.probe.at("lake.turn_taken", number=self.slice.number)
            else:
                return table, standing

    def _append(self, table: Table, standing: Standing, landed: Landed) -> Planted:
        removed = current_files(table) if self.slice.kind is Kind.REFRESH else ()
        return commit(
            table,
            kind="landing",
            head=max(standing.head, landed.last),
            added=landed.files,
            removed=removed,
            properties=lambda planted: self.properties(standing, landed, planted),
            summary=lambda planted: self.summary(standing, landed, planted),
            unset=[names.TURN] if names.TURN in standing.properties else (),
        )

    def _forget_states(self, before: Standing) -> None:
        """Keep the table's document small. Left to the next landing if someone else commits first."""
        if forgettable(before, self.states) is None:
            return
        with contextlib.suppress(LostRace, Unclear):
            table = load(self.place, self.table)
            standing = standing_of(table) if table is not None else before
            forgetting = forgettable(standing, self.states)
            if table is not None and forgetting is not None:
                forget(table, standing, forgetting, {TIMES: noted(standing)})
                self.probe.at("lake.forgotten", number=self.slice.number)

    def link(self, standing: Standing, landed: Landed, planted: Planted) -> Link:
        return Link(
            position=self.slice.position,
            kind=self.slice.kind.value,
            rows=landed.rows,
            bytes=landed.bytes,
            uuid=standing.uuid,
            snapshot=planted.snapshot,
            sequence=planted.sequence,
        )

    def properties(self, standing: Standing, landed: Landed, planted: Planted) -> dict[str, str]:
        """What the table remembers of this landing beside its data."""
        document = {**self.link(standing, landed, planted).document(), "attempt": self.attempt}
        found = {
            names.chain_property(self.slice.pipeline, self.slice.stream): canonical(document),
            names.content_property(self.slice.content): self.slice.content,
        }
        if not standing.foreign() and not standing.gap:
            found[names.INSPECTED] = inspected(planted)
        return found

    def summary(self, standing: Standing, landed: Landed, planted: Planted) -> dict[str, str]:
        """What the snapshot tells of this landing, for those who find it after a rollback."""
        about = {"pipeline": self.slice.pipeline, "stream": self.slice.stream, "attempt": self.attempt}
        return {names.CHAIN: canonical({**self.link(standing, landed, planted).document(), **about})}

    # ------------------------------------------------------------ before a commit

    def _loaded(self) -> tuple[Table, Standing]:
        table = load(self.place, self.table)
        if table is None:
            raise self._unclear("the table is not there any more")
        return table, standing_of(table)

    def must_follow(self, standing: Standing) -> None:
        """The table must hold exactly the slice before; the gate decides what anything else means."""
        link = held(standing, self.slice.pipeline, self.slice.stream, self.table)
        if (link.position.id if link else "") != self.slice.previous:
            raise self._unclear("the table does not hold the slice before it")

    def _must_fit(self, table: Table, landed: Landed) -> None:
        """Files belong to the table and the partitioning they were written for; the slice is put aside anew if not."""
        if landed.uuid not in (None, str(table.metadata.table_uuid)):
            raise self._unclear("the table was dropped and made again since its rows were put aside")
        # PyIceberg would enter them under the partitioning that the table has now.
        if any(file.spec_id != table.metadata.default_spec_id for file in landed.files):
            raise self._unclear("the table's partitioning was changed since its rows were put aside")

    def _others_turn(self, standing: Standing) -> Turn | None:
        turn = standing.turn()
        theirs = turn is not None and turn.owner != self.attempt and turn.until > datetime.now(UTC)
        return turn if theirs else None

    def _mine(self, standing: Standing) -> bool:
        turn = standing.turn()
        return turn is not None and turn.owner == self.attempt

    def _give_turn_back(self) -> None:
        """So that nobody waits for one that has given up; who is killed gives it back by its expiry."""
        table = load(self.place, self.table)
        if table is not None and self._mine(standing_of(table)):
            give_turn_back(table)

    @property
    def _name(self) -> str:
        return f"{self.place.namespace}.{self.table}"

    def _waited(self, other: Turn) -> StreamFailed:
        return StreamFailed(
            f"slice {self.slice.number} waited {WAIT_SECONDS:.0f} seconds for other writers of {self._name}; the turn "
            f"is that of {other.by}, until {other.until:%H:%M:%S} UTC",
            next_step="see whether that writer still runs, and run again; the slice is still open",
            pipeline=self.slice.pipeline,
            stream=self.slice.stream,
        )

    def _no_space(self) -> StreamFailed:
        return no_space(self.place.warehouse, pipeline=self.slice.pipeline, stream=self.slice.stream)

    def _unclear(self, why: str) -> CommitUnclear:
        return CommitUnclear(
            f"slice {self.slice.number} was not committed by this attempt: {why}",
            next_step="ask the table which slice it holds",
            pipeline=self.slice.pipeline,
            stream=self.slice.stream,
        )


def take_turn(
    table: Table, standing: Standing, owner: str, seconds: float | None = None, *, by: str = "another writer"
) -> None:
    """Announce that the next commit is ours; an empty snapshot, so that every other writer looks again.

    `by` says who we are, for the messages of those that wait.
    """
    until = (datetime.now(UTC) + timedelta(seconds=TURN_SECONDS if seconds is None else seconds)).isoformat()
    commit(
        table,
        kind="turn",
        head=standing.head,
        properties=fixed({names.TURN: json.dumps({"owner": owner, "until": until, "by": by})}),
    )


def give_turn_back(table: Table) -> None:
    """Let others go on; a lost race leaves it to the turn's expiry."""
    with contextlib.suppress(LostRace, Unclear), translated():
        table.transaction().remove_properties(names.TURN).commit_transaction()


def inspected(planted: Planted) -> str:
    return json.dumps({"snapshot": str(planted.snapshot), "sequence": planted.sequence})


def current_files(table: Table) -> list[DataFile]:
    """Every data file that main shows."""
    return [task.file for task in table.scan().plan_files()]
