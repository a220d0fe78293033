"""The statements by which what was put aside becomes the table's: each row is counted once, by what became of it.

Rows are updated first, then those inserted that are not there yet; what another session inserts meanwhile is passed
over (ON CONFLICT). Whatever was neither is looked at once more, apart from rows of this transaction's own, and tried
again if it was changed under our hands. Values are compared by their image, so that nothing that can be seen is
taken for equal: not 1.0 for 1.00, nor the letters that a collation does not tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.outcome import Outcome
from penstock.links.postgres.literals import join_identifiers, load_statement
from penstock.sinks.postgres.fitting import CHANGE, Fitted
from penstock.sinks.postgres.ledger import ROOM
from penstock.sinks.postgres.staging import PLACE, Staging
from penstock.sinks.postgres.target import Target
from penstock.sinks.postgres.triggers import keeps_out

#: how often rows that another session changes under our hands are tried again
TRIES = 5
#: the numbers of this transaction and of its savepoints: a row carries that of the savepoint in which it was written
_OURS = sql.SQL(
    "SELECT transactionid::text FROM pg_locks "
    "WHERE locktype = 'transactionid' AND pid = pg_backend_pid() AND mode = 'ExclusiveLock'"
)
#: types of which a million values are sorted in a quarter of the time that it takes to group them
_SORTED = ("smallint", "integer", "bigint", "uuid", "date", "timestamp with time zone", "timestamp without time zone")


@dataclass(frozen=True)
class Rules:
    """How a stream's rows meet those of the table."""

    key: tuple[str, ...] = ()
    newer_than: str | None = None
    guard: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    deletes: str = "hard"
    deleted_at: str | None = None

    @property
    def needs(self) -> list[tuple[str, str]]:
        """The columns without which rows cannot meet, each with the option that names it."""
        named = {"key": self.key, "guard": self.guard, "newer_than": (self.newer_than,) if self.newer_than else ()}
        return [(option, name) for option, names in named.items() for name in names]


