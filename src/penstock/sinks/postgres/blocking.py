"""Who holds a lock that was waited for, so that a timeout names the session and not only the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.links.postgres.literals import TableName, load_statement, to_text
from penstock.sinks.postgres.ledger import MAKING, ROOM


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session of the server that is in the way."""

    pid: int
    user: str | None
    state: str | None
    seconds: int | None

    def __str__(self) -> str:
        user = f"user {self.user}, " if self.user else ""
        since = f" for {self.seconds} s" if self.seconds is not None else ""
        return f"process {self.pid} of the server ({user}{self.state or 'at work'}{since})"


def blocker(connection: psycopg.Connection[Any], tables: Sequence[TableName]) -> Blocker | None:
    """The session that holds one of these tables, or makes ours, for the longest time; None: it has ended by now."""
    query = load_statement(ROOM, "blockers").format(
        tables=sql.Literal([to_text(table.sql) for table in tables]), making=sql.Literal(MAKING)
    )
    row = connection.execute(query).fetchone()
    return Blocker(*row) if row else None
