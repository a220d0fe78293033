"""A stream with everything that planning it needs: the session, its content and its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from penstock.core.ranges import Key, Range
from penstock.errors import StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import typed_literal
from penstock.links.postgres.tables import Partition, Table, describe
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.content import KeyColumn, TableContent
from penstock.sources.postgres.options import Horizon, StreamOptions

PACKAGE = "penstock.sources.postgres"

#: values that are greater than all to come, by type: a mark there would hide every later row
_ENDLESS = {
    "infinity": ("date", "timestamp without time zone", "timestamp with time zone"),
    "Infinity": ("numeric", "real", "double precision"),
    "NaN": ("numeric", "real", "double precision"),
}


@dataclass(frozen=True, slots=True)
class HighestRow:
    """The visible row with the highest key."""

    key: Key
    #: the server's clock when it was seen
    clock: str


@dataclass(frozen=True, slots=True)
class TableStream:
    """A stream that is planned or read."""

    session: Session
    name: str
    content: TableContent
    options: StreamOptions
    horizon: Horizon
    #: maximum number of parts that may be read at the same time; None: the number of workers
    connections: int | None = None

    def rows(self, query: sql.Composed | sql.SQL, table: object = None) -> list[tuple[Any, ...]]:
        """All rows of a short answer; errors name the stream and the table."""
        return self.session.rows(query, table=str(table or self.content.table), stream=self.name)

    def describe(self, key: Sequence[str] = (), **sections: Any) -> Table | None:
        """Describe the table; see `links.postgres.tables`."""
        return describe(self.rows, self.content.table, key, **sections)

    def along(self, columns: tuple[KeyColumn, ...], partition: Partition | None) -> TableStream:
        """The stream as if these columns were its key, limited to a partition if there is one."""
        table = partition.name if partition else self.content.table
        return replace(self, content=replace(self.content, key=columns, table=table))

    @property
    def reset_command(self) -> str:
        return f"`penstock state reset FILE --stream {self.name}`"

    def highest(self, after: Key | None = None, below: str | None = None) -> HighestRow | None:
        """Find the highest key now, after a mark and with a cursor below a time; None if there is no such row.

        An index lookup. The horizon decides how far the stream may be read.
        """
        content = self.content
        cursor = content.key[0]
        conditions = [sql.SQL("{} IS NOT NULL").format(content.cursor_sql), content.range_sql(Range(after, None))]
        if below is not None:
            limit = typed_literal(below, without_modifier(cursor.type))
            conditions.append(sql.SQL("{} < {}").format(content.cursor_sql, limit))
        query = sql.SQL("SELECT {}, clock_timestamp()::text FROM {} AS t WHERE {} ORDER BY {} LIMIT 1").format(
            content.key_texts, content.table.sql, sql.SQL(" AND ").join(conditions), content.descending
        )
        rows = self.rows(query)
        if not rows:
            return None
        *key, clock = rows[0]
        if without_modifier(cursor.type) in _ENDLESS.get(key[0], ()):
            raise StreamRefused(
                f"{content.table} has rows whose cursor {cursor.column} is {key[0]}: no later row could follow them",
                next_step=f"correct the rows where {cursor.column} is {key[0]}",
                stream=self.name,
            )
        return HighestRow(tuple(key), clock)

    def expected_rows(self, condition: sql.Composable | None = None) -> int:
        """Rows of the table, or those that meet a condition, as the server's planner estimates them."""
        query = sql.SQL("EXPLAIN (FORMAT JSON) SELECT 1 FROM {} AS t WHERE {}").format(
            self.content.table.sql, condition or sql.SQL("true")
        )
        [[plan]] = self.rows(query)
        return int(plan[0]["Plan"]["Plan Rows"])
