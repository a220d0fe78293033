"""Where intents and marks live: SQLite in a file by default, Postgres by URL, through one code path.

Keeps the obligations of `ports.Store`. Leaves to others what a mark means and when it may move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.history import HistoryLimits

if TYPE_CHECKING:
    from penstock.ports import Store

__all__ = ["missing_store", "open_store", "store_address", "store_path"]


def open_store(where: str, *, folder: str = ".", limits: HistoryLimits | None = None) -> Store:
    """Open a store, creating it if it is not there, and bring its tables up to this version.

    `where` is a path (relative to `folder`), `sqlite:///path` or `postgresql://…`. StoreRefused if what is
    there cannot be read, is not ours or is newer than we are; ConnectionFailed if there is no server.
    `limits` say how much of the past it keeps.
    """
    # Here, so that a command that opens no store does not pay for SQLAlchemy.
    from penstock.store.opening import open_sql_store

    return open_sql_store(where, folder, limits or HistoryLimits())


def missing_store(where: str, *, folder: str = ".") -> str | None:
    """Where `open_store` would have to make a store, in words; None: something is there. Makes nothing."""
    from penstock.store.opening import missing_sql_store

    return missing_sql_store(where, folder)


def store_address(where: str, *, folder: str = ".") -> str:
    """A store's address without its password, in one spelling."""
    from penstock.store.opening import sql_store_address

    return sql_store_address(where, folder)


def store_path(where: str, *, folder: str = ".") -> str | None:
    """The path of a store's file; None: it is not kept in a file."""
    from penstock.store.opening import sql_store_path

    return sql_store_path(where, folder)
