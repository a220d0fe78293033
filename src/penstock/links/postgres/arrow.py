"""Connections that carry Arrow batches, by ADBC. Imports pyarrow: only workers come here."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import adbc_driver_postgresql
from adbc_driver_manager import AdbcConnection, AdbcDatabase
from adbc_driver_manager import dbapi as manager

Error, OperationalError, InterfaceError = manager.Error, manager.OperationalError, manager.InterfaceError


def connect(conninfo: str) -> Any:
    """A DB-API connection outside transactions; `Error` if it cannot be had.

    The driver reads every column of the whole database's catalog before it first connects (65 ms in an empty
    database). What it learns is kept for the process, so that only the first part of a worker waits for it.
    """
    held: Any = _Kept()
    return manager.Connection(held, AdbcConnection(_database(conninfo)), autocommit=True)


@lru_cache(maxsize=8)
def _database(conninfo: str) -> AdbcDatabase:
    database: AdbcDatabase = adbc_driver_postgresql.connect(conninfo)
    return database


class _Kept:
    """What a connection closes, when it is closed, in place of the shared database."""

    def close(self) -> None:
        return None
