"""Stores of today and as they were at an earlier revision."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine

from penstock.store.places import Place
from penstock.store.postgres import PostgresDatabase
from penstock.store.schema import HEAD, REVISIONS
from penstock.store.sqlite import SqliteFile
from penstock.store.upgrade import make, migrate


def make_older(where: str) -> None:
    """A store of the first revision."""
    place = empty_place(where)
    engine = place.engine()
    bring_to(engine, place, REVISIONS[0])
    engine.dispose()


def empty_place(where: str) -> Place:
    """A place of ours without tables."""
    if "://" in where:
        return PostgresDatabase(where)
    file = SqliteFile(Path(where))
    file.mark()
    return file


def bring_to(engine: Engine, place: Place, revision: str = HEAD) -> None:
    """Tables as the migrations up to a revision make them."""
    with engine.execution_options(writes=True).begin() as connection:
        if place.schema:
            place.admit(connection, [])
        migrate(connection, place.schema, to=revision)


def bring_anew(engine: Engine, place: Place) -> None:
    """Tables as a new store gets them."""
    with engine.execution_options(writes=True).begin() as connection:
        if place.schema:
            place.admit(connection, [])
        make(connection)
