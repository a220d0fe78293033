"""The tables of a store, made by the migrations and made as they are today."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine

from penstock.store.location import StoreLocation
from penstock.store.postgres import PostgresDatabase
from penstock.store.schema import HEAD
from penstock.store.sqlite import SqliteFile
from penstock.store.upgrade import create_tables, migrate


def empty_place(where: str) -> StoreLocation:
    """A place of ours without tables."""
    if "://" in where:
        return PostgresDatabase(where)
    file = SqliteFile(Path(where))
    file.create_empty()
    return file


def bring_to(engine: Engine, place: StoreLocation, revision: str = HEAD) -> None:
    """Tables as the migrations up to a revision make them."""
    with engine.execution_options(writes=True).begin() as connection:
        if place.schema:
            place.admit_tables(connection, [])
        migrate(connection, place.schema, to=revision)


def bring_anew(engine: Engine, place: StoreLocation) -> None:
    """Tables as a new store gets them."""
    with engine.execution_options(writes=True).begin() as connection:
        if place.schema:
            place.admit_tables(connection, [])
        create_tables(connection)
