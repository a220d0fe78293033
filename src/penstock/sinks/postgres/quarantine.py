"""The quarantine: rows that a table did not take, each with its reason, put aside in the transaction of its slice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.slices import Slice
from penstock.links.postgres.literals import TableName, escape_percents, load_statement, to_text
from penstock.ports import Quarantined
from penstock.sinks.postgres.ledger import NOT_THERE, ROOM
from penstock.sinks.postgres.sifting import Bad
from penstock.sinks.postgres.staging import PLACE, Staging

#: rows of one slice that are put aside; more are no matter of single rows
MOST = 1000


class Quarantine:
    """The quarantine of one pipeline, in one schema."""

    def __init__(self, schema: str, pipeline: str) -> None:
        self.schema = schema
        self.pipeline = pipeline
        self.table = sql.Identifier(schema, "quarantine")

    def put(
        self,
        connection: psycopg.Connection[Any],
        staging: Staging,
        columns: Sequence[tuple[str, str]],
        bad: Sequence[Bad],
        slice_: Slice,
        table: TableName,
        names: Sequence[str],
    ) -> None:
        """Rows of a slice, as they were put aside."""
        members = sql.SQL(", ").join(sql.Identifier("x", name) for name, _ in columns)
        query = load_statement(ROOM, "quarantined").format(
            schema=sql.Identifier(self.schema),
            aside=staging.sql,
            place=sql.Identifier(PLACE),
            members=escape_percents(members),
        )
        values = {
            "pipeline": self.pipeline,
            "stream": slice_.stream,
            "number": slice_.number,
            "target": to_text(table.sql),
            "names": list(names),
            "columns": json.dumps(columns),
            "places": [row.place for row in bad],
            "codes": [row.code for row in bad],
            "reasons": [row.reason for row in bad],
        }
        connection.execute(query, values)

    # ------------------------------------------------------------ what one may ask

    def rows(self, connection: psycopg.Connection[Any], streams: Sequence[str], *, limit: int) -> list[Quarantined]:
        """The oldest so many of some streams; of all if none is named."""
        query = sql.SQL(
            "SELECT id, stream, number, key::text, code, reason, at FROM {} WHERE {} ORDER BY id LIMIT {}"
        ).format(self.table, self._which(streams), sql.Literal(limit))
        return [Quarantined(*row) for row in self._asked(connection, query)]

    def count(self, connection: psycopg.Connection[Any], streams: Sequence[str]) -> dict[str, int]:
        """How many rows of each stream there are."""
        query = sql.SQL("SELECT stream, count(*) FROM {} WHERE {} GROUP BY stream ORDER BY stream").format(
            self.table, self._which(streams)
        )
        return dict(self._asked(connection, query))

    def drop(self, connection: psycopg.Connection[Any], streams: Sequence[str], ids: Sequence[int]) -> int:
        """Forget rows: those of some streams, or of these only those with some numbers."""
        query = sql.SQL("DELETE FROM {} WHERE {}").format(self.table, self._which(streams, ids))
        return connection.execute(query).rowcount

    # ------------------------------------------------------------ for a replay

    def taken(
        self, connection: psycopg.Connection[Any], stream: str, ids: Sequence[int]
    ) -> list[tuple[str, list[int]]]:
        """Rows to be tried again, by the columns they came with, oldest first; nobody else gets them meanwhile."""
        query = sql.SQL(
            "WITH taken AS (SELECT id, columns::text AS columns FROM {} WHERE {} ORDER BY id FOR UPDATE) "
            "SELECT columns, array_agg(id ORDER BY id) FROM taken GROUP BY columns ORDER BY min(id)"
        ).format(self.table, self._which([stream], ids))
        return [(columns, list(of_these)) for columns, of_these in connection.execute(query).fetchall()]

    def remove(self, connection: psycopg.Connection[Any], ids: Sequence[int]) -> None:
        connection.execute(sql.SQL("DELETE FROM {} WHERE id = ANY (%s)").format(self.table), [list(ids)])

    def told(self, connection: psycopg.Connection[Any], bad: Sequence[Bad]) -> None:
        """Why rows stay; the place of each is its number here."""
        query = sql.SQL(
            "UPDATE {} q SET code = b.code, reason = b.reason "
            "FROM unnest(%s::bigint[], %s::text[], %s::text[]) b (id, code, reason) WHERE q.id = b.id"
        ).format(self.table)
        columns = [[row.place for row in bad], [row.code for row in bad], [row.reason for row in bad]]
        connection.execute(query, columns)

    def _which(self, streams: Sequence[str], ids: Sequence[int] = ()) -> sql.Composed:
        parts = [sql.SQL("pipeline = {}").format(sql.Literal(self.pipeline))]
        if streams:
            parts.append(sql.SQL("stream = ANY ({})").format(sql.Literal(list(streams))))
        if ids:
            parts.append(sql.SQL("id = ANY ({}::bigint[])").format(sql.Literal(list(ids))))
        return sql.SQL(" AND ").join(parts)

    def _asked(self, connection: psycopg.Connection[Any], query: sql.Composed) -> list[tuple[Any, ...]]:
        """None are there if nothing was ever put aside."""
        try:
            return connection.execute(query).fetchall()
        except psycopg.Error as error:
            if error.sqlstate in NOT_THERE:
                return []
            raise
