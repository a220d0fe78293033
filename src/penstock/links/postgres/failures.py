"""Translates errors of the server and the driver into penstock's own, each with a next step; never with a password.

Text is matched only where libpq gives nothing else (before a connection is open); after that SQLSTATE decides.
"""

from __future__ import annotations

import re

import psycopg

from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused

_PREFIX = re.compile(r"^(connection failed: )?(connection to server (at|on) .*? failed: )?((FATAL|ERROR):\s+)?")

#: what to do when a pooler has no connection left for us
POOL_FULL = "give the pooler more connections to the server (its pool size), or lower `connections`"

#: pairs of a pattern for libpq's message and a next step; the first match counts
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
    (r"query_wait_timeout", POOL_FULL),
    (
        r"timeout",
        "see that the host can be reached from here (network, firewall), or raise `connect_timeout`",
    ),
    (r"no pg_hba.conf entry", "allow this client, user and database in the server's pg_hba.conf"),
    (r"does not support SSL", "turn TLS on at the server, or set `tls.mode` (sslmode in `url`) to prefer"),
    (
        r"does not match host name",
        "put the name that the server's certificate is for into `url`, or have a certificate made for this one; "
        "`tls.mode: verify-ca` does not look at the name",
    ),
    (
        r"weak sslmode",
        "set `tls.mode: verify-full`: who trusts all that the machine trusts must look at the server's name",
    ),
    (
        r"private key file .* (has group or world access|must be owned)",
        "take the rights of others away from the file: chmod 600",
    ),
    (
        r"certificate required|unknown ca|client certificate|connection requires a valid client",
        "name a certificate and its key that the server accepts in `tls.certificate` and `tls.key`",
    ),
    (
        r"certificate|SSL",
        "name the certificates that the server's descends from in `tls.root_certificate` (sslrootcert in `url`), or "
        "correct `tls.mode`",
    ),
    (
        r"unsupported startup parameter",
        "take that parameter out of `url`: the pooler there does not pass it on",
    ),
    (
        r"too many (clients|connections)|connection slots|no more connections",
        "wait for others to disconnect, lower `connections`, or raise max_connections (a pooler's max_client_conn)",
    ),
    (
        r"(starting|shutting) (up|down)|recovery mode|not yet accepting",
        "wait until the server is up, then run again",
    ),
    (r"No such file or directory", "see that PostgreSQL runs on this machine, or put the host into `url`"),
)

#: what to do about anything else
_OTHER = "see that the server is up and that `url` is right"

#: libpq's messages about a server that is down or still starting
_DOWN = (
    r"Connection refused|closed the connection|Connection reset|Broken pipe|terminating connection|No such file"
    r"|(starting|shutting) (up|down)|recovery mode|not yet accepting|timeout expired|could not receive|unexpectedly"
)

#: classes and codes of SQLSTATE that concern the connection, not the statement
_CONNECTION = ("08", "25P03", "57P01", "57P02", "57P03", "57P05", "53300")

#: SQLSTATEs for a schema, table, column, type or function that was dropped or changed
_GONE = ("3F000", "42P01", "42703", "42704", "42804", "42883")

#: SQLSTATEs of a lock timeout, a deadlock and a transaction timeout
_WAITED = ("55P03", "40P01", "25P04")

#: part of a standby's message when it cancels a query that blocks replay
RECOVERY = "conflict with recovery"


def is_connection_error(error: psycopg.Error) -> bool:
    """Whether the connection ended. An error without a SQLSTATE is the driver's, and its class decides.

    A statement or value that the driver refuses never reached the server.
    """
    if error.sqlstate:
        return error.sqlstate.startswith(_CONNECTION)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def driver_error(table: str, said: str, *, stream: str | None) -> StreamFailed:
    """The error for a statement that the driver refused to send."""
    return StreamFailed(
        f"{table}: the driver refused a statement: {first_line(said)}",
        next_step="this is a defect in penstock: please report it with the output of `--json`",
        stream=stream,
    )


def connect_error(where: str, said: str, *, key: str = "url", again: bool = False) -> ConnectionFailed:
    """The error for a failed connection to the server that the option `key` names.

    `again`: there was a connection before, so the options are right if the server is only down.
    """
    why = first_line(said)
    if again and re.search(_DOWN, why):
        return connection_lost(where, said)
    step = next((step for pattern, step in _STEPS if re.search(pattern, why)), _OTHER)
    return ConnectionFailed(
        f"cannot connect to PostgreSQL at {where}: {why}", next_step=step.replace("`url`", f"`{key}`")
    )


def connection_lost(where: str, said: str) -> ConnectionFailed:
    """The error for a connection that ended while it was in use."""
    why = first_line(said)
    first = POOL_FULL if "query_wait_timeout" in why else "see that the server is up"
    return ConnectionFailed(
        f"the connection to PostgreSQL at {where} was lost: {why}",
        next_step=f"{first}, then run the same command again; it resumes from the stored mark",
    )


def copy_error(said: str, *, where: str, table: str, stream: str | None) -> PenstockError:
    """The error for a COPY that failed in the middle of its rows: Arrow's streams carry only the message."""
    if "statement timeout" in said or "user request" in said:
        state = "57014"
    elif RECOVERY in said:
        state = "40001"
    else:
        state = "XX000" if "ERROR:" in said else ""
    return statement_error(state, said, where=where, table=table, stream=stream)


def statement_error(sqlstate: str | None, said: str, *, where: str, table: str, stream: str | None) -> PenstockError:
    """The error for a statement that failed."""
    state, why = sqlstate or "", first_line(said)
    if RECOVERY in said:
        return StreamFailed(
            f"{table}: the replica canceled a statement that blocked replay: {why}",
            next_step="set hot_standby_feedback = on or raise max_standby_streaming_delay on the replica, or leave "
            "`replica` out, then run again",
            stream=stream,
        )
    if not state or state.startswith(_CONNECTION):
        return connection_lost(where, said)
    if state == "42501":
        return StreamRefused(
            f"{table} cannot be read: {why}", next_step="grant what is missing, then run again", stream=stream
        )
    if state in _GONE:
        return table_changed(table, why, stream=stream)
    if state == "57014":
        return StreamFailed(
            f"{table}: the server ended a statement: {why}",
            next_step="raise `statement_timeout` of the source, or the role's own, then run again",
            stream=stream,
        )
    if state in _WAITED:
        return StreamFailed(
            f"{table}: a statement timed out, or was in a deadlock: {why}",
            next_step="see who holds the table (pg_locks), or raise the timeout that the role has, then run again",
            stream=stream,
        )
    return StreamFailed(
        f"{table} cannot be read: {why}",
        next_step="correct the cause that the server gives, then run again",
        stream=stream,
    )


def table_changed(table: str, why: str, *, stream: str | None) -> StreamRefused:
    """The error for a table that has changed since the slice was planned."""
    return StreamRefused(
        f"{table} has changed while it was read: {why}",
        next_step="run again: the slice is finished with what the table has now, or the run says what to do",
        stream=stream,
    )


def first_line(said: str) -> str:
    """The first line of a message of libpq, psycopg or ADBC, without the prefixes that our own messages repeat."""
    # ADBC wraps the server's words: "NOT_FOUND: Failed to …: ERROR:  …\nLINE 1 …\n\nQuery was: …"
    lines = re.split(r"(?:ERROR|FATAL|PANIC):  ", said, maxsplit=1)[-1].strip().splitlines()
    first = re.sub(r"^[A-Z_]+: (\[libpq\] )?(Failed to connect: )?", "", lines[0] if lines else "")
    return _PREFIX.sub("", first).strip() or "no reason given"