@dataclass(frozen=True)
class Merge:
    """One slice into one table."""

    staging: Staging
    target: Target
    columns: tuple[Fitted, ...]
    rules: Rules
    #: (number of the attempt, index of the part) of those that are to be taken
    named: Sequence[tuple[int, int]]
    #: nothing else lies there
    alone: bool
    #: rows may say that they are deletes
    changes: bool
    #: only rows from this place on and before that one
    within: tuple[int, int] | None = None
    #: numbers of savepoints in which it has written
    ours: set[str] = field(default_factory=set, compare=False)

    # ------------------------------------------------------------ the rows

    @property
    def source(self) -> sql.Composed:
        """The rows that are to be taken, as they were put aside."""
        if self.within:
            return sql.SQL("(SELECT * FROM {0} WHERE {1} >= {2} AND {1} < {3})").format(
                self.staging.sql, sql.Identifier(PLACE), *map(sql.Literal, self.within)
            )
        if self.alone:
            return sql.Composed([self.staging.sql])
        attempts = sql.Literal([attempt for attempt, _ in self.named])
        return sql.SQL("(SELECT * FROM {} WHERE {} >> 32 = ANY ({}::bigint[]))").format(
            self.staging.sql, sql.Identifier(PLACE), attempts
        )

    def rows(self) -> sql.Composed:
        """The rows that are to be taken, in the types of the table."""
        values: list[sql.Composable] = [
            sql.SQL("{} AS {}").format(column.value("x"), sql.Identifier(column.name)) for column in self.columns
        ]
        values += [sql.Identifier("x", name) for name in ((CHANGE, PLACE) if self.changes else (PLACE,))]
        return sql.SQL("(SELECT {} FROM {} x)").format(sql.SQL(", ").join(values), self.source)

    def newest(self) -> sql.Composed:
        """The rows, of each key only the newest: by the user's column, else by their place in the slice."""
        keys = [sql.Identifier("y", name) for name in self.rules.key]
        order: list[sql.Composable] = list(keys)
        if self.rules.newer_than:
            order.append(sql.SQL("{} DESC NULLS LAST").format(sql.Identifier("y", self.rules.newer_than)))
        # The parts of a slice follow each other; their attempts are numbered at random.
        place = sql.Identifier("y", PLACE)
        parts = sql.SQL(", ").join(
            sql.SQL("({}::bigint, {})").format(sql.Literal(attempt), sql.Literal(part)) for attempt, part in self.named
        )
        order += [sql.SQL("n.part DESC"), sql.SQL("{} DESC").format(place)]
        return sql.SQL(
            "(SELECT DISTINCT ON ({}) y.* FROM {} y JOIN (VALUES {}) n (attempt, part) ON {} >> 32 = n.attempt "
            "ORDER BY {})"
        ).format(sql.SQL(", ").join(keys), self.rows(), parts, place, sql.SQL(", ").join(order))

    def doubles(self, connection: psycopg.Connection[Any]) -> int:
        """Rows that another of the same key comes after."""
        keys = [column for column in self.columns if column.name in self.rules.key]
        if len(keys) == 1 and keys[0].column.type in _SORTED:
            query = sql.SQL("SELECT count({0}) - count(DISTINCT {0}) FROM {1} y").format(
                sql.Identifier("y", keys[0].name), self.rows()
            )
        else:
            query = sql.SQL(
                "SELECT coalesce(sum(n - 1), 0)::bigint FROM "
                "(SELECT count(*) AS n FROM {} y GROUP BY {} HAVING count(*) > 1) z"
            ).format(self.rows(), join_identifiers(self.rules.key))
        row = connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def there(self, connection: psycopg.Connection[Any]) -> list[int]:
        """The places of rows whose key the table has."""
        keys = (sql.SQL("t.{0}::text = s.{0}::text").format(sql.Identifier(name)) for name in self.rules.key)
        # As text, because a value in quarantine may be none that the column's type can read.
        query = sql.SQL("SELECT {} FROM {} s WHERE EXISTS (SELECT FROM {} t WHERE {})").format(
            sql.Identifier("s", PLACE), self.source, self.target.name.sql, sql.SQL(" AND ").join(keys)
        )
        return [int(place) for (place,) in connection.execute(query).fetchall()]

    # ------------------------------------------------------------ what is added

    def append(self, connection: psycopg.Connection[Any]) -> Outcome:
        """Add every row. A delete is left out, or added as a row that is marked."""
        names, values = self._names, self._listed("s")
        which: sql.Composable = sql.SQL("true")
        if self.changes and self._marks:
            marked = sql.SQL("CASE WHEN s.{} = 'delete' THEN now() END").format(sql.Identifier(CHANGE))
            names += sql.SQL(", ") + sql.Identifier(self._marks)
            values += sql.SQL(", ") + marked
        elif self.changes:
            which = self._alive
        query = sql.SQL("INSERT INTO {} ({}) {}SELECT {} FROM {} s WHERE {}").format(
            self.target.name.sql, names, self._overriding, values, self.rows(), which
        )
        added = connection.execute(query).rowcount
        deletes = self._deletes(connection) if self.changes else 0
        if self._marks:
            return Outcome(created=added - deletes, deleted=deletes)
        return Outcome(created=added, ignored=deletes)

    def _deletes(self, connection: psycopg.Connection[Any]) -> int:
        query = sql.SQL("SELECT count(*) FROM {} s WHERE NOT {}").format(self.rows(), self._alive)
        row = connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    # ------------------------------------------------------------ what is merged

    def upsert(self, connection: psycopg.Connection[Any], rows: int) -> Outcome:
        """The slice's rows, of which there are so many, by their key."""
        folded = self.doubles(connection)
        relation = self.newest() if folded else self.rows()
        found = Outcome(folded=folded)
        for _ in range(TRIES):
            found += self._pass(connection, relation)
            if found.rows == rows:
                return found
            skipped, again = self._skipped(connection, relation)
            if not again:
                # What was deleted is not there any more, and looks like a delete that found nothing.
                gone = found.deleted if self._marks is None else 0
                return found + replace(skipped, equal=skipped.equal - gone)
        kept_out = keeps_out(connection, self.target, again, rows)
        if kept_out is not None:
            raise kept_out
        raise psycopg.errors.SerializationFailure("rows are changed by others faster than they can be merged")

    def written(self, connection: psycopg.Connection[Any]) -> None:
        """Write the rows by their key once, no matter what becomes of each."""
        self._pass(connection, self.newest())

    def _pass(self, connection: psycopg.Connection[Any], relation: sql.Composed) -> Outcome:
        there = self._alive if self.changes else sql.SQL("true")
        updated = self._update(connection, relation, there)
        created = self._insert(connection, relation, there)
        deletes = self.changes and self.rules.deletes != "ignore"
        gone = self._delete(connection, relation) if deletes else Outcome()
        return Outcome(updated=updated, created=created) + gone

    @property
    def is_other(self) -> sql.Composed:
        """Whether a row of the table has a key that the slice does not have."""
        return sql.SQL("NOT EXISTS (SELECT FROM {} s WHERE {})").format(self.rows(), self._same_key)

    def _update(self, connection: psycopg.Connection[Any], relation: sql.Composed, which: sql.Composable) -> int:
        if not self._settable or self._empty(connection):
            return 0
        query = sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {} AND {} AND {}").format(
            self.target.name.sql, self._sets("s"), relation, self._same_key, which, self._wanted("s", "t")
        )
        return connection.execute(query).rowcount

    def _insert(self, connection: psycopg.Connection[Any], relation: sql.Composed, which: sql.Composable) -> int:
        there = sql.SQL("EXISTS (SELECT FROM {} t WHERE {})").format(self.target.name.sql, self._same_key)
        query = sql.SQL(
            "INSERT INTO {target} AS t ({names}) {overriding}SELECT {values} FROM {relation} s "
            "WHERE {which} AND NOT {there}"
        ).format(
            target=self.target.name.sql,
            names=self._names,
            overriding=self._overriding,
            values=self._listed("s"),
            relation=relation,
            which=which,
            there=sql.SQL("false") if self._empty(connection) else there,
        )
        try:
            with connection.transaction():
                created = connection.execute(query).rowcount
                self.ours.update(xid for (xid,) in connection.execute(_OURS).fetchall())
        except psycopg.errors.UniqueViolation:
            # Another session has inserted one of the keys meanwhile; if it is another index, that fails once more.
            query += sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(join_identifiers(self.rules.key))
            created = connection.execute(query).rowcount
        return created

    def _empty(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether the table has no rows yet. A join with it would be planned for a table that stays so small.

        It grows by the very statement: for each row all rows before it were looked at, 8 s for 20,000.
        """
        query = sql.SQL("SELECT NOT EXISTS (SELECT FROM {})").format(self.target.name.sql)
        row = connection.execute(query).fetchone()
        return bool(row and row[0])

    def _delete(self, connection: psycopg.Connection[Any], relation: sql.Composed) -> Outcome:
        is_one = sql.SQL("s.{} = 'delete'").format(sql.Identifier(CHANGE))
        one = sql.SQL(" AND ").join([self._same_key, is_one, self._guarded("s", "t")])
        target = self.target.name.sql
        if self._marks is None:
            query = sql.SQL("DELETE FROM {} t USING {} s WHERE {} AND {}").format(target, relation, one, self._late)
            return Outcome(deleted=connection.execute(query).rowcount)
        mark, name = sql.Identifier(self._marks), self.rules.newer_than
        # What is marked keeps the time of its delete: a version from before it, come late, is stale.
        time = sql.SQL(", {0} = coalesce(s.{0}, t.{0})").format(sql.Identifier(name)) if name else sql.SQL("")
        query = sql.SQL("UPDATE {} t SET {mark} = now(){} FROM {} s WHERE {} AND {} AND t.{mark} IS NULL").format(
            target, time, relation, one, self._late, mark=mark
        )
        deleted = connection.execute(query).rowcount
        if not name:
            return Outcome(deleted=deleted)
        query = sql.SQL("UPDATE {} t SET {at} = s.{at} FROM {} s WHERE {} AND t.{} IS NOT NULL AND {}").format(
            target, relation, one, mark, self._newer("s", "t"), at=sql.Identifier(name)
        )
        return Outcome(deleted=deleted, equal=connection.execute(query).rowcount)

    @property
    def _late(self) -> sql.Composed:
        """Whether a delete comes after what it deletes. One that knows no more than the key does."""
        if not self.rules.newer_than:
            return sql.Composed([sql.SQL("true")])
        name = sql.Identifier(self.rules.newer_than)
        return sql.SQL("((s.{0} >= t.{0}) IS NOT FALSE)").format(name)

    def _skipped(self, connection: psycopg.Connection[Any], relation: sql.Composed) -> tuple[Outcome, int]:
        """What became of rows that were not written, and how many should have been: they were changed meanwhile."""
        delete = sql.SQL("s.{} = 'delete'").format(sql.Identifier(CHANGE)) if self.changes else sql.SQL("false")
        query = load_statement(ROOM, "skipped").format(
            relation=relation,
            target=self.target.name.sql,
            same=self._same_key,
            # Of a delete that finds nothing, no member of `t` is there.
            absent=sql.SQL("t.{} IS NULL").format(sql.Identifier(self.rules.key[0])),
            delete=sql.SQL("({} IS TRUE)").format(delete),
            ours=sql.Literal(sorted(self.ours)),
            ignored=sql.Literal(self.rules.deletes == "ignore"),
            guarded=self._guarded("s", "t"),
            differs=self._differs("s", "t"),
            newer=self._newer("s", "t"),
            dead=sql.SQL("{} IS NOT NULL").format(sql.Identifier("t", self._marks))
            if self._marks
            else sql.SQL("false"),
            late=self._late,
        )
        counts = dict(connection.execute(query).fetchall())
        again = counts.pop("again", 0)
        counts.pop("written", 0)
        return Outcome(**counts), again

    # ------------------------------------------------------------ pieces of SQL

    @property
    def _alive(self) -> sql.Composed:
        """Whether a row that came is no delete. Never NULL."""
        return sql.SQL("(s.{} IS DISTINCT FROM 'delete')").format(sql.Identifier(CHANGE))

    @property
    def _settable(self) -> tuple[Fitted, ...]:
        """Columns that an update writes."""
        return tuple(column for column in self.columns if column.name not in self.rules.key)

    def _sets(self, new: str) -> sql.Composed:
        """What an update writes; a row that was marked as deleted comes back to life."""
        sets = [
            sql.SQL("{} = {}").format(sql.Identifier(column.name), sql.Identifier(new, column.name))
            for column in self._settable
        ]
        if self._marks:
            sets.append(sql.SQL("{} = NULL").format(sql.Identifier(self._marks)))
        return sql.SQL(", ").join(sets)

    @property
    def _marks(self) -> str | None:
        """The column that marks what is deleted."""
        return self.rules.deleted_at if self.rules.deletes == "soft" else None

    @property
    def _overriding(self) -> sql.SQL:
        always = any(column.column.identity == "a" for column in self.columns)
        return sql.SQL("OVERRIDING SYSTEM VALUE " if always else "")

    @property
    def _same_key(self) -> sql.Composed:
        key = [column for column in self.columns if column.name in self.rules.key]
        same = (sql.SQL("t.{0} {1} s.{0}").format(sql.Identifier(column.name), column.equals) for column in key)
        return sql.SQL(" AND ").join(same)

    @property
    def _names(self) -> sql.Composed:
        return join_identifiers(column.name for column in self.columns)

    def _listed(self, row: str) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(row, column.name) for column in self.columns)

    def _wanted(self, new: str, old: str) -> sql.Composed:
        """Whether a row takes the place of another. Never NULL."""
        tests = [self._guarded(new, old), self._newer(new, old)]
        if not self._newer_differs:
            tests.append(self._differs(new, old))
        return sql.SQL(" AND ").join(tests)

    @property
    def _newer_differs(self) -> bool:
        """Whether a row that is newer always differs: in the column that says so. Then no other is compared."""
        name = self.rules.newer_than
        return any(column.name == name for column in self._settable) and name not in self.rules.volatile

    def _guarded(self, new: str, old: str) -> sql.Composed:
        """Whether a row may be written over another. Never NULL."""
        if not self.rules.guard:
            return sql.Composed([sql.SQL("true")])
        pairs = (
            sql.SQL("{} IS NOT DISTINCT FROM {}").format(sql.Identifier(new, name), sql.Identifier(old, name))
            for name in self.rules.guard
        )
        return sql.SQL("({})").format(sql.SQL(" AND ").join(pairs))

    def _newer(self, new: str, old: str) -> sql.Composed:
        """Whether a row is newer than another. Never NULL: a row without a time is newer than none."""
        if not self.rules.newer_than:
            return sql.Composed([sql.SQL("true")])
        fresh, known = (sql.Identifier(row, self.rules.newer_than) for row in (new, old))
        return sql.SQL("({0} IS NOT NULL AND ({1} IS NULL OR {0} > {1}))").format(fresh, known)

    def _differs(self, new: str, old: str) -> sql.Composed:
        names = [column.name for column in self._settable if column.name not in self.rules.volatile]
        dead = sql.SQL("{} IS NOT NULL").format(sql.Identifier(old, self._marks)) if self._marks else sql.SQL("false")
        if not names:
            return sql.Composed([dead])
        # Cast, because two bare ROWs would be compared member by member, by operators that do not exist.
        sides = (
            sql.SQL("ROW({})::record").format(sql.SQL(", ").join(sql.Identifier(row, name) for name in names))
            for row in (new, old)
        )
        return sql.SQL("({} OR {})").format(sql.SQL(" *<> ").join(sides), dead)
