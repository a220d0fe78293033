"""Reads a table's state without PyIceberg, whose import alone takes longer than a run with nothing new.

The catalog's row names a metadata document, which is read as it is.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import os
import re
import sqlite3
import urllib.parse
import zlib
from typing import Any

from penstock.core.retry import Retry
from penstock.errors import InputError
from penstock.lake import bucket, rest
from penstock.lake.lake import CATALOG_LOCK_SECONDS, Lake
from penstock.lake.table_state import TableState

#: of a metadata document that concurrent commits remove
READS = Retry(5)


def read_state(lake: Lake, table: str) -> TableState | None:
    """Read the state of a table as it is now; None: there is no such table."""
    if lake.type in ("sqlite", "jdbc"):
        return _read_document(lake, table)
    if lake.type == "rest" and rest.is_supported(lake):
        found = rest.read_metadata(lake, table)
        return TableState(found) if found is not None else None
    return _read_through_pyiceberg(lake, table)


def list_tables(lake: Lake) -> list[str]:
    """List the tables of the lake's namespace; ConnectionFailed if the catalog cannot be reached."""
    if lake.type in ("sqlite", "jdbc"):
        return [name for name, _ in _query(lake)]
    from penstock.lake.tables import list_through_pyiceberg

    return list_through_pyiceberg(lake)


def _read_document(lake: Lake, table: str) -> TableState | None:
    seen: set[str] = set()
    for attempt in READS.attempts():
        location = _location(lake, table)
        if location is None:
            return None
        try:
            return TableState(_parse(lake, location, read(lake, location)))
        except FileNotFoundError as error:
            if location in seen or READS.is_last(attempt):
                raise _unreadable(lake, location, "it does not exist") from error
            seen.add(location)
    raise AssertionError("the last attempt raises")


def _location(lake: Lake, table: str) -> str | None:
    """Where the table's metadata document is, by the catalog's row."""
    return next((location for _, location in _query(lake, table)), None)


def _query(lake: Lake, table: str | None = None) -> list[tuple[str, str]]:
    """The names and metadata locations of a table, or of all tables, in a SQL catalog."""
    sql = "select table_name, metadata_location from iceberg_tables where catalog_name = {0} and table_namespace = {0}"
    sql += " order by 1" if table is None else " and table_name = {0}"
    values = (lake.name, lake.namespace, *(() if table is None else (table,)))
    if lake.type == "jdbc":
        return _query_postgres(lake, sql.format("%s"), values)
    if not os.path.exists(lake.uri):
        return []
    try:
        try:
            return _query_sqlite(lake, "ro", sql.format("?"), values)
        except sqlite3.OperationalError as error:
            if "readonly database" not in str(error):
                raise
            # A process was killed while it wrote, and only a connection that may write can roll its changes back.
            return _query_sqlite(lake, "rw", sql.format("?"), values)
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise lake.unreachable(error) from error
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"the catalog {lake.uri} cannot be read: {error}",
            next_step="restore the catalog's file from a copy, or name another one with catalog.uri",
        ) from error


def _query_sqlite(lake: Lake, mode: str, sql: str, values: tuple[str, ...]) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(f"file:{urllib.parse.quote(lake.uri)}?mode={mode}", uri=True)) as db:
        db.execute(f"pragma busy_timeout = {CATALOG_LOCK_SECONDS * 1000}")
        return db.execute(sql, values).fetchall()


def _query_postgres(lake: Lake, sql: str, values: tuple[str, ...]) -> list[tuple[str, str]]:
    import psycopg

    try:
        with psycopg.connect(lake.uri, connect_timeout=10) as db:
            if db.execute("select to_regclass('iceberg_tables')").fetchone() == (None,):
                return []
            return db.execute(sql, values).fetchall()
    except psycopg.Error as error:
        raise lake.unreachable(error) from error


def _read_through_pyiceberg(lake: Lake, table: str) -> TableState | None:
    from penstock.lake.tables import extract_state, load_table

    try:
        loaded = load_table(lake, table)
    except _failures() as error:
        raise lake.unreachable(error) from error
    return extract_state(loaded) if loaded else None


def _failures() -> tuple[type[Exception], ...]:
    """What the libraries of catalogs raise when they cannot reach them; some are installed on demand only."""
    found: list[type[Exception]] = [OSError]
    for module, name in (
        ("pyiceberg.exceptions", "RESTError"),
        ("thrift.Thrift", "TException"),
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
    ):
        with contextlib.suppress(ImportError):
            found.append(getattr(importlib.import_module(module), name))
    return tuple(found)


def read(lake: Lake, location: str) -> bytes:
    """Read a metadata document's bytes; FileNotFoundError if it does not exist."""
    if location.startswith("s3://"):
        return bucket.read_object(lake, location)
    try:
        # Hadoop's file system, through which Spark writes, spells it with one slash: file:/path.
        with open(re.sub(r"^file:/+", "/", location), "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(lake, location, error.strerror or str(error)) from error


def _parse(lake: Lake, location: str, raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise _unreadable(lake, location, "it is damaged") from error
    if not isinstance(found, dict) or "table-uuid" not in found:
        raise _unreadable(lake, location, "it is not a table's metadata")
    return found


def _unreadable(lake: Lake, location: str, why: str) -> InputError:
    return InputError(
        f"the catalog {lake.name!r} names {location}, which cannot be read: {why}",
        next_step="restore the warehouse and its catalog from copies that belong together",
    )
