"""Find the rows that a table rejects: halve the parts until each is found, in a transaction that is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import psycopg
from psycopg import sql

from penstock.sinks.postgres.failures import explain_row_error, is_row_error, state_of
from penstock.sinks.postgres.merge import Merge, UnfitValue
from penstock.sinks.postgres.staging import PLACE

#: characters of a key's value that a message shows
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that the table rejects."""

    place: int
    #: its key, for messages: `id=5`
    key: str
    #: SQLSTATE; empty: the value does not fit
    code: str
    reason: str


class BadRowSearch:
    """Finds bad rows, at most `limit` of them, within a transaction that the caller rolls back."""

    def __init__(self, merge: Merge, *, limit: int) -> None:
        self.merge = merge
        self.connection = merge.connection
        self.limit = limit
        self.bad: list[BadRow] = []

    def run(self, *, refresh: bool) -> list[BadRow]:
        """The bad rows: first those that cannot be read, then those that cannot be written."""
        merge = self.merge
        if not merge.parts:
            return []
        index = sql.SQL("CREATE INDEX ON {} ({})").format(merge.staging.sql, sql.Identifier(PLACE))
        self.connection.execute(index)
        with merge.triggers():
            self._try_parts(Merge.try_read)
            if len(self.bad) < self.limit:
                merge.staging.remove_rows(self.connection, [bad.place for bad in self.bad])
                if refresh:
                    merge.delete_others()
                self._try_parts(Merge.try_write)
        return self.bad

    def _try_parts(self, trial: Callable[[Merge], None]) -> None:
        query = sql.SQL("SELECT min({0}), max({0}) FROM {1} GROUP BY {0} >> 32").format(
            sql.Identifier(PLACE), self.merge.staging.sql
        )
        ends = {low >> 32: (low, high + 1) for low, high in self.connection.execute(query).fetchall()}
        for attempt, _ in self.merge.parts:
            if attempt in ends:
                self._halve(trial, *ends[attempt])

    def _halve(self, trial: Callable[[Merge], None], low: int, high: int) -> None:
        """Try the rows from place `low` up to `high`, and on failure each half of them.

        Rows that pass stay written, so that rows which conflict with them are found too.
        """
        if len(self.bad) >= self.limit:
            return
        try:
            with self.connection.transaction():
                trial(replace(self.merge, within=(low, high)))
            return
        except (psycopg.Error, UnfitValue) as error:
            if not is_row_error(error):
                raise
            if high - low == 1:
                self.bad.append(self._describe(error, low, high))
                return
        middle = (low + high) // 2
        self._halve(trial, low, middle)
        self._halve(trial, middle, high)

    def _describe(self, error: psycopg.Error | UnfitValue, low: int, high: int) -> BadRow:
        names, one = self.merge.config.shown_key, replace(self.merge, within=(low, high)).staged
        shown: list[sql.Composable] = [sql.Identifier("x", PLACE)]
        for name in names:
            length = sql.Literal(_SHOWN_CHARACTERS)
            shown.append(sql.SQL("left(x.{}::text, {})").format(sql.Identifier(name), length))
        query = sql.SQL("SELECT {} FROM {} x").format(sql.SQL(", ").join(shown), one)
        place, *values = self.connection.execute(query).fetchone() or (low,)
        key = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=False))
        column = self._find_unreadable(one) if isinstance(error, psycopg.Error) else None
        return BadRow(int(place), key, state_of(error), explain_row_error(error, column))

    def _find_unreadable(self, one: sql.Composed) -> str | None:
        """The column whose value cannot be read; None: every value can."""
        for column in self.merge.columns:
            try:
                with self.connection.transaction():
                    self.connection.execute(sql.SQL("SELECT {} FROM {} x").format(column.value("x"), one))
            except psycopg.Error:
                return column.name
        return None
