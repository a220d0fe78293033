"""Every step from every revision leads to the schema of today, and keeps what was there."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import IntegrityError

from penstock import __version__
from penstock.store import open_store, upgrade
from penstock.store.places import Place
from penstock.store.postgres import PostgresDatabase
from penstock.store.schema import HEAD, REVISION_TABLE, REVISIONS, metadata
from penstock.store.sqlite import SqliteFile
from penstock.store.upgrade import migrate, settle
from penstock.testing.contracts.store import take

#: something that a store at each revision may hold, in its own SQL; a new revision adds its line
FILLED = {
    "0001": "INSERT INTO leases (pipeline, host, pid, boot, started, epoch, heartbeat, expires) "
    "VALUES ('shop', 'h', 1, 'b', 's', 41, 1, 1)",
}


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    url: str = request.getfixturevalue("database")
    return f"{url}?options=-csearch_path%3Dpenstock"


@pytest.fixture
def place(where: str) -> Place:
    """An empty place of ours."""
    if "://" in where:
        return PostgresDatabase(where)
    file = SqliteFile(Path(where))
    file.mark()
    return file


@pytest.fixture
def engine(place: Place) -> Iterator[Engine]:
    engine = place.engine()
    yield engine
    engine.dispose()


def bring_to(engine: Engine, place: Place, revision: str) -> None:
    with engine.execution_options(writes=True).begin() as connection:
        if place.schema:
            place.admit(connection, [])
        migrate(connection, place.schema, to=revision)


def test_the_list_of_revisions_is_alembics() -> None:
    config = Config()
    config.set_main_option("script_location", "penstock.store:migrations")
    script = ScriptDirectory.from_config(config)
    assert [step.revision for step in script.walk_revisions()][::-1] == list(REVISIONS)
    assert script.get_current_head() == HEAD
    assert FILLED.keys() == set(REVISIONS)


@pytest.mark.parametrize("start", REVISIONS)
def test_from_each_revision_to_the_schema_of_today(start: str, engine: Engine, place: Place, where: str) -> None:
    bring_to(engine, place, start)
    with engine.begin() as connection:
        connection.execute(text(FILLED[start]))
    settle(engine, place)
    with engine.connect() as connection:
        options = {"version_table": REVISION_TABLE, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        found = connection.execute(text("SELECT version_num FROM revision")).scalar_one()
        wrote = connection.execute(text("SELECT value FROM meta WHERE name = 'penstock'")).scalar_one()
    assert (found, wrote) == (HEAD, __version__)
    with closing(open_store(where)) as store:
        assert take(store).epoch == 42


def test_the_comparison_would_notice(engine: Engine, place: Place) -> None:
    bring_to(engine, place, HEAD)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE streams ADD COLUMN surplus TEXT"))
        context = MigrationContext.configure(connection, opts={"version_table": REVISION_TABLE})
        assert len(compare_metadata(context, metadata)) == 1


def test_a_step_that_fails_leaves_no_trace(engine: Engine, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "__version__", None)  # fails after all steps: meta.value may not be NULL
    with pytest.raises(IntegrityError):
        bring_to(engine, place, HEAD)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names(schema=place.schema) == []
