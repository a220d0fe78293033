"""The world with the real lake sink in it: a SQLite catalog, Parquet, PyIceberg's commits; what readers of a table see.

Beside the stream's own processes: another pipeline that lands in the same table, compaction, expiry of snapshots, a
rollback of main, and a table that is dropped.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from penstock.core.marks import Mark
from penstock.core.slices import Part, following
from penstock.errors import StreamStopped
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.metadata import _location, read_state
from penstock.lake.table_state import Link, TableState
from penstock.lake.tables import load_table, open_catalog
from penstock.ports import Context, NoProbe, Probe
from penstock.sinks.lake import LakeSink, Options, build
from tests.engine.world import PIPELINE, STREAM, Return, World, Wrong
from tests.harness.doubles import MemorySource
from tests.lake.compaction import compact

OTHER = "q"
#: slices that lead elsewhere than on
RETURNS = ("reset", "rewind", "undo")


@dataclass(frozen=True)
class Landing:
    """A slice of the stream that took effect, as its snapshot tells."""

    number: int
    id: str
    kind: str
    place: int
    #: the highest number handed out when it had landed
    head: int


@dataclass(frozen=True)
class Look:
    """A table as a reader sees it."""

    state: TableState | None = None
    #: (number in the order, place) of every row; places of the other pipeline are below 0
    rows: frozenset[tuple[int, int]] = frozenset()
    files: frozenset[str] = frozenset()

    @property
    def head(self) -> int:
        return self.state.head if self.state else 0

    @cached_property
    def link(self) -> Link | None:
        return self.state.link(PIPELINE, STREAM) if self.state else None


@dataclass
class LakeWorld(World):
    """One table."""

    namespace: str = "n"
    location: str | None = None
    now: Look = field(default_factory=Look)
    others: int = 0
    copies: int = 0
    #: every snapshot that was ever seen: its parent, and the slice of the stream that it landed
    snapshots: dict[int, tuple[int | None, Landing | None]] = field(default_factory=dict)

    def sink(self, probe: Probe, pipeline: str = PIPELINE) -> LakeSink:
        options = Options(namespace=self.namespace)
        return build(options, {}, Context(pipeline, os.path.dirname(self.folder), probe))

    @cached_property
    def lake(self) -> Lake:
        return self.sink(NoProbe()).lake

    # ------------------------------------------------------------ what others do

    def other_lands(self, rows: int) -> None:
        """Another pipeline lands a slice in the same table; made if it is not there."""
        sink = self.sink(NoProbe(), OTHER)
        try:
            held = sink.held(STREAM)
        except StreamStopped:
            with suppress(StreamStopped):  # its history may not tell any more; then it does not land
                sink.recover(STREAM)
                self.other_lands(rows)
            return
        self.others += 1
        slice_ = following(
            held.position if held else None,
            pipeline=OTHER,
            stream=STREAM,
            upto=Mark.of({"place": self.others}),
            content=MemorySource({}).content(STREAM),
        )
        attempt = f"q{self.others}"
        schema = pa.schema([(name, pa.int64()) for name in ("place", "key", "version")])
        places = [-10 * self.others - row for row in range(rows)]
        batch = pa.table({"place": places, "key": places, "version": places}, schema=schema)
        receipts = [sink.writer(slice_, attempt).write(batch.to_reader(), Part(0, "{}"))] if rows else []
        if rows or self.now.state:
            sink.commit(slice_, attempt, receipts)

    def compacts(self) -> None:
        table = load_table(self.lake, STREAM)
        if table is not None and table.metadata.current_snapshot_id is not None:
            compact(table)

    def expires(self) -> None:
        """As upkeep does it: only where every chain's snapshot belongs to main, and never main's own."""
        table, state = load_table(self.lake, STREAM), self.now.state
        if table is None or state is None or any(state.stale(link) for link in state.links().values()):
            return
        old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != table.metadata.current_snapshot_id]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def rolls_back(self, back: int) -> None:
        """Main is set to an earlier state; properties stay."""
        table = load_table(self.lake, STREAM)
        line = list(self.now.state.line()) if self.now.state else []
        if table is None or len(line) < 2:
            return
        table.manage_snapshots().rollback_to_snapshot(line[min(back, len(line) - 1)].id).commit()
        self.meddled()

    def drops(self) -> None:
        if self.now.state is not None:
            open_catalog(self.lake).drop_table(self.lake.identifier(STREAM))
            self.meddled()

    def meddled(self) -> None:
        self.tampered_sink = True
        self.look_anew()

    def copy_sink(self) -> object:
        """The catalog's row and the document that it names; data files are never changed."""
        if self.location is None:
            return ""
        self.copies += 1
        path = self.location.removeprefix("file://")
        copy = os.path.join(self.folder, f"copy{self.copies}.metadata.json")
        os.makedirs(self.folder, exist_ok=True)
        shutil.copy(path, copy)
        return f"file://{copy}"

    def restore_sink(self, copy: object) -> None:
        if copy == "":
            self.drops()
            return
        named = (self.lake.name, self.lake.namespace, STREAM)
        with closing(sqlite3.connect(self.lake.uri)) as db, db:
            where = "where catalog_name = ? and table_namespace = ? and table_name = ?"
            changed = db.execute(f"update iceberg_tables set metadata_location = ? {where}", (copy, *named))
            if not changed.rowcount:
                db.execute(
                    "insert into iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
                    "values (?, ?, ?, ?)",
                    (*named, copy),
                )
        self.now = Look()  # what readers saw does not count any more: the head is an older one
        self.meddled()

    def recover(self) -> None:
        """As for every sink; where the table's history does not tell, the operator drops it as the message says."""
        try:
            super().recover()
        except Wrong:
            if "its history no longer tells" not in (self.stopped or ""):
                raise
            self.drops()
            super().recover()

    # ------------------------------------------------------------ what readers see

    def look(self) -> Look:
        """The table now; read again only if the catalog names another document."""
        location = _location(self.lake, STREAM)
        if location != self.location:
            self.location = location
            self.now = self._looked()
        return self.now

    def _looked(self) -> Look:
        state, table = read_state(self.lake, STREAM), load_table(self.lake, STREAM)
        if state is None or table is None:
            return Look()
        for snapshot in state.snapshots.values():
            self.snapshots.setdefault(snapshot.id, (snapshot.parent, _landing(snapshot.summary)))
        tasks = list(table.scan().plan_files())
        files = frozenset(task.file.file_path.removeprefix("file://") for task in tasks)
        self._check_files(files)
        seen = table.scan().to_arrow()
        numbers, places = (seen.column(name).to_pylist() for name in (names.SEQ, "place"))
        if len(set(numbers)) != len(numbers):
            raise Wrong(f"doubled: numbers {sorted(n for n in set(numbers) if numbers.count(n) > 1)} are there twice")
        return Look(state, frozenset(zip(numbers, places, strict=True)), files)

    def landings(self) -> list[Landing]:
        """The stream's slices that main shows, oldest first, also those whose snapshots have expired."""
        found, state = [], self.look().state
        at = state.main.id if state and state.main else None
        while at is not None:
            at, landing = self.snapshots.get(at, (None, None))
            if landing is not None:
                found.append(landing)
        return found[::-1]

    def returns(self) -> list[Return]:
        found, after = [], 0
        for each in self.landings():
            if each.kind in RETURNS:
                found.append(Return(each.number, after, each.place))
            after = each.place
        return found

    def delivered(self) -> list[tuple[int, int]]:
        heads = [each.head for each in self.landings() if each.kind in RETURNS]
        rows = [row for row in self.look().rows if row[1] > 0]
        return [(sum(head < number for head in heads), place) for number, place in rows]

    def look_anew(self) -> None:
        """Rows may be gone, but none has come that a reader would miss."""
        before = self.now
        self._check_order(before, self.look())

    # ------------------------------------------------------------ what must hold

    def check_seen(self) -> None:
        before = self.now
        self._check_files(before.files)
        after = self.look()
        if after is before:
            return
        self._check_order(before, after)
        gone = before.rows - after.rows
        if gone:
            raise Wrong(f"vanished: {sorted(gone)}")
        self._check_chain(before.link, after.link)
        self.check_generations(self.delivered())

    def _check_files(self, files: frozenset[str]) -> None:
        missing = [path for path in files if not os.path.exists(path)]
        if missing:
            raise Wrong(f"vanished: {missing}, which main names")

    def _check_order(self, before: Look, after: Look) -> None:
        """A reader that has seen everything up to the head never meets a row at or below it later."""
        if not (before.state and after.state and before.state.uuid == after.state.uuid):
            return
        if after.head < before.head:
            raise Wrong(f"backwards: the head went from {before.head} to {after.head}")
        late = [row for row in after.rows - before.rows if row[0] <= before.head]
        if late:
            raise Wrong(f"backwards: {late} came after a reader had seen everything up to {before.head}")
        above = [row for row in after.rows if row[0] > after.head]
        if above:
            raise Wrong(f"backwards: {above} are above the head {after.head}")

    def _check_chain(self, before: Link | None, after: Link | None) -> None:
        """Each slice takes effect once, after the one before it."""
        if after is None or before == after:
            return
        came, number = before.position.number if before else 0, after.position.number
        if number <= came:
            raise Wrong(f"doubled: slice {number} took effect after slice {came}")
        shown = [each.number for each in self.landings()]
        if shown != list(range(1, len(shown) + 1)):
            raise Wrong(f"doubled: main shows the slices {shown}")

    def check_whole(self) -> None:
        state = self.look().state
        if state and state.branches.keys() - {"main"}:
            raise Wrong(f"partial: branches are left: {list(state.branches)}")


def _landing(summary: object) -> Landing | None:
    text = summary.get(names.CHAIN) if isinstance(summary, dict) else None
    document = json.loads(text) if text else None
    if document is None or document["pipeline"] != PIPELINE or summary.get(names.KIND) != "landing":  # type: ignore[attr-defined]
        return None
    mark = json.loads(document["mark"]) if document["mark"] else None
    return Landing(
        number=document["number"],
        id=document["id"],
        kind=document["kind"],
        place=mark["place"] if mark else 0,
        head=int(summary[names.HEAD]),  # type: ignore[index]
    )
