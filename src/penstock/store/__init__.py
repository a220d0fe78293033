"""Where intents and marks live: SQLite in a file by default, Postgres by URL, through one code path.

Keeps the obligations of `ports.Store`. Leaves to others what a mark means and when it may move. Imports are inside
functions, so that a command that opens no store does not pay for SQLAlchemy, nor one with a file for psycopg.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.history import HistoryLimits
from penstock.errors import StoreRefused

if TYPE_CHECKING:
    from penstock.ports import Store
    from penstock.store.location import StoreLocation

__all__ = ["missing_store", "open_store", "store_address", "store_path"]


def open_store(where: str, *, folder: str = ".", limits: HistoryLimits | None = None) -> Store:
    """Open a store, creating it if it does not exist, and bring its tables up to this version.

    `where` is a path (relative to `folder`), `sqlite:///path` or `postgresql://…`. StoreRefused if what is
    there cannot be read, is not ours or is newer than we are; ConnectionFailed if there is no server.
    `limits` say how much of the past it keeps.
    """
    from penstock.store.location import translate_errors
    from penstock.store.sql import SqlStore
    from penstock.store.upgrade import bring_to_head

    location = _locate(where, folder)
    location.prepare()
    with translate_errors(location):
        engine = location.engine()
    try:
        bring_to_head(engine, location)
    except BaseException:
        engine.dispose()
        raise
    return SqlStore(engine, location, limits or HistoryLimits())


def missing_store(where: str, *, folder: str = ".") -> str | None:
    """Describe where `open_store` would have to make a store; None: something is there. Makes nothing."""
    from penstock.store.location import translate_errors

    location = _locate(where, folder)
    with translate_errors(location):
        return location.missing()


def store_address(where: str, *, folder: str = ".") -> str:
    """A store's normalized address, without its password."""
    return _locate(where, folder).address


def store_path(where: str, *, folder: str = ".") -> str | None:
    """The path of a store's file; None: it is not kept in a file."""
    from penstock.store.sqlite import SqliteFile

    location = _locate(where, folder)
    return str(location.path) if isinstance(location, SqliteFile) else None


def _locate(where: str, folder: str) -> StoreLocation:
    scheme, marked, rest = where.partition("://")
    if not marked:
        scheme, rest = "sqlite", f"/{where}"
    match scheme:
        case "postgresql" | "postgres":
            from penstock.store.postgres import PostgresDatabase

            return PostgresDatabase(where)
        case "sqlite" if len(rest) > 1 and rest[0] == "/" and rest != "/:memory:":
            from penstock.store.sqlite import SqliteFile

            return SqliteFile(Path(folder, rest[1:]).absolute())
        case "sqlite":
            what = "sqlite:// without a path names no file, and a store in memory would forget how far each stream is"
        case _:
            what = f"a store cannot be in {scheme}://"
    kinds = "a file, sqlite:///path or postgresql://user:password@host:port/database"
    raise StoreRefused(what, safe="Nothing was changed.", next_step=f"name {kinds}")
