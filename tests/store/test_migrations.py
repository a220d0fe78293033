"""Every step from every revision leads to the schema of today, and keeps what was there.

A new store takes no steps, and is the same.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import IntegrityError
from tests.contracts.store_contract import after, deliver, take
from tests.store.later import LATER, use_later
from tests.store.tables import bring_anew, bring_to, empty_place

from penstock import __version__
from penstock.errors import StoreRefused
from penstock.store import open_store, upgrade
from penstock.store.location import StoreLocation
from penstock.store.schema import ABANDONED, HEAD, REVISION_TABLE, REVISIONS, metadata
from penstock.store.upgrade import bring_to_head, create_tables, revision

#: a pipeline that somebody holds, as every revision up to now keeps it
HELD = (
    "INSERT INTO leases (pipeline, host, pid, boot, started, epoch, heartbeat, expires) "
    "VALUES ('shop', 'h', 1, 'b', 's', 41, 1, 1)"
)
#: something that a store at each revision may hold, in its own SQL; a new revision adds its line
FILLED = {"0006": HELD}


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    url: str = request.getfixturevalue("database")
    return f"{url}?options=-csearch_path%3Dpenstock"


@pytest.fixture
def place(where: str) -> StoreLocation:
    """An empty place of ours."""
    return empty_place(where)


@pytest.fixture
def engine(place: StoreLocation) -> Iterator[Engine]:
    engine = place.engine()
    yield engine
    engine.dispose()


def test_the_list_of_revisions_is_alembics() -> None:
    config = Config()
    config.set_main_option("script_location", "penstock.store:migrations")
    script = ScriptDirectory.from_config(config)
    assert [step.revision for step in script.walk_revisions()][::-1] == list(REVISIONS)
    assert script.get_current_head() == HEAD
    assert FILLED.keys() == set(REVISIONS)


@pytest.mark.parametrize("start", REVISIONS)
def test_from_each_revision_to_the_schema_of_today(
    start: str, engine: Engine, place: StoreLocation, where: str
) -> None:
    bring_to(engine, place, start)
    with engine.begin() as connection:
        connection.execute(text(FILLED[start]))
    bring_to_head(engine, place)
    with engine.connect() as connection:
        options = {"version_table": REVISION_TABLE, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        found = connection.execute(text("SELECT version_num FROM revision")).scalar_one()
        wrote = connection.execute(text("SELECT value FROM meta WHERE name = 'penstock'")).scalar_one()
    assert (found, wrote) == (HEAD, __version__)
    with closing(open_store(where)) as store:
        assert take(store).epoch == 42


def test_a_later_step_is_taken_and_what_is_there_stays(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_store(where)) as store:
        deliver(store, take(store), after(None, 1), rows=5)
        before = (store.streams("shop"), store.history("shop", "orders"))
    use_later(monkeypatch, tmp_path)
    taken: list[str] = []
    migrate = upgrade.migrate

    def noted(connection: Connection, schema: str | None) -> None:
        taken.append(LATER)
        migrate(connection, schema)

    monkeypatch.setattr(upgrade, "migrate", noted)
    for _ in range(2):
        with closing(open_store(where)) as store:
            assert (store.streams("shop"), store.history("shop", "orders")) == before
    assert taken == [LATER], "a store that is up to date takes no steps"
    monkeypatch.undo()
    with pytest.raises(StoreRefused, match=f"revision {LATER}"):
        open_store(where)


@pytest.mark.parametrize("revision_", ABANDONED)
def test_a_store_from_before_the_first_release_is_refused_with_the_way_out(
    engine: Engine, place: StoreLocation, where: str, revision_: str
) -> None:
    bring_anew(engine, place)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE revision SET version_num = '{revision_}'"))
    with pytest.raises(StoreRefused) as refused:
        open_store(where)
    what, safe, next_step = str(refused.value).split("\n")
    wrote = f"was written by penstock {__version__} (revision {revision_}); this is penstock {__version__}"
    assert f"{wrote} (revision {HEAD}), which does not read stores of that revision any more" in what
    assert safe == "It was not changed, and it is not taken for an empty one."
    way = "rename the schema: `ALTER SCHEMA penstock" if place.schema else "move it aside, with store.db-wal"
    assert next_step.startswith(f"Next: {way}")
    assert "then run `penstock state recover FILE`" in next_step


def test_the_comparison_would_notice(engine: Engine, place: StoreLocation) -> None:
    bring_to(engine, place)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE streams ADD COLUMN surplus TEXT"))
        context = MigrationContext.configure(connection, opts={"version_table": REVISION_TABLE})
        assert len(compare_metadata(context, metadata)) == 1


def test_a_new_store_is_as_if_it_had_been_migrated(engine: Engine, place: StoreLocation) -> None:
    bring_to(engine, place)
    with engine.execution_options(writes=True).begin() as connection:
        migrated = shape(connection, place)
        revision.drop(connection)
        metadata.drop_all(connection)
        assert shape(connection, place) == {}
        create_tables(connection)
        assert shape(connection, place) == migrated
    assert migrated.keys() == {REVISION_TABLE, *metadata.tables}


def shape(connection: Connection, place: StoreLocation) -> dict[str, list[object]]:
    """All that the database tells of our tables, columns in their order, and what is in them."""
    found = inspect(connection)
    told: dict[str, list[object]] = {}
    for name in found.get_table_names(schema=place.schema):
        columns = [column | {"type": repr(column["type"])} for column in found.get_columns(name, schema=place.schema)]
        rows = connection.execute(text(f"SELECT * FROM {name}"))
        told[name] = [
            columns,
            found.get_pk_constraint(name, schema=place.schema),
            *_sorted(found.get_foreign_keys(name, schema=place.schema)),
            *_sorted(found.get_unique_constraints(name, schema=place.schema)),
            *_sorted(found.get_check_constraints(name, schema=place.schema)),
            *_sorted(found.get_indexes(name, schema=place.schema)),
            [tuple(row) for row in rows],
        ]
    return told


def _sorted(found: Iterable[object]) -> list[str]:
    return sorted(map(str, found))


@pytest.mark.parametrize("how", [bring_to, bring_anew])
def test_a_step_that_fails_leaves_no_trace(
    how: Callable[[Engine, StoreLocation], None], engine: Engine, place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "__version__", None)  # fails after all steps: meta.value may not be NULL
    with pytest.raises(IntegrityError):
        how(engine, place)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names(schema=place.schema) == []
