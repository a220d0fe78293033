"""Which rows a table will not take: the slice is halved until each is found. What is tried is rolled back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from penstock.sinks.postgres.filling import Filling, Unfit
from penstock.sinks.postgres.merging import Merge
from penstock.sinks.postgres.reasons import code_of, is_of_a_row, reason_of
from penstock.sinks.postgres.staging import MOST_ROWS, PLACE, Staging

#: letters of a key's value that are shown
_SHOWN = 80

_COUNT = sql.SQL("SELECT count(*) FROM {aside} WHERE {place} >= {low} AND {place} < {high}")
_AT = sql.SQL(
    "SELECT {place} FROM {aside} WHERE {place} >= {low} AND {place} < {high} ORDER BY {place} OFFSET {offset} LIMIT 1"
)

Trial = Callable[[Merge], None]


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that the table will not take."""

    place: int
    #: its key, for people: `id=5`
    key: str
    #: SQLSTATE; empty: the value does not fit
    code: str
    reason: str


class Sieve:
    """Finds bad rows within a transaction that is rolled back afterwards."""

    def __init__(self, filling: Filling, merge: Merge, names: Sequence[str], *, most: int) -> None:
        self.filling = filling
        self.connection = filling.connection
        self.merge = merge
        #: columns that name a row
        self.names = names
        self.most = most
        self.found: list[Bad] = []

    def sift(self, *, anew: bool) -> list[Bad]:
        """The bad rows, at most so many: first those that cannot be read, then those that cannot be written."""
        index = sql.SQL("CREATE INDEX ON {} ({})").format(self.merge.staging.sql, sql.Identifier(PLACE))
        self.connection.execute(index)
        self._parts(self.filling.look)
        if len(self.found) < self.most:
            left_out(self.connection, self.merge.staging, [bad.place for bad in self.found])
            if anew:
                self.filling.make_room(self.merge)
            self._parts(self.filling.write)
        return self.found

    def _parts(self, trial: Trial) -> None:
        for attempt, _ in self.merge.named:
            low, high = attempt * MOST_ROWS, (attempt + 1) * MOST_ROWS
            rows = self._one(_COUNT, low, high)
            if rows:
                self._halve(trial, low, high, rows)

    def _halve(self, trial: Trial, low: int, high: int, rows: int) -> None:
        """Rows that pass stay written, so that those which cannot stand beside them are found too."""
        if len(self.found) >= self.most:
            return
        try:
            with self.connection.transaction():
                trial(replace(self.merge, within=(low, high)))
        except (psycopg.Error, Unfit) as error:
            if not is_of_a_row(error):
                raise
            if rows == 1:
                self.found.append(self._bad(error, low, high))
                return
        else:
            return
        half = rows // 2
        middle = self._one(_AT, low, high, half)
        self._halve(trial, low, middle, half)
        self._halve(trial, middle, high, rows - half)

    def _bad(self, error: psycopg.Error | Unfit, low: int, high: int) -> Bad:
        shown = sql.SQL(", ").join(
            sql.SQL("left(x.{}::text, {})").format(sql.Identifier(name), sql.Literal(_SHOWN)) for name in self.names
        )
        query = sql.SQL("SELECT {0}, {1} FROM {2} x WHERE {0} >= {3} AND {0} < {4}").format(
            sql.Identifier("x", PLACE),
            shown if self.names else sql.SQL("NULL"),
            self.merge.staging.sql,
            sql.Literal(low),
            sql.Literal(high),
        )
        place, *values = self.connection.execute(query).fetchone() or (low,)
        key = ", ".join(f"{name}={value}" for name, value in zip(self.names, values, strict=False))
        column = self._column(low, high) if isinstance(error, psycopg.Error) else None
        return Bad(int(place), key, code_of(error), reason_of(error, column))

    def _column(self, low: int, high: int) -> str | None:
        """The column whose value cannot be read; None: each can."""
        source = replace(self.merge, within=(low, high)).source
        for column in self.merge.columns:
            try:
                with self.connection.transaction():
                    self.connection.execute(sql.SQL("SELECT {} FROM {} x").format(column.value("x"), source))
            except psycopg.Error:
                return column.name
        return None

    def _one(self, query: sql.SQL, low: int, high: int, offset: int = 0) -> int:
        composed = query.format(
            aside=self.merge.staging.sql,
            place=sql.Identifier(PLACE),
            low=sql.Literal(low),
            high=sql.Literal(high),
            offset=sql.Literal(offset),
        )
        row = self.connection.execute(composed).fetchone()
        return int(row[0]) if row else 0


def left_out(connection: psycopg.Connection[Any], staging: Staging, places: Sequence[int]) -> None:
    """Take rows out of what was put aside."""
    if places:
        query = sql.SQL("DELETE FROM {} WHERE {} = ANY (%s)").format(staging.sql, sql.Identifier(PLACE))
        connection.execute(query, [list(places)])
