"""What was put aside, into its table: whether every value fits, and what becomes of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.outcome import Outcome
from penstock.sinks.postgres.merging import Merge
from penstock.sinks.postgres.target import Target
from penstock.sinks.postgres.triggers import keepers, keeps_out, rows_stay


class Unfit(Exception):
    """A value that the table would cut or round, or a key that is NULL."""

    def __init__(self, column: str, type_: str, what: str, rows: int) -> None:
        super().__init__(f"column {column} ({type_}) {what}")
        self.rows = rows


@dataclass(frozen=True)
class Filling:
    """A table that is filled inside a transaction."""

    connection: psycopg.Connection[Any]
    target: Target

    def fill(self, merge: Merge | None, rows: int, *, anew: bool) -> Outcome:
        """All of the slice's rows, of which there are so many; anew: they take the place of all before them.

        Readers see the one or the other. What is no longer there goes first: its unique values may have gone to
        another key.
        """
        if merge is not None:
            self.fit(merge)
        gone = Outcome(deleted=self.make_room(merge)) if anew else Outcome()
        if merge is None or not rows:
            return gone
        written = merge.upsert(self.connection, rows) if merge.rules.key else self._append(merge, rows)
        self.settle()
        return written + gone

    def _append(self, merge: Merge, rows: int) -> Outcome:
        added = merge.append(self.connection)
        kept_out = keeps_out(self.connection, self.target, rows - added.rows, rows) if added.rows < rows else None
        if kept_out is not None:
            raise kept_out
        return added

    def make_room(self, merge: Merge | None) -> int:
        """Delete what was there and does not come again; how many rows that was."""
        others = sql.SQL("true") if merge is None or not merge.rules.key else merge.is_other
        name = self.target.name.sql
        gone = self.connection.execute(sql.SQL("DELETE FROM {} t WHERE {}").format(name, others)).rowcount
        if found := keepers(self.connection, self.target):
            left = self.connection.execute(
                sql.SQL("SELECT count(*) FROM {} t WHERE {}").format(name, others)
            ).fetchone()
            if left and left[0]:
                raise rows_stay(self.target, left[0], found)
        return gone

    def settle(self) -> None:
        """What is checked only at the end is checked now, where it can still be said which slice it was."""
        self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    # ------------------------------------------------------------ trials, to be rolled back

    def look(self, merge: Merge) -> None:
        """Read every value as the table would, without writing; Unfit, or the server's error."""
        self.fit(merge)
        self.connection.execute(sql.SQL("SELECT count(ROW(x.*)::text) FROM {} x").format(merge.rows()))

    def write(self, merge: Merge) -> None:
        """Write rows, no matter what becomes of each."""
        if merge.rules.key:
            merge.written(self.connection)
        else:
            merge.append(self.connection)
        self.settle()

    def fit(self, merge: Merge) -> None:
        """No value may be cut or rounded, and no key be missing."""
        limited = [(column, test) for column in merge.columns if (test := column.changed("x")) is not None]
        keys = [column for column in merge.columns if column.name in merge.rules.key]
        tests = [test for _, test in limited]
        tests += [sql.SQL("(x.{} IS NULL)").format(sql.Identifier(column.name)) for column in keys]
        if not tests:
            return
        counts = (sql.SQL("count(*) FILTER (WHERE {})").format(test) for test in tests)
        query = sql.SQL("SELECT {} FROM {} x").format(sql.SQL(", ").join(counts), merge.source)
        found = self.connection.execute(query).fetchone() or ()
        columns = [(column, "does not hold the value exactly") for column, _ in limited]
        columns += [(column, "is of the key and may not be NULL") for column in keys]
        for (column, what), count in zip(columns, found, strict=True):
            if count:
                raise Unfit(column.name, column.column.type, what, count)
