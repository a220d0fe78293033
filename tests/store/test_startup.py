"""Making a store, and opening one that is up to date, costs little: SQLAlchemy, and nothing else that is heavy."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine, event
from tests.store.older import make_older

from penstock.store import open_store
from penstock.testing.contracts.store import take

OPEN = """
import sys
from penstock.store import open_store
assert "sqlalchemy" not in sys.modules, "only a store that is opened needs it"
store = open_store(sys.argv[1])
store.streams("shop")
store.close()
heavy = {"alembic", "mako", "psycopg", "pyarrow", "pyspark", "sqlalchemy.orm", "pydantic"}
print(sorted(heavy & sys.modules.keys()))
"""


def loaded(where: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", OPEN, where], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_heavy_is_imported_for_a_file(tmp_path: Path) -> None:
    new, older = str(tmp_path / "store.db"), str(tmp_path / "older.db")
    assert [loaded(new), loaded(new)] == ["[]", "[]"], "the first one makes it"
    make_older(older)
    assert "alembic" in loaded(older), "it must be migrated, so Alembic's absence elsewhere means something"
    assert loaded(older) == "[]"


def test_nothing_heavy_but_the_driver_is_imported_for_postgres(database: str) -> None:
    assert [loaded(database), loaded(database)] == ["['psycopg']", "['psycopg']"], "the first one makes it"


def test_a_run_without_news_takes_few_statements(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with closing(open_store(path)) as store:
        store.release(take(store))
    statements: list[str] = []

    def note(_c: object, _u: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with closing(open_store(path)) as store:
            lease = take(store)
            store.streams("shop")
            store.release(lease)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    kinds = [statement if statement.startswith("BEGIN") else statement.split()[0] for statement in statements]
    opened, acquired = ["SELECT"], ["BEGIN IMMEDIATE", "SELECT", "UPDATE"]
    read, released = ["SELECT"], ["BEGIN IMMEDIATE", "UPDATE"]
    assert kinds == opened + acquired + read + released
