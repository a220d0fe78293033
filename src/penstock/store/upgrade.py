"""Brings a store's tables to HEAD: those of a new store are made as they are today, those of an older one migrated.

Alembic is imported only for a store that is older: its import alone takes longer than making all tables.
"""

from __future__ import annotations

import threading

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, delete, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from penstock import __version__
from penstock.store.location import StoreLocation, translate_errors
from penstock.store.schema import ABANDONED, HEAD, REVISION_TABLE, REVISIONS, meta, metadata

#: Alembic's own table, to the letter as Alembic makes it; a MetaData of its own keeps it out of ours
revision = Table(
    REVISION_TABLE,
    MetaData(naming_convention={"pk": "%(table_name)s_pkc"}),
    Column("version_num", String(32), primary_key=True),
)

#: where the migrations are
SCRIPTS = "penstock.store:migrations"

#: Alembic keeps its connection in globals: two threads at once would migrate each other's stores
_ALEMBIC_LOCK = threading.Lock()


def bring_to_head(engine: Engine, location: StoreLocation) -> None:
    """Bring the store to HEAD; StoreRefused if it is not ours or newer."""
    with translate_errors(location):
        if _at_head(engine):
            return
        with engine.execution_options(writes=True).begin() as connection:
            location.lock_schema(connection)
            tables = inspect(connection).get_table_names(schema=location.schema)
            if REVISION_TABLE not in tables:
                location.admit_tables(connection, sorted(tables))
                create_tables(connection)
            elif (found := _revision(connection)) in ABANDONED:
                raise location.abandoned(_who_wrote(connection, tables, found))
            elif found not in REVISIONS:
                raise (
                    location.newer(_who_wrote(connection, tables, found))
                    if found
                    else location.damaged(f"its table {REVISION_TABLE} is empty")
                )
            elif found != HEAD:  # else another process was faster
                migrate(connection, location.schema)


def create_tables(connection: Connection) -> None:
    """Make every table as it is at HEAD, where there is none yet, inside the connection's transaction."""
    for tables in (metadata, revision.metadata):
        tables.create_all(connection, checkfirst=False)
    connection.execute(insert(revision).values(version_num=HEAD))
    _record_version(connection)


def migrate(connection: Connection, schema: str | None, *, to: str = "head") -> None:
    """Run the migrations inside the connection's transaction: all of them or none."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.attributes.update(connection=connection, schema=schema)
    with _ALEMBIC_LOCK:
        command.upgrade(config, to)
    _record_version(connection)


def _record_version(connection: Connection) -> None:
    """Record which penstock wrote this."""
    connection.execute(delete(meta).where(meta.c.name == "penstock"))
    connection.execute(insert(meta).values(name="penstock", value=__version__))


def _at_head(engine: Engine) -> bool:
    """Whether there is nothing to do; any doubt is left to the longer look."""
    with engine.connect() as connection:
        try:
            return _revision(connection) == HEAD
        except DBAPIError as error:
            if "no such table" in str(error.orig) or getattr(error.orig, "sqlstate", None) == "42P01":
                return False
            raise


def _revision(connection: Connection) -> str | None:
    found: str | None = connection.execute(select(revision.c.version_num)).scalar()
    return found


def _who_wrote(connection: Connection, tables: list[str], found: str) -> str:
    wrote = None
    if meta.name in tables:
        wrote = connection.execute(select(meta.c.value).where(meta.c.name == "penstock")).scalar()
    who = f"penstock {wrote}" if wrote else "an older penstock" if found in ABANDONED else "a newer penstock"
    return f"was written by {who} (revision {found}); this is penstock {__version__} (revision {HEAD})"
