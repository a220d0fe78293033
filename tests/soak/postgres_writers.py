"""Writers that commit late: transactions of every kind, each remembered, so that a lost row can tell its story."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import psycopg

from tests.soak.postgres_crew import Connection, Crew, Work

TABLES = ("stamped", "defaulted", "numbered", "parted")
SQL = Path(__file__).with_name("postgres_tables.sql")
#: ids that a writer has for itself
OWN = 1_000_000_000
#: most seconds that a statement sleeps in the server, where no event can wake it
ASLEEP = 5.0

#: a statement that returns the ids it wrote to a table
Statement = tuple[str, str, Sequence[Any]]


def make_tables(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(SQL.read_bytes())


class Writer:
    """One connection that never rests: one transaction after the other, each of a kind."""

    def __init__(self, crew: Crew, number: int) -> None:
        self.crew, self.number = crew, number
        self.chance = random.Random(f"{crew.seed}/{number}")
        self._next = number * OWN

    def live(self) -> None:
        kinds = list(KINDS)
        weights = [KINDS[kind][0] for kind in kinds]
        # Half of them speak as psql does, in simple queries, half as most drivers do.
        factory = psycopg.ClientCursor if self.number % 2 else psycopg.Cursor
        name = f"writer {self.number}"
        try:
            with psycopg.connect(
                self.crew.url, autocommit=True, application_name=name, cursor_factory=factory
            ) as connection:
                db = cast(Connection, connection)
                while not self.crew.stop.wait(self.chance.uniform(0, self.crew.pause)):
                    [kind] = self.chance.choices(kinds, weights)
                    work = Work(kind, self.number)
                    self.crew.works.append(work)
                    KINDS[kind][1](self, db, work)
        except psycopg.Error as error:
            self.crew.faults.append(f"{name}: {error}")

    # ------------------------------------------------------------ kinds of transactions

    def short(self, db: Connection, work: Work) -> None:
        db.execute("begin")
        self._write(db, work)
        self._commit(db, work)

    def single(self, db: Connection, work: Work) -> None:
        """Each statement alone."""
        self._write(db, work)
        work.end("committed")
        self._learn(work)

    def long(self, db: Connection, work: Work) -> None:
        """Writes, is idle in its transaction, writes again."""
        db.execute("begin")
        self._write(db, work)
        self.crew.stop.wait(self._any_length())
        self._write(db, work)
        self._commit(db, work)

    def late(self, db: Connection, work: Work) -> None:
        """Is stamped at its beginning and takes its first lock at its end."""
        db.execute("begin")
        db.execute("select now()")
        self.crew.stop.wait(self._any_length())
        self._write(db, work)
        self._commit(db, work)

    def rolled_back(self, db: Connection, work: Work) -> None:
        db.execute("begin")
        self._write(db, work)
        self.crew.stop.wait(self._length())
        self._write(db, work)
        db.execute("rollback")
        work.end("rolled back")

    def savepoints(self, db: Connection, work: Work) -> None:
        db.execute("begin")
        self._write(db, work)
        db.execute("savepoint a")
        self._write(db, work)
        self.crew.stop.wait(self._length())
        db.execute("rollback to savepoint a")
        self._write(db, work)
        db.execute("savepoint b")
        self._write(db, work)
        self.crew.stop.wait(self._length())
        db.execute("release savepoint b")
        self._commit(db, work)

    def prepared(self, db: Connection, work: Work) -> None:
        """Ends its connection's part long before the notary ends it."""
        if not self.crew.may_prepare():
            return self.short(db, work)
        name = f"{self.number}-{time.monotonic_ns()}"
        db.execute("begin")
        self._write(db, work)
        self.crew.stop.wait(self._length())
        db.execute(f"prepare transaction '{name}'".encode())
        work.outcome = "prepared"
        self.crew.leave(name, self._any_length(), commit=self.chance.random() < 0.8, work=work)
        return None

    def chained(self, db: Connection, work: Work) -> None:
        db.execute("begin")
        self._write(db, work)
        db.execute("commit and chain")
        self.crew.stop.wait(self._length())
        self._write(db, work)
        self._commit(db, work)

    def message(self, db: Connection, work: Work) -> None:
        """Several transactions in one message: all of them have the time of its arrival."""
        texts: list[Statement | str] = ["begin", *self._statements(), "commit", f"select pg_sleep({self._sleep()})"]
        texts += [*self._statements(), f"select pg_sleep({self._sleep()})", "begin", *self._statements(), "commit"]
        client = psycopg.ClientCursor(db)
        said = [text if isinstance(text, str) else client.mogrify(text[1], text[2]) for text in texts]
        client.execute("; ".join(said).encode())
        for text in texts:
            if not isinstance(text, str):
                work.touched += [(text[0], row[0]) for row in client.fetchall()]
            client.nextset()
        work.end("committed")
        self._learn(work)

    def statement(self, db: Connection, work: Work) -> None:
        """One statement that takes its time between rows."""
        seconds = self._sleep() / 3
        rows = [self._id() for _ in range(3)]
        db.execute(
            "insert into stamped (id, writer, note) select id, %s, 'slow' || pg_sleep(%s)::text from unnest(%s) id",
            (self.number, seconds, rows),
        )
        work.touched += [("stamped", id_) for id_ in rows]
        for table in ("numbered", "parted"):
            found = db.execute(
                f"insert into {table} (writer, note) select %s, 'slow' || pg_sleep(%s)::text"
                " from generate_series(1, 3) returning id",
                (self.number, seconds),
            )
            work.touched += [(table, row[0]) for row in found.fetchall()]
        work.end("committed")
        self._learn(work)

    def procedure(self, db: Connection, work: Work) -> None:
        count = self.chance.randint(1, 5)
        first, *_ = [self._id() for _ in range(count)]
        db.execute("call trickle(%s, %s, %s, %s)", (self.number, first, count, self._sleep()))
        work.touched += [(table, first + n) for table in ("stamped", "defaulted") for n in range(count)]
        work.end("committed")
        self._learn(work)

    def copied(self, db: Connection, work: Work) -> None:
        db.execute("begin")
        ids = [self._id() for _ in range(4)]
        with db.cursor().copy("copy stamped (id, writer, note) from stdin") as copy:
            for id_ in ids:
                copy.write_row((id_, self.number, "copied"))
                self.crew.stop.wait(self._length() / 4)
        work.touched += [("stamped", id_) for id_ in ids]
        with db.cursor().copy("copy numbered (writer, note) from stdin") as copy:
            for _ in range(4):
                copy.write_row((self.number, "copied"))
                self.crew.stop.wait(self._length() / 4)
        self._commit(db, work)

    # ------------------------------------------------------------ what they are made of

    def _write(self, db: Connection, work: Work) -> None:
        for table, text, values in self._statements():
            work.touched += [(table, row[0]) for row in db.execute(text.encode(), values).fetchall()]

    def _commit(self, db: Connection, work: Work) -> None:
        db.execute("commit")
        work.end("committed")
        self._learn(work)

    def _learn(self, work: Work) -> None:
        self.crew.known += [id_ for table, id_ in work.touched if table == "stamped"][:2]

    def _statements(self) -> list[Statement]:
        """A few inserts and updates; nobody waits for a row that another has."""
        note = f"{self.chance.randrange(1 << 30):x}" * self.chance.randint(1, 8)
        some: list[Statement] = [
            self.insert(self.chance.choice(TABLES), note) for _ in range(self.chance.randint(1, 3))
        ]
        if self.chance.random() < 0.7:
            ids = [self.chance.choice(self.crew.known) for _ in range(self.chance.randint(1, 4))]
            text = (
                "update stamped s set changes = s.changes + 1, writer = %s, note = %s, amount = s.amount + 0.01 from"
                " (select id from stamped where id = any(%s) for update skip locked) x where s.id = x.id returning s.id"
            )
            some.insert(self.chance.randint(0, len(some)), ("stamped", text, (self.number, note, ids)))
        return some

    def insert(self, table: str, note: str) -> Statement:
        if table in ("numbered", "parted"):
            return table, f"insert into {table} (writer, note) values (%s, %s) returning id", (self.number, note)
        text = f"insert into {table} (id, writer, note) values (%s, %s, %s) returning id"
        return table, text, (self._id(), self.number, note)

    def _id(self) -> int:
        self._next += 1
        return self._next

    def _length(self) -> float:
        """Mostly nothing, now and then anything up to the longest."""
        return self._any_length() if self.chance.random() < 0.12 else self.chance.uniform(0, 0.03)

    def _any_length(self) -> float:
        return self.chance.uniform(0, self.crew.longest)

    def _sleep(self) -> float:
        return min(self._length(), ASLEEP)


