"""Merge staged rows into a table, and count each row once, by what became of it.

Existing rows are updated first, then missing ones are inserted; a row that another session inserts in the meantime is
skipped (ON CONFLICT). Rows that were neither updated nor inserted are classified, apart from rows that this transaction
wrote, and merged again if another session has changed them. Values are compared by their binary image, so that
visible differences are never taken for equality: neither 1.0 and 1.00, nor letters that a collation treats as equal.

In all statements, `s` is the staged row and `t` is the row of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg
from psycopg import sql

from penstock.core.outcome import Outcome
from penstock.core.retry import Retry
from penstock.links.postgres.literals import join_identifiers, load_statement
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.columns import CHANGE, MappedColumn
from penstock.sinks.postgres.options import StreamConfig
from penstock.sinks.postgres.staging import PLACE, Staging
from penstock.sinks.postgres.target import Target
from penstock.sinks.postgres.triggers import check_not_suppressed, delete_rows, disable_triggers

#: of a merge whose rows another session keeps changing
MERGES = Retry(5)
#: the ids of this transaction and of its savepoints: a row carries the id of the savepoint in which it was written
_OWN_XIDS = sql.SQL(
    "SELECT transactionid::text FROM pg_locks "
    "WHERE locktype = 'transactionid' AND pid = pg_backend_pid() AND mode = 'ExclusiveLock'"
)
#: types of which a million values are sorted in a quarter of the time that it takes to group them
_SORTABLE = ("smallint", "integer", "bigint", "uuid", "date", "timestamp with time zone", "timestamp without time zone")
_TRUE, _FALSE = sql.Composed([sql.SQL("true")]), sql.Composed([sql.SQL("false")])
_IS_DELETE = sql.SQL("(s.{} IS NOT DISTINCT FROM 'delete')").format(sql.Identifier(CHANGE))
_IS_UPSERT = sql.SQL("(s.{} IS DISTINCT FROM 'delete')").format(sql.Identifier(CHANGE))


class UnfitValue(Exception):
    """A value that the table would cut or round, or a key that is NULL."""


@dataclass(frozen=True)
class Merge:
    """One slice into one table, inside a transaction."""

    connection: Connection
    config: StreamConfig
    staging: Staging
    target: Target
    columns: tuple[MappedColumn, ...]
    #: (number of the attempt, index of the part) of the rows to take
    parts: Sequence[tuple[int, int]]
    #: the staging table holds no other rows
    is_alone: bool
    #: rows may be deletes
    has_changes: bool
    #: a row that is as new as the table's replaces it: it comes by a repair, which reads what the source has now
    replaces_equal: bool = False
    #: only rows from the first place up to, and without, the second
    within: tuple[int, int] | None = None
    #: ids of savepoints in which it has written
    own_xids: set[str] = field(default_factory=set, compare=False)

    # ------------------------------------------------------------ the whole slice

    def fill(self, rows: int, *, refresh: bool) -> Outcome:
        """Merge all rows, of which there are `rows`; a refresh also deletes all rows that it does not bring.

        It deletes them first: their unique values may belong to other keys now.
        """
        if self.parts:
            self.check_values()
        with self.triggers():
            outcome = Outcome(deleted=self.delete_others() if refresh else 0)
            if rows:
                outcome += self._upsert(rows) if self.config.key else self._append(rows)
                self._check_constraints()
        return outcome

    def delete_others(self) -> int:
        """Delete the table's rows whose key is not in the slice; without a key, all rows."""
        others = _TRUE
        if self.config.key and self.parts:
            others = sql.SQL("NOT EXISTS (SELECT FROM {} s WHERE {})").format(self.rows, self._same_key)
        return delete_rows(self.connection, self.target, others)

    @contextmanager
    def triggers(self) -> Iterator[None]:
        """Disable the table's triggers for a while, unless they are to run."""
        if self.config.options.triggers:
            yield
            return
        with disable_triggers(self.connection, self.target):
            yield

    def _check_constraints(self) -> None:
        """Check deferred constraints now, while the failing slice is known."""
        self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    # ------------------------------------------------------------ trials, which the caller rolls back

    def try_read(self) -> None:
        """Read every value as the table would, without writing; UnfitValue, or the server's error."""
        self.check_values()
        self.connection.execute(sql.SQL("SELECT count(ROW(x.*)::text) FROM {} x").format(self.rows))

    def try_write(self) -> None:
        """Write the rows, without counting what became of each."""
        if self.config.key:
            self._merge_once(self._newest)
        else:
            self._insert_all()
        self._check_constraints()

    def check_values(self) -> None:
        """UnfitValue if the table would cut or round a value, or a key is NULL."""
        tests = [
            (column, "does not hold the value exactly", test)
            for column in self.columns
            if (test := column.changes("x")) is not None
        ]
        for key in self._keys:
            is_null = sql.SQL("(x.{} IS NULL)").format(sql.Identifier(key.name))
            tests.append((key, "is of the key and may not be NULL", is_null))
        if not tests:
            return
        counts = (sql.SQL("count(*) FILTER (WHERE {})").format(test) for _, _, test in tests)
        query = sql.SQL("SELECT {} FROM {} x").format(sql.SQL(", ").join(counts), self.staged)
        for (column, what, _), count in zip(tests, self.connection.execute(query).fetchone() or (), strict=True):
            if count:
                raise UnfitValue(f"column {column.name} ({column.column.type}) {what}")

    # ------------------------------------------------------------ the staged rows

    @property
    def staged(self) -> sql.Composed:
        """The rows to take, in the types in which they were staged."""
        place = sql.Identifier(PLACE)
        if self.within:
            low, high = map(sql.Literal, self.within)
            return sql.SQL("(SELECT * FROM {0} WHERE {1} >= {2} AND {1} < {3})").format(
                self.staging.sql, place, low, high
            )
        if self.is_alone:
            return sql.Composed([self.staging.sql])
        attempts = sql.Literal([attempt for attempt, _ in self.parts])
        return sql.SQL("(SELECT * FROM {} WHERE {} >> 32 = ANY ({}::bigint[]))").format(
            self.staging.sql, place, attempts
        )

    @property
    def rows(self) -> sql.Composed:
        """The rows to take, in the types of the table."""
        values: list[sql.Composable] = [
            sql.SQL("{} AS {}").format(column.value("x"), sql.Identifier(column.name)) for column in self.columns
        ]
        values += [sql.Identifier("x", name) for name in ((CHANGE, PLACE) if self.has_changes else (PLACE,))]
        return sql.SQL("(SELECT {} FROM {} x)").format(sql.SQL(", ").join(values), self.staged)

    @property
    def _newest(self) -> sql.Composed:
        """Of each key only the newest row: by `newer_than`, otherwise by its place in the slice."""
        keys = sql.SQL(", ").join(sql.Identifier("y", name) for name in self.config.key)
        newer: sql.Composable = sql.SQL("")
        if self.config.newer_than:
            newer = sql.SQL("{} DESC NULLS LAST, ").format(sql.Identifier("y", self.config.newer_than))
        if self.has_changes and self.config.options.deletes == "ignore":
            # A delete that is ignored hides no other row of its key.
            newer = sql.SQL("({} IS NOT DISTINCT FROM 'delete'), {}").format(sql.Identifier("y", CHANGE), newer)
        # Parts follow each other in the slice, but the numbers of their attempts are random.
        parts = sql.SQL(", ").join(
            sql.SQL("({}::bigint, {})").format(sql.Literal(attempt), sql.Literal(part)) for attempt, part in self.parts
        )
        return sql.SQL(
            "(SELECT DISTINCT ON ({keys}) y.* FROM {rows} y JOIN (VALUES {parts}) n (attempt, part) "
            "ON {place} >> 32 = n.attempt ORDER BY {keys}, {newer}n.part DESC, {place} DESC)"
        ).format(keys=keys, rows=self.rows, parts=parts, place=sql.Identifier("y", PLACE), newer=newer)

    def _count_folded(self) -> int:
        """The number of rows that a newer row of the same key replaces."""
        if len(self._keys) == 1 and self._keys[0].column.type in _SORTABLE:
            query = sql.SQL("SELECT count({0}) - count(DISTINCT {0}) FROM {1} y").format(
                sql.Identifier("y", self._keys[0].name), self.rows
            )
        else:
            query = sql.SQL(
                "SELECT coalesce(sum(n - 1), 0)::bigint FROM "
                "(SELECT count(*) AS n FROM {} y GROUP BY {} HAVING count(*) > 1) z"
            ).format(self.rows, join_identifiers(self.config.key))
        return self._count(query)

    def find_existing(self) -> list[int]:
        """The places of rows whose key the table has."""
        # As text, because the column's type may be unable to read a quarantined value.
        keys = (sql.SQL("t.{0}::text = s.{0}::text").format(sql.Identifier(name)) for name in self.config.key)
        query = sql.SQL("SELECT {} FROM {} s WHERE EXISTS (SELECT FROM {} t WHERE {})").format(
            sql.Identifier("s", PLACE), self.staged, self.target.name.sql, sql.SQL(" AND ").join(keys)
        )
        return [int(place) for (place,) in self.connection.execute(query).fetchall()]

    def _count(self, query: sql.Composed) -> int:
        row = self.connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    # ------------------------------------------------------------ append

    def _append(self, rows: int) -> Outcome:
        inserted = self._insert_all()
        deletes = 0
        if self.has_changes:
            deletes = self._count(sql.SQL("SELECT count(*) FROM {} s WHERE {}").format(self.rows, _IS_DELETE))
        outcome = Outcome(created=inserted, ignored=deletes)
        if self.config.deleted_at:
            outcome = Outcome(created=inserted - deletes, deleted=deletes)
        if outcome.rows < rows:
            check_not_suppressed(self.connection, self.target, rows - outcome.rows, rows)
        return outcome

    def _insert_all(self) -> int:
        """Insert every row. A delete is left out, or inserted as a marked row."""
        names, values, which = self._names, self._values, _TRUE
        if self.has_changes and self.config.deleted_at:
            names += sql.SQL(", ") + sql.Identifier(self.config.deleted_at)
            values += sql.SQL(", CASE WHEN {} THEN now() END").format(_IS_DELETE)
        elif self.has_changes:
            which = _IS_UPSERT
        query = sql.SQL("INSERT INTO {} ({}) {}SELECT {} FROM {} s WHERE {}").format(
            self.target.name.sql, names, self._overriding, values, self.rows, which
        )
        return self.connection.execute(query).rowcount

    # ------------------------------------------------------------ upsert

    def _upsert(self, rows: int) -> Outcome:
        folded = self._count_folded()
        relation = self._newest if folded else self.rows
        outcome, pending = Outcome(folded=folded), 0
        for _ in MERGES.attempts():
            outcome += self._merge_once(relation)
            if outcome.rows == rows:
                return outcome
            unwritten, pending = self._classify_unwritten(relation)
            if not pending:
                # A deleted row is absent now, and looks like a delete that found no row.
                gone = outcome.deleted if self.config.deleted_at is None else 0
                return outcome + replace(unwritten, equal=unwritten.equal - gone)
        check_not_suppressed(self.connection, self.target, pending, rows)
        raise psycopg.errors.SerializationFailure("rows are changed by others faster than they can be merged")

    def _merge_once(self, relation: sql.Composed) -> Outcome:
        updated, created = self._update(relation), self._insert(relation)
        deletes = self.has_changes and self.config.options.deletes != "ignore"
        return Outcome(updated=updated, created=created) + (self._delete(relation) if deletes else None)

    def _update(self, relation: sql.Composed) -> int:
        if not self._settable or self._is_empty():
            return 0
        sets = [sql.SQL("{0} = s.{0}").format(sql.Identifier(column.name)) for column in self._settable]
        if self.config.deleted_at:
            # A row that was marked as deleted exists again.
            sets.append(sql.SQL("{} = NULL").format(sql.Identifier(self.config.deleted_at)))
        which = [self._same_key, self._upserts, self._same_guard, self._newer]
        if not self._newer_differs:
            which.append(self._differs)
        query = sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {}").format(
            self.target.name.sql, sql.SQL(", ").join(sets), relation, sql.SQL(" AND ").join(which)
        )
        return self.connection.execute(query).rowcount

    def _insert(self, relation: sql.Composed) -> int:
        exists = sql.SQL("EXISTS (SELECT FROM {} t WHERE {})").format(self.target.name.sql, self._same_key)
        query = sql.SQL(
            "INSERT INTO {target} AS t ({names}) {overriding}SELECT {values} FROM {relation} s "
            "WHERE {upserts} AND NOT {exists}"
        ).format(
            target=self.target.name.sql,
            names=self._names,
            overriding=self._overriding,
            values=self._values,
            relation=relation,
            upserts=self._upserts,
            exists=_FALSE if self._is_empty() else exists,
        )
        try:
            with self.connection.transaction():
                created = self.connection.execute(query).rowcount
                self.own_xids.update(xid for (xid,) in self.connection.execute(_OWN_XIDS).fetchall())
        except psycopg.errors.UniqueViolation:
            # Another session has inserted one of the keys in the meantime. A violation of another index fails again.
            query += sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(join_identifiers(self.config.key))
            created = self.connection.execute(query).rowcount
        return created

    def _is_empty(self) -> bool:
        """Whether the table has no rows yet. The server would plan a join with it for a table that stays small.

        The table grows during that statement: for each row all earlier rows were compared, 8 s for 20,000 rows.
        """
        row = self.connection.execute(
            sql.SQL("SELECT NOT EXISTS (SELECT FROM {})").format(self.target.name.sql)
        ).fetchone()
        return bool(row and row[0])

    def _delete(self, relation: sql.Composed) -> Outcome:
        target, newer_than = self.target.name.sql, self.config.newer_than
        matches = sql.SQL(" AND ").join([self._same_key, _IS_DELETE, self._same_guard])
        if self.config.deleted_at is None:
            query = sql.SQL("DELETE FROM {} t USING {} s WHERE {} AND {}").format(
                target, relation, matches, self._not_stale
            )
            return Outcome(deleted=self.connection.execute(query).rowcount)
        marker = sql.Identifier(self.config.deleted_at)
        time: sql.Composable = sql.SQL("")
        if newer_than:
            # A marked row keeps the time of its delete, so that a late version from before the delete is stale.
            time = sql.SQL(", {0} = coalesce(s.{0}, t.{0})").format(sql.Identifier(newer_than))
        query = sql.SQL("UPDATE {} t SET {marker} = now(){} FROM {} s WHERE {} AND {} AND t.{marker} IS NULL").format(
            target, time, relation, matches, self._not_stale, marker=marker
        )
        deleted = self.connection.execute(query).rowcount
        if not newer_than:
            return Outcome(deleted=deleted)
        query = sql.SQL("UPDATE {} t SET {at} = s.{at} FROM {} s WHERE {} AND t.{} IS NOT NULL AND {}").format(
            # Strictly newer, also in a repair: a row that was marked just now has the same time.
            target,
            relation,
            matches,
            marker,
            self._is_newer(">"),
            at=sql.Identifier(newer_than),
        )
        return Outcome(deleted=deleted, equal=self.connection.execute(query).rowcount)

    def _classify_unwritten(self, relation: sql.Composed) -> tuple[Outcome, int]:
        """What became of rows that were not written, and how many another session has changed in the meantime."""
        query = load_statement(__package__, "classify_unwritten").format(
            relation=relation,
            target=self.target.name.sql,
            same=self._same_key,
            # A delete that finds no row has no member of `t`.
            absent=sql.SQL("t.{} IS NULL").format(sql.Identifier(self.config.key[0])),
            delete=_IS_DELETE if self.has_changes else _FALSE,
            own_xids=sql.Literal(sorted(self.own_xids)),
            ignored=sql.Literal(self.config.options.deletes == "ignore"),
            guarded=self._same_guard,
            differs=self._differs,
            newer=self._newer,
            marked=self._is_marked,
            not_stale=self._not_stale,
        )
        counts = dict(self.connection.execute(query).fetchall())
        pending = counts.pop("pending", 0)
        counts.pop("written", 0)
        return Outcome(**counts), pending

    # ------------------------------------------------------------ pieces of SQL

    @property
    def _keys(self) -> list[MappedColumn]:
        return [column for column in self.columns if column.name in self.config.key]

    @property
    def _settable(self) -> list[MappedColumn]:
        """The columns that an update writes."""
        return [column for column in self.columns if column.name not in self.config.key]

    @property
    def _names(self) -> sql.Composed:
        return join_identifiers(column.name for column in self.columns)

    @property
    def _values(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier("s", column.name) for column in self.columns)

    @property
    def _overriding(self) -> sql.SQL:
        is_always = any(column.column.identity == "a" for column in self.columns)
        return sql.SQL("OVERRIDING SYSTEM VALUE " if is_always else "")

    # Each of the following is a condition that is never NULL.

    @property
    def _upserts(self) -> sql.Composed:
        return _IS_UPSERT if self.has_changes else _TRUE

    @property
    def _same_key(self) -> sql.Composed:
        same = (sql.SQL("t.{0} {1} s.{0}").format(sql.Identifier(key.name), key.equals) for key in self._keys)
        return sql.SQL(" AND ").join(same)

    @property
    def _same_guard(self) -> sql.Composed:
        """Whether the staged row may replace the other."""
        names = map(sql.Identifier, self.config.options.guard)
        pairs = [_TRUE, *(sql.SQL("s.{0} IS NOT DISTINCT FROM t.{0}").format(name) for name in names)]
        return sql.SQL("({})").format(sql.SQL(" AND ").join(pairs))

    @property
    def _newer(self) -> sql.Composed:
        """Whether the staged row is newer. A row without a time is not newer than any."""
        return self._is_newer(">=" if self.replaces_equal else ">")

    def _is_newer(self, sign: str) -> sql.Composed:
        if not self.config.newer_than:
            return _TRUE
        return sql.SQL("(s.{0} IS NOT NULL AND (t.{0} IS NULL OR s.{0} {1} t.{0}))").format(
            sql.Identifier(self.config.newer_than), sql.SQL(sign)
        )

    @property
    def _newer_differs(self) -> bool:
        """Whether a newer row always differs, in the column that makes it newer. Then no other column is compared."""
        name = self.config.newer_than
        return (
            not self.replaces_equal
            and any(column.name == name for column in self._settable)
            and name not in self.config.options.volatile
        )

    @property
    def _not_stale(self) -> sql.Composed:
        """Whether a delete is not older than the row that it deletes. A delete without a time never is."""
        if not self.config.newer_than:
            return _TRUE
        return sql.SQL("((s.{0} >= t.{0}) IS NOT FALSE)").format(sql.Identifier(self.config.newer_than))

    @property
    def _is_marked(self) -> sql.Composed:
        """Whether the table's row is marked as deleted."""
        marker = self.config.deleted_at
        return sql.SQL("(t.{} IS NOT NULL)").format(sql.Identifier(marker)) if marker else _FALSE

    @property
    def _differs(self) -> sql.Composed:
        names = [column.name for column in self._settable if column.name not in self.config.options.volatile]
        if not names:
            return self._is_marked
        # Cast, because two bare ROWs would be compared member by member, by operators that do not exist.
        staged, existing = (sql.SQL(", ").join(sql.Identifier(row, name) for name in names) for row in ("s", "t"))
        return sql.SQL("(ROW({})::record *<> ROW({})::record OR {})").format(staged, existing, self._is_marked)
