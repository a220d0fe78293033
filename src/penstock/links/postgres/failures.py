"""What the server or the driver said, as our own errors, each with a next step that fits; never a password.

Text is matched only where libpq gives nothing else (before a connection stands); after that SQLSTATE decides.
"""

from __future__ import annotations

import re

from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused

_PREFIX = re.compile(r"^(connection failed: )?(connection to server (at|on) .*? failed: )?((FATAL|ERROR):\s+)?")

#: (what libpq says, what to do): the first that fits
_STEPS = (
    (r"password authentication failed", "correct the user or the password in `url`"),
    (
        r"no password supplied",
        "put the password into `url`, best from an environment variable: ${PGPASSWORD}",
    ),
    (r'database ".*" does not exist', "correct the database in `url`, or create it"),
    (r'role ".*" does not exist', "correct the user in `url`, or create the role"),
    (r"Connection refused", "see that PostgreSQL runs there and listens on that port, or correct `url`"),
    (r"resolve host|translate host name", "correct the host in `url`"),
    (
        r"timeout",
        "see that the host can be reached from here (network, firewall), or raise `connect_timeout`",
    ),
    (r"no pg_hba.conf entry", "allow this client, user and database in the server's pg_hba.conf"),
    (r"does not support SSL", "use sslmode=prefer in `url`, or turn TLS on at the server"),
    (r"certificate|SSL", "name the server's root certificate in `url` (sslrootcert=…), or correct sslmode"),
    (
        r"too many (clients|connections)|connection slots",
        "wait for others to disconnect, or raise max_connections",
    ),
    (
        r"(starting|shutting) (up|down)|recovery mode|not yet accepting",
        "wait until the server is up, then run again",
    ),
    (r"No such file or directory", "see that PostgreSQL runs on this machine, or put the host into `url`"),
)

#: classes and codes of SQLSTATE that mean the connection, not the statement
_CONNECTION = ("08", "57P01", "57P02", "57P03", "57P05", "53300")

#: a schema, table, column, type or function is not there any more, or not as it was
_GONE = ("3F000", "42P01", "42703", "42704", "42804", "42883")


def unreachable(where: str, said: str) -> ConnectionFailed:
    """No connection could be made."""
    why = reason(said)
    step = next((step for pattern, step in _STEPS if re.search(pattern, why)), "correct `url`")
    return ConnectionFailed(f"cannot connect to PostgreSQL at {where}: {why}", next_step=step)


def lost(where: str, said: str) -> ConnectionFailed:
    """A connection ended while it was used."""
    return ConnectionFailed(
        f"the connection to PostgreSQL at {where} was lost: {reason(said)}",
        next_step="see that the server is up, then run the same command again; it resumes where it stood",
    )


def broken_off(said: str, *, where: str, table: str, stream: str | None) -> PenstockError:
    """A COPY broke off in the middle of its rows: of that, Arrow's streams carry the words alone."""
    if "statement timeout" in said or "user request" in said:
        state = "57014"
    else:
        state = "XX000" if "ERROR:" in said else ""
    return failed(state, said, where=where, table=table, stream=stream)


def failed(sqlstate: str | None, said: str, *, where: str, table: str, stream: str | None) -> PenstockError:
    """A statement failed."""
    state, why = sqlstate or "", reason(said)
    if not state or state.startswith(_CONNECTION):
        return lost(where, said)
    if state == "42501":
        return StreamRefused(
            f"{table} cannot be read: {why}", next_step="grant what is missing, then run again", stream=stream
        )
    if state in _GONE:
        return StreamRefused(
            f"{table} has changed while it was read: {why}",
            next_step="run again once the table is as the pipeline file says",
            stream=stream,
        )
    if state == "57014":
        return StreamFailed(
            f"{table}: the server ended a statement: {why}",
            next_step="raise `statement_timeout` of the source, or the role's own, then run again",
            stream=stream,
        )
    return StreamFailed(
        f"{table} cannot be read: {why}",
        next_step="correct what the server names, then run again",
        stream=stream,
    )


def reason(said: str) -> str:
    """One line of what libpq, psycopg or ADBC said, without what we say ourselves."""
    # ADBC wraps the server's words: "NOT_FOUND: Failed to …: ERROR:  …\nLINE 1 …\n\nQuery was: …"
    lines = re.split(r"(?:ERROR|FATAL|PANIC):  ", said, maxsplit=1)[-1].strip().splitlines()
    first = re.sub(r"^[A-Z_]+: (\[libpq\] )?(Failed to connect: )?", "", lines[0] if lines else "")
    return _PREFIX.sub("", first).strip() or "no reason given"
