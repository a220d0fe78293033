"""Whether the table that a stream names is the one that its rows went into.

The ledger keeps the table's name and oid. A stream stops if either differs: slices that came before would be missing in
another table, and nobody would notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.links.postgres.literals import TableName, quote, to_text


@dataclass(frozen=True, slots=True)
class Binding:
    """The table that a stream's rows went into, as the ledger has it."""

    #: its name, quoted as SQL has it
    target: str
    oid: str
    #: what the table with that oid is called now; None: it is gone
    now: TableName | None
    #: a full refresh of this stream has replaced its rows
    refreshed: bool

    @property
    def table(self) -> TableName:
        return TableName.read(self.target, "")


@dataclass(frozen=True, slots=True)
class Named:
    """The table that a stream names now."""

    table: TableName
    #: the oid that the user has confirmed with `accept_table`; None: none
    accepted: int | None = None

    def oid(self, connection: psycopg.Connection[Any]) -> str | None:
        """Its oid; None: there is no such table."""
        query = sql.SQL("SELECT to_regclass({})::oid::text").format(sql.Literal(to_text(self.table.sql)))
        row = connection.execute(query).fetchone()
        return row[0] if row else None

    def is_of(self, binding: Binding, oid: str | None) -> bool:
        """Whether the rows that the ledger tells of are in the table with this oid."""
        if oid is not None and self.accepted is not None and oid == str(self.accepted):
            return True
        return (binding.target, binding.oid) == (to_text(self.table.sql), oid)

    def difference(self, binding: Binding, oid: str | None, stream: str) -> tuple[str, str] | None:
        """What differs from the table that the ledger tells of, and what to do about it; None: nothing."""
        if self.is_of(binding, oid):
            return None
        recover = f"penstock state recover FILE --stream {stream}"
        if binding.target == to_text(self.table.sql):
            return self._of_the_name(binding, oid, recover)
        there = "" if oid else ", which is not there"
        what = f"the rows of this stream went into {binding.table}, and the stream names {self.table} now{there}"
        steps = [f"set `into: {binding.table}` on the stream to go on there"]
        if oid:
            steps.append(self._accept(oid))
        steps.append(f"to deliver everything from the beginning into {self.table}: {recover}")
        return what, "; ".join(steps)

    def _of_the_name(self, binding: Binding, oid: str | None, recover: str) -> tuple[str, str]:
        """What has become of the table, where the stream names it as before."""
        table, again = self.table, f"to deliver everything from the beginning into {self.table}: {recover}"
        if oid is None and binding.now is None:
            return f"the table {table} is gone", f"restore it; or {again}"
        elsewhere = f"the table that the rows of this stream went into is called {binding.now} now"
        if oid is None:
            return (
                f"the table {table} was renamed: {elsewhere}",
                f"{self._rename_back(binding.now)}; or set `into: {binding.now}` and `accept_table: {binding.oid}` on "
                f"the stream; or {again}",
            )
        was = (
            elsewhere if binding.now else f"the one that the rows of this stream went into (oid {binding.oid}) is gone"
        )
        return (
            f"the table {table} is another one than before: {was}, and {table} has oid {oid}",
            f"{self._accept(oid)}; {again}",
        )

    def _accept(self, oid: str) -> str:
        return (
            f"if {self.table} holds everything that was delivered (it was renamed, or restored from a backup), set "
            f"`accept_table: {oid}` on the stream"
        )

    def _rename_back(self, now: TableName | None) -> str:
        assert now is not None
        if now.schema != self.table.schema:
            return f"move it back: ALTER TABLE {to_text(now.sql)} SET SCHEMA {quote(self.table.schema)}"
        return f"rename it back: ALTER TABLE {to_text(now.sql)} RENAME TO {quote(self.table.name)}"
