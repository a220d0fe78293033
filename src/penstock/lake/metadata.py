"""A look at a table's metadata without PyIceberg, whose import alone takes longer than a run with nothing new.

The catalog's row names a metadata document; that document is read as it is.
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

from penstock.errors import InputError
from penstock.lake import bucket, rest
from penstock.lake.lake import CATALOG_LOCK_SECONDS, Lake
from penstock.lake.table_state import TableState

_ROW = (
    "select metadata_location from iceberg_tables "
    "where catalog_name = {0} and table_namespace = {0} and table_name = {0}"
)

#: looks at a catalog whose document is removed, by those who commit meanwhile, before it can be read
_LOOKS = 5


def read_state(lake: Lake, table: str) -> TableState | None:
    """How a table stands now; None: there is no such table."""
    if lake.type in ("sqlite", "jdbc"):
        seen: set[str] = set()
        for _ in range(_LOOKS):
            location = _location(lake, table)
            if location is None:
                return None
            try:
                return TableState(_parsed(lake, location, read(lake, location)))
            except FileNotFoundError as error:
                if location in seen:
                    raise _astray(lake, location, "it is not there") from error
                seen.add(location)
        raise _astray(lake, location or table, "it is not there")
    if lake.type == "rest" and rest.is_supported(lake):
        found = rest.read_metadata(lake, table)
        return TableState(found) if found is not None else None
    return _through_pyiceberg(lake, table)


def list_tables(lake: Lake) -> list[str]:
    """The tables of the place's namespace; ConnectionFailed if the catalog cannot be reached."""
    ask = "select table_name from iceberg_tables where catalog_name = {0} and table_namespace = {0} order by 1"
    if lake.type == "sqlite":
        return [row[0] for row in _ask_sqlite(lake, ask.format("?"), (lake.name, lake.namespace))]
    if lake.type == "jdbc":
        return [row[0] for row in _ask_postgres(lake, ask.format("%s"), (lake.name, lake.namespace))]
    from penstock.lake.tables import list_through_pyiceberg

    return list_through_pyiceberg(lake)


def _location(lake: Lake, table: str) -> str | None:
    """Where the table's metadata document lies, by the catalog's row."""
    named = (lake.name, lake.namespace, table)
    if lake.type == "sqlite":
        rows = _ask_sqlite(lake, _ROW.format("?"), named)
    else:
        rows = _ask_postgres(lake, _ROW.format("%s"), named)
    return rows[0][0] if rows else None


def _ask_sqlite(lake: Lake, ask: str, given: tuple[str, ...]) -> list[tuple[str]]:
    if not os.path.exists(lake.uri):
        return []
    try:
        try:
            return _rows(lake, "ro", ask, given)
        except sqlite3.OperationalError as error:
            if "readonly database" not in str(error):
                raise
            # A process was killed in its write, and only one that may write can take back what it left.
            return _rows(lake, "rw", ask, given)
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise lake.unreachable(error) from error
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"the catalog {lake.uri} cannot be read: {error}",
            next_step="put the catalog's file back from a copy, or name another one with catalog.uri",
        ) from error


def _rows(lake: Lake, mode: str, ask: str, given: tuple[str, ...]) -> list[tuple[str]]:
    at = f"file:{urllib.parse.quote(lake.uri)}?mode={mode}"
    with contextlib.closing(sqlite3.connect(at, uri=True)) as db:
        db.execute(f"pragma busy_timeout = {CATALOG_LOCK_SECONDS * 1000}")
        return db.execute(ask, given).fetchall()


def _ask_postgres(lake: Lake, ask: str, given: tuple[str, ...]) -> list[tuple[str]]:
    import psycopg

    try:
        with psycopg.connect(lake.uri, connect_timeout=10) as db:
            if db.execute("select to_regclass('iceberg_tables')").fetchone() == (None,):
                return []
            return db.execute(ask, given).fetchall()
    except psycopg.Error as error:
        raise lake.unreachable(error) from error


def _through_pyiceberg(lake: Lake, table: str) -> TableState | None:
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
    """A metadata document's bytes; FileNotFoundError if it is not there."""
    if location.startswith("s3://"):
        raw = bucket.read_object(lake, location)
    else:
        try:
            # Hadoop's file system, through which Spark writes, spells it with one slash: file:/path.
            with open(re.sub(r"^file:/+", "/", location), "rb") as file:
                raw = file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _astray(lake, location, error.strerror or str(error)) from error
    return raw


def _parsed(lake: Lake, location: str, raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise _astray(lake, location, "it is damaged") from error
    if not isinstance(found, dict) or "table-uuid" not in found:
        raise _astray(lake, location, "it is not a table's metadata")
    return found


def _astray(lake: Lake, location: str, why: str) -> InputError:
    return InputError(
        f"the catalog {lake.name!r} names {location}, which cannot be read: {why}",
        next_step="put the warehouse and its catalog back as they belong together",
    )
