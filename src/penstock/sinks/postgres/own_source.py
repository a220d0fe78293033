"""Whether a stream would be written into the table that it is read from: one wrong URL is enough for that.

A full refresh would then delete rows that the application inserts meanwhile. A source that reads Postgres says in its
content which database it reads (`identity`) and which table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.content import Content
from penstock.links.postgres.literals import TableName, load_statement, to_text
from penstock.links.postgres.transactions import (
    REFUSAL_STATES,
    Identity,
    ServerState,
    VisibleFacts,
    read_server_state,
    server_query,
)
from penstock.sinks.postgres.ledger import ROOM

#: what to do if a stream would be written into its own source
OWN_SOURCE = (
    "see that `url` of the sink names another database than `url` of the source, or name another table with `schema` "
    "of the sink or `into` of the stream"
)


def into_itself(table: TableName, content: Content) -> str:
    source = content.identity["table"]
    if str(table) == source:
        return f"source and sink are the same table: {table} of the same database"
    return f"the stream would be written into what it reads: {table} and {source} of the same database share rows"


def reads_itself(connection: psycopg.Connection[Any], content: Content, oid: str, *, whole: bool) -> bool:
    """Whether the table with this oid is what the stream reads; `whole`: by full refreshes."""
    identity: Mapping[str, Any] = content.identity
    if not (isinstance(identity.get("oid"), str) and identity.get("table")):
        return False  # not a stream of a Postgres database
    if not _same_database(_server(connection), identity):
        return False
    source = TableName.read(str(identity["table"]), "")
    query = load_statement(ROOM, "overlap").format(
        source=sql.Literal(to_text(source.sql)), oid=sql.Literal(oid), views=sql.Literal(whole)
    )
    row = connection.execute(query).fetchone()
    return bool(row and row[0])


def _same_database(here: ServerState, identity: Mapping[str, Any]) -> bool:
    there = Identity(identity.get("system"), identity["oid"], str(identity.get("database")))
    timeline = identity.get("timeline")
    # A copy of the server that went its own way has the same identifier, and another timeline.
    apart = timeline is not None and here.timeline is not None and timeline != here.timeline
    return here.identity.same(there) and not apart


def _server(connection: psycopg.Connection[Any]) -> ServerState:
    """Who answers; a role that may not know everything learns less."""
    for tells in (
        VisibleFacts(),
        VisibleFacts(timeline=False, lsn=False),
        VisibleFacts(system=False, timeline=False, lsn=False),
    ):
        try:
            with connection.transaction():
                return read_server_state(connection.execute(server_query(tells)).fetchone())
        except psycopg.Error as error:
            if error.sqlstate not in REFUSAL_STATES:
                raise
    raise AssertionError("the last question asks for nothing that can be withheld")
