"""The world with the real Postgres sink in it: a real server, one table, the ledger; what readers of the table see.

Beside the stream's own processes: connections that are cut, a server that crashes, a table that is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from penstock.core.slices import Part, Receipt
from penstock.links.pipe import carry
from penstock.ports import Context, Mover, NoProbe, Probe, Reader, Writer
from penstock.sinks.postgres import Options, PostgresSink, StreamOptions, build
from penstock.sinks.postgres.ledger import Ledger
from tests.engine.processes import Process
from tests.engine.world import PIPELINE, STREAM, Return, World, Wrong
from tests.harness.doubles import LoopMover

#: points at which the transaction of a commit is open: whoever comes next waits for its end
INSIDE = ("postgres.moved", "postgres.merged")
#: seconds that one waits for another in this box, where whoever goes on goes alone
PATIENCE = 0.02


class Retried(LoopMover):
    """The first part of every slice is tried twice: the first try dies after it has staged its rows."""

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        if parts:
            carry(reader, writer, parts[0])
        return super().move(reader, writer, parts)


class Landed(NamedTuple):
    """A slice that took effect, as the table of all slices tells."""

    number: int
    id: str
    previous: str
    kind: str
    rows: int
    outcome: dict[str, int] | None
    #: its transaction
    born: str
    after: dict[str, int] | None
    upto: dict[str, int] | None


@dataclass(frozen=True)
class Look:
    """The database as a reader sees it."""

    #: (place, key, version, the transaction that wrote it last)
    rows: list[tuple[int, int, int, str]] = field(default_factory=list)
    slices: list[Landed] = field(default_factory=list)
    held: str | None = None
    #: staging tables
    aside: list[str] = field(default_factory=list)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """By transaction, the number of the slice."""
        return {each.born: each.number for each in self.slices}

    def written(self) -> dict[int, list[int]]:
        """By number of the slice, the places of the rows that it wrote last."""
        found: dict[int, list[int]] = {each.number: [] for each in self.slices}
        for place, _, _, born in self.rows:
            if born not in self.numbers:
                raise Wrong(f"doubled: the row at place {place} came in without its slice")
            found[self.numbers[born]].append(place)
        return found


@dataclass
class PostgresWorld(World):
    """One table in one schema."""

    url: str = ""
    schema: str = "w"
    keyed: bool = False
    now: Look = field(default_factory=Look)
    opened: list[tuple[Probe, PostgresSink]] = field(default_factory=list)
    there: bool = False
    #: processes whose rows a crash of the server has emptied
    emptied: set[str] = field(default_factory=set)
    mover: ClassVar[Callable[[], Mover]] = Retried

    def __post_init__(self) -> None:
        with self.db.transaction():
            Ledger(self.schema, PIPELINE).create(self.db)
            self.make()

    @cached_property
    def db(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def said(self, name: str, table: sql.Composable) -> bytes:
        """A file of SQL with the names of this world."""
        text = Path(__file__).with_name(f"postgres_{name}.sql").read_text()
        query = sql.SQL(text).format(
            schema=sql.Identifier(self.schema),
            name=sql.Literal(self.schema),
            table=table,
            primary=sql.SQL(" PRIMARY KEY" if self.keyed else ""),
        )
        return query.as_bytes(None)

    @cached_property
    def looks(self) -> dict[bool, bytes]:
        """The question what there is to see, by whether the table is there."""
        nothing = sql.SQL("(SELECT 1 AS place, 1 AS key, 1 AS version, '' AS born WHERE false) t")
        table = sql.Identifier(self.schema, STREAM)
        return {True: self.said("look", table), False: self.said("look", nothing)}

    def make(self) -> None:
        """Make the table where it is not there."""
        if not self.there:
            self.db.execute(self.said("world", sql.Identifier(self.schema, STREAM)))
            self.there = True

    def sink(self, probe: Probe) -> PostgresSink:
        options = {"url": self.url, "schema": self.schema, "own_schema": self.schema, "lock_timeout": PATIENCE}
        how = StreamOptions(mode="upsert" if self.keyed else "append", create=False)
        sink = build(Options.model_validate(options), {STREAM: how}, Context(PIPELINE, self.folder, probe))
        self.opened.append((probe, sink))
        return sink

    def excused(self, token: str, reason: str) -> bool:
        """One inside its transaction is waited for in vain; rows that were emptied are missed."""
        if "another attempt is still committing it" in reason:
            return any(process.point in INSIDE for process in self.processes)
        if " rows, but the staging table has 0" in reason:
            return token in self.emptied
        return super().excused(token, reason)

    # ------------------------------------------------------------ what others do

    def cut(self, process: Process) -> None:
        """The server ends the connection of a process."""
        for probe, sink in self.opened:
            connection = sink.writing._connection
            if probe is process.probe and connection is not None and not connection.closed:
                self.db.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])

    def crashes(self) -> None:
        """The server crashes and comes back: connections are gone, and what was not logged is empty."""
        for process in self.processes:
            self.cut(process)
            self.emptied.add(process.name)
        for name in self.look().aside:
            self.db.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(self.schema, name)))

    def drops(self) -> None:
        for process in self.processes:
            if process.point in INSIDE:
                self.cut(process)
        self.db.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(self.schema, STREAM)))
        self.there = False
        self.tampered_sink = True
        self.look_anew()

    def copy_sink(self) -> object:
        tables = ("ledger", "slices")
        query = sql.SQL("SELECT to_jsonb(t) FROM {} t ORDER BY t.number")
        kept = [self.db.execute(query.format(sql.Identifier(self.schema, table))).fetchall() for table in tables]
        return self.look(), self._oid(), *kept

    def _oid(self) -> int | None:
        """The table's, None: it is not there."""
        found = self.db.execute("SELECT to_regclass(%s)::oid::bigint", [f"{self.schema}.{STREAM}"]).fetchone()
        assert found
        return found[0]  # type: ignore[no-any-return]  # a row of psycopg has any type

    def restore_sink(self, copy: object) -> None:
        """From a copy of the database: nobody is connected any more, and nothing is staged."""
        assert isinstance(copy, tuple)
        look, oid, ledger, slices = copy
        for process in self.processes:
            self.cut(process)
        self.make()
        gone = [STREAM, "ledger", "slices"]
        tables = sql.SQL(", ").join(sql.Identifier(self.schema, name) for name in gone)
        self.db.execute(sql.SQL("TRUNCATE {}").format(tables))
        for name in self.look().aside:
            self.db.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(self.schema, name)))
        for landed, (row,) in zip(look.slices, slices, strict=True):
            with self.db.transaction():
                self._put_back("slices", row)
                for place, key, version, born in look.rows:
                    if born == landed.born:
                        self._put_back(STREAM, {"place": place, "key": key, "version": version})
        for (row,) in ledger:
            # A copy of the server has the table under its own oid; a ledger that named another table names it still.
            same = oid is not None and row["table_oid"] == str(oid)
            self._put_back("ledger", {**row, "table_oid": self._oid()} if same else row)
        if oid is None:
            self.db.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(self.schema, STREAM)))
            self.there = False
        self.tampered_sink = True
        self.look_anew()

    def _put_back(self, table: str, row: dict[str, Any]) -> None:
        name = sql.Identifier(self.schema, table)
        query = sql.SQL("INSERT INTO {0} SELECT * FROM jsonb_populate_record(NULL::{0}, %s)").format(name)
        self.db.execute(query, [Jsonb(row)])

    def recover(self) -> None:
        """As for every sink; a table that is gone is made again by the operator."""
        super().recover()
        self.make()

    # ------------------------------------------------------------ what readers see

    def look(self) -> Look:
        row = self.db.execute(self.looks[self.there]).fetchone()
        assert row
        rows, slices, held, aside = row
        return Look([tuple(each) for each in rows], [Landed(*each) for each in slices], held, aside)

    def returns(self) -> list[Return]:
        """With a key, what is delivered again takes the place of what was there: no generation begins."""
        if self.keyed:
            return []
        leads = [each for each in self.now.slices if each.kind in ("reset", "rewind", "undo")]
        return [Return(each.number, _place(each.after), _place(each.upto)) for each in leads]

    def delivered(self) -> list[tuple[int, int]]:
        returns = self.returns()
        return [
            (sum(each.number < number for each in returns), place)
            for number, places in self.now.written().items()
            for place in places
        ]

    def look_anew(self) -> None:
        self.now = self.look()

    # ------------------------------------------------------------ what must hold

    def check_seen(self) -> None:
        before, after = self.now, self.look()
        self.now = after
        if after == before:
            return
        self._check_chain(before, after)
        if self.keyed:
            self._check_newest(before, after)
        else:
            self._check_added(before, after)
        self.check_generations(self.delivered())

    def _check_chain(self, before: Look, after: Look) -> None:
        """Each slice takes effect once, after the one before it, and says what became of each of its rows."""
        if after.slices[: len(before.slices)] != before.slices:
            raise Wrong(f"vanished: the slices were {before.slices} and are {after.slices}")
        ids = ["", *(each.id for each in after.slices)]
        if [each.previous for each in after.slices] != ids[:-1] or (after.held or "") != ids[-1]:
            raise Wrong(f"doubled: the slices {after.slices} are no chain that ends with {after.held}")
        for each in after.slices:
            if sum((each.outcome or {}).values()) != each.rows:
                raise Wrong(f"partial: slice {each.number} had {each.rows} rows, and became {each.outcome}")

    def _check_added(self, before: Look, after: Look) -> None:
        gone = [row for row in before.rows if row not in after.rows]
        if gone:
            raise Wrong(f"vanished: {gone}")
        written = after.written()
        for each in after.slices:
            if len(written[each.number]) != each.rows:
                raise Wrong(f"partial: slice {each.number} had {each.rows} rows, there are {written[each.number]}")

    def _check_newest(self, before: Look, after: Look) -> None:
        """A key stays, and an older version never comes over a newer one."""
        places = {key: place for place, key, _, _ in after.rows}
        for place, key, _, _ in before.rows:
            if key not in places:
                raise Wrong(f"vanished: key {key}")
            if places[key] < place:
                raise Wrong(f"doubled: key {key} was at place {place}, and an older version came over it")

    def check_whole(self) -> None:
        """What a process left that woke too late is swept by the next one that has something to do."""
        with closing(self.sink(NoProbe())) as sink:
            held = sink.held(STREAM)
            if held:
                sink.sweep(STREAM, held.position)
        number = held.position.number if held else 0
        left = [name for name in self.look().aside if int(name.split("_")[2]) <= number]
        if left:
            raise Wrong(f"partial: {left} are left of slices up to {number}")

    def end(self) -> None:
        super().end()
        self.db.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self.schema)))
        self.db.close()


def _place(mark: Any) -> int:
    return int(mark["place"]) if mark else 0