#: how often each kind comes
KINDS: dict[str, tuple[int, Callable[[Writer, Connection, Work], None]]] = {
    "short": (24, Writer.short),
    "single": (16, Writer.single),
    "long": (4, Writer.long),
    "late": (4, Writer.late),
    "rolled back": (8, Writer.rolled_back),
    "savepoints": (10, Writer.savepoints),
    "prepared": (6, Writer.prepared),
    "chained": (6, Writer.chained),
    "message": (8, Writer.message),
    "statement": (5, Writer.statement),
    "procedure": (5, Writer.procedure),
    "copied": (4, Writer.copied),
}


def begin(crew: Crew, writers: int) -> None:
    crew.start([Writer(crew, number).live for number in range(1, writers + 1)])


class Straggler:
    """A transaction that was stamped and numbered before a run, and commits after it; others commit meanwhile."""

    WAYS = ("open", "prepared", "late")

    def __init__(self, crew: Crew, number: int) -> None:
        self.crew, self.way = crew, self.WAYS[number % len(self.WAYS)]
        self.work = Work(f"straggler, {self.way}", 1_000_000 + number)
        self._writer = Writer(crew, self.work.writer)
        self._db = cast(Connection, psycopg.connect(crew.url, autocommit=True, application_name="straggler"))
        crew.works.append(self.work)
        self._db.execute("begin")
        if self.way == "late":
            self._db.execute("select now()")
        else:
            self._insert(TABLES, self._db, self.work)
        if self.way == "prepared":
            self._db.execute(f"prepare transaction '{self.work.writer}'".encode())
        other = Work("after a straggler", self.work.writer)
        with psycopg.connect(crew.url, autocommit=True) as db:
            self._insert(TABLES, db, other)
        other.end("committed")
        crew.works.append(other)

    def commit(self) -> None:
        with self._db as db:
            if self.way == "late":
                self._insert(("stamped", "defaulted"), db, self.work)
            db.execute(f"commit prepared '{self.work.writer}'".encode() if self.way == "prepared" else "commit")
        self.work.end("committed")

    def _insert(self, tables: Sequence[str], db: Connection, work: Work) -> None:
        for table in tables:
            _, text, values = self._writer.insert(table, work.kind)
            work.touched += [(table, row[0]) for row in db.execute(text.encode(), values).fetchall()]
