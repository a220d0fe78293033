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
from penstock.lake.place import PATIENCE, Place
from penstock.lake.standing import Standing

_ROW = (
    "select metadata_location from iceberg_tables "
    "where catalog_name = {0} and table_namespace = {0} and table_name = {0}"
)

#: looks at a catalog whose document is removed, by those who commit meanwhile, before it can be read
_LOOKS = 5


def peek(place: Place, table: str) -> Standing | None:
    """How a table stands now; None: there is no such table."""
    if place.type in ("sqlite", "jdbc"):
        seen: set[str] = set()
        for _ in range(_LOOKS):
            location = _location(place, table)
            if location is None:
                return None
            try:
                return Standing(_parsed(place, location, read(place, location)))
            except FileNotFoundError as error:
                if location in seen:
                    raise _astray(place, location, "it is not there") from error
                seen.add(location)
        raise _astray(place, location or table, "it is not there")
    if place.type == "rest" and rest.plain(place):
        found = rest.metadata(place, table)
        return Standing(found) if found is not None else None
    return _through_pyiceberg(place, table)


def tables_in(place: Place) -> list[str]:
    """The tables of the place's namespace; ConnectionFailed if the catalog cannot be reached."""
    ask = "select table_name from iceberg_tables where catalog_name = {0} and table_namespace = {0} order by 1"
    if place.type == "sqlite":
        return [row[0] for row in _ask_sqlite(place, ask.format("?"), (place.name, place.namespace))]
    if place.type == "jdbc":
        return [row[0] for row in _ask_postgres(place, ask.format("%s"), (place.name, place.namespace))]
    from penstock.lake.tables import names_in

    return names_in(place)


def _location(place: Place, table: str) -> str | None:
    """Where the table's metadata document lies, by the catalog's row."""
    named = (place.name, place.namespace, table)
    if place.type == "sqlite":
        rows = _ask_sqlite(place, _ROW.format("?"), named)
    else:
        rows = _ask_postgres(place, _ROW.format("%s"), named)
    return rows[0][0] if rows else None


def _ask_sqlite(place: Place, ask: str, given: tuple[str, ...]) -> list[tuple[str]]:
    if not os.path.exists(place.uri):
        return []
    try:
        try:
            return _rows(place, "ro", ask, given)
        except sqlite3.OperationalError as error:
            if "readonly database" not in str(error):
                raise
            # A process was killed in its write, and only one that may write can take back what it left.
            return _rows(place, "rw", ask, given)
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise place.unreachable(error) from error
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"the catalog {place.uri} cannot be read: {error}",
            next_step="put the catalog's file back from a copy, or name another one with catalog.uri",
        ) from error


def _rows(place: Place, mode: str, ask: str, given: tuple[str, ...]) -> list[tuple[str]]:
    at = f"file:{urllib.parse.quote(place.uri)}?mode={mode}"
    with contextlib.closing(sqlite3.connect(at, uri=True)) as db:
        db.execute(f"pragma busy_timeout = {PATIENCE * 1000}")
        return db.execute(ask, given).fetchall()


def _ask_postgres(place: Place, ask: str, given: tuple[str, ...]) -> list[tuple[str]]:
    import psycopg

    try:
        with psycopg.connect(place.uri, connect_timeout=10) as db:
            if db.execute("select to_regclass('iceberg_tables')").fetchone() == (None,):
                return []
            return db.execute(ask, given).fetchall()
    except psycopg.Error as error:
        raise place.unreachable(error) from error


def _through_pyiceberg(place: Place, table: str) -> Standing | None:
    from penstock.lake.tables import load, standing_of

    try:
        loaded = load(place, table)
    except _failures() as error:
        raise place.unreachable(error) from error
    return standing_of(loaded) if loaded else None


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


def read(place: Place, location: str) -> bytes:
    """A metadata document's bytes; FileNotFoundError if it is not there."""
    if location.startswith("s3://"):
        raw = bucket.read(place, location)
    else:
        try:
            # Hadoop's file system, through which Spark writes, spells it with one slash: file:/path.
            with open(re.sub(r"^file:/+", "/", location), "rb") as file:
                raw = file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _astray(place, location, error.strerror or str(error)) from error
    return raw


def _parsed(place: Place, location: str, raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise _astray(place, location, "it is damaged") from error
    if not isinstance(found, dict) or "table-uuid" not in found:
        raise _astray(place, location, "it is not a table's metadata")
    return found


def _astray(place: Place, location: str, why: str) -> InputError:
    return InputError(
        f"the catalog {place.name!r} names {location}, which cannot be read: {why}",
        next_step="put the warehouse and its catalog back as they belong together",
    )
