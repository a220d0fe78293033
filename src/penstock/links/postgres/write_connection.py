"""A connection that writes: transactions of our own, each with its settings, through a pooler too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from penstock.links.postgres.connection import Target, connect
from penstock.links.postgres.transactions import roll_back, set_config_calls, transaction_settings

#: a connection inside a transaction
Connection = psycopg.Connection[Any]

#: unlike where rows are read: a merge is one statement on one connection, and may use the server's helpers
_WRITING: Mapping[str, str] = {"max_parallel_workers_per_gather": "2"}
#: seconds after which the server ends a transaction of ours that says nothing: its process is frozen, and others wait
#: for what it has locked
IDLE_TRANSACTION_SECONDS = 60.0
#: bytes that one step of a merge may take in the server's memory, unless its own settings allow more: with the usual
#: 4 MiB the rows of a slice go to its disk and come back, several times
_MEMORY = 64 << 20


class WriteConnection:
    """One connection to a database that is written. Connects when it is first needed, and again if it is lost."""

    def __init__(self, target: Target, *, statement_timeout: float | None, lock_timeout: float) -> None:
        self.target = target
        self.lock_timeout = lock_timeout
        chosen = transaction_settings(
            statement_timeout=statement_timeout,
            application_name=target.application_name,
            more={
                **_WRITING,
                "lock_timeout": str(max(1, round(lock_timeout * 1000))),
                "idle_in_transaction_session_timeout": str(round(IDLE_TRANSACTION_SECONDS * 1000)),
            },
        )
        # A server may be set up to acknowledge what it can still forget.
        durable = sql.SQL(
            "pg_catalog.set_config('synchronous_commit', "
            "coalesce(nullif(pg_catalog.current_setting('synchronous_commit'), 'off'), 'on'), true)"
        )
        memory = sql.SQL(
            "pg_catalog.set_config('work_mem', greatest(pg_catalog.pg_size_bytes("
            "pg_catalog.current_setting('work_mem')), {}) / 1024 || 'kB', true)"
        ).format(sql.Literal(_MEMORY))
        self._settings = sql.SQL("SELECT {}, {}, {}").format(set_config_calls(chosen), durable, memory)
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.broken or self._connection.closed:
            self._connection = connect(self.target, again=self._connection is not None)
        return self._connection

    @property
    def lost(self) -> bool:
        """Whether the connection has ended under our hands."""
        return self._connection is not None and self._connection.broken

    @contextmanager
    def transaction(self, *, read_only: bool = False, keep: bool = True) -> Iterator[psycopg.Connection[Any]]:
        """A transaction; committed at its end, rolled back by an error, which comes out as it is (psycopg.Error).

        With `keep` false it is rolled back at its end too: a trial.
        """
        connection = self.connection
        mode = "READ ONLY" if read_only else "READ WRITE"
        begin = f"BEGIN ISOLATION LEVEL READ COMMITTED {mode};\n{self._settings.as_string(connection)}"
        try:
            connection.execute(begin.encode())
            yield connection
            connection.execute("COMMIT" if keep else "ROLLBACK")
        except BaseException:
            roll_back(connection)
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
