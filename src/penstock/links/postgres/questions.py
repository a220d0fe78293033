"""A question to a server: a transaction of its own, after a greeting; and learning what can be asked at all."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from penstock.links.postgres.greeting import BEGIN, QUESTIONS, WITHHELD, Server, Tells, answered, who
from penstock.links.postgres.literals import written

#: a question that is only asked for who answers it
NOTHING = sql.SQL("SELECT")


def introduced(connection: psycopg.Connection[Any], chosen: sql.Composed) -> tuple[Tells, Server]:
    """Learn who a new connection leads to, and what it tells us."""
    tells, server = _learnt(connection, chosen, standby=False)
    if server.standby:
        tells, server = _learnt(connection, chosen, standby=True)
    return tells, server


def _learnt(connection: psycopg.Connection[Any], chosen: sql.Composed, *, standby: bool) -> tuple[Tells, Server]:
    tells = Tells(standby=standby)
    server = _asked(connection, tells, chosen)
    if server is None:
        alone = Tells(system=False, timeline=False, lsn=False, standby=standby)
        told = {name: _asked(connection, replace(alone, **{name: True})) is not None for name in QUESTIONS}
        tells = replace(alone, **told)
        server = _asked(connection, tells, chosen)
    if server is None:
        raise psycopg.OperationalError("the server does not say which database this is")
    return tells, server


def _asked(connection: psycopg.Connection[Any], tells: Tells, chosen: sql.Composed | None = None) -> Server | None:
    """Who answers; None if the server will not tell."""
    try:
        return transaction(connection, written(who(tells, chosen)), NOTHING)[0]
    except psycopg.Error as error:
        end(connection)
        if error.sqlstate in WITHHELD:
            return None
        raise


def transaction(
    connection: psycopg.Connection[Any], greeting: str, query: sql.Composed | sql.SQL, *, alone: bool = False
) -> tuple[Server, list[tuple[Any, ...]]]:
    """A question in a transaction of its own: all in one message, or the question `alone` in its own.

    In a message of its own it goes by the extended protocol, which takes a single statement.
    """
    begin = f"{BEGIN};\n{greeting}"
    # On lines of its own, because a statement may end in a comment.
    text = begin if alone else f"{begin}\n;\n{query.as_string(connection)}\n;\nCOMMIT"
    cursor = connection.execute(text.encode())
    cursor.nextset()
    server = answered(cursor.fetchone())
    if alone:
        rows = connection.execute(query, binary=True).fetchall()
        connection.commit()
        return server, rows
    cursor.nextset()
    return server, cursor.fetchall()


def end(connection: psycopg.Connection[Any]) -> None:
    """Leave a transaction that has failed, where there still is one."""
    if not connection.broken:
        with suppress(psycopg.OperationalError):
            connection.rollback()
