"""Chooses the place that `where` names, and opens a store there."""

from __future__ import annotations

from pathlib import Path

from penstock.core.history import HistoryLimits
from penstock.errors import StoreRefused
from penstock.ports import Store
from penstock.store.location import StoreLocation, translate_errors
from penstock.store.sql import SqlStore
from penstock.store.upgrade import settle

KINDS = "a file, sqlite:///path or postgresql://user:password@host:port/database"


def open_sql_store(where: str, folder: str, limits: HistoryLimits) -> Store:
    place = _locate(where, folder)
    place.make_ready()
    with translate_errors(place):
        engine = place.engine()
    try:
        settle(engine, place)
    except BaseException:
        engine.dispose()
        raise
    return SqlStore(engine, place, limits)


def missing_sql_store(where: str, folder: str) -> str | None:
    place = _locate(where, folder)
    with translate_errors(place):
        return place.missing()


def sql_store_address(where: str, folder: str) -> str:
    return _locate(where, folder).address


def sql_store_path(where: str, folder: str) -> str | None:
    from penstock.store.sqlite import SqliteFile

    place = _locate(where, folder)
    return str(place.path) if isinstance(place, SqliteFile) else None


def _locate(where: str, folder: str) -> StoreLocation:
    scheme, marked, rest = where.partition("://")
    if not marked:
        scheme, rest = "sqlite", f"/{where}"
    match scheme:
        case "postgresql" | "postgres":
            # Here, so that nobody pays for psycopg who keeps the store in a file.
            from penstock.store.postgres import PostgresDatabase

            return PostgresDatabase(where)
        case "sqlite" if len(rest) > 1 and rest[0] == "/" and rest != "/:memory:":
            from penstock.store.sqlite import SqliteFile

            return SqliteFile(Path(folder, rest[1:]).absolute())
        case "sqlite":
            raise _unknown(
                "sqlite:// without a path names no file, and a store in memory would forget how far each stream is"
            )
        case _:
            raise _unknown(f"a store cannot be kept in {scheme}://")


def _unknown(what: str) -> StoreRefused:
    return StoreRefused(what, safe="Nothing was changed.", next_step=f"name {KINDS}")
