"""Making a store, and opening one that is up to date, costs little: SQLAlchemy, and nothing else that is heavy."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine, event
from tests.contracts.store_contract import take
from tests.store.later import preamble, write_later

from penstock.store import open_store

OPEN = """
import sys
from penstock.store import open_store
store = open_store(sys.argv[1])
store.streams("shop")
store.close()
heavy = {"alembic", "mako", "psycopg", "pyarrow", "pyspark", "sqlalchemy.orm", "pydantic"}
print(sorted(heavy & sys.modules.keys()))
"""


def loaded(where: str, before: str = "") -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", before + OPEN, where], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_room_alone_imports_no_sqlalchemy() -> None:
    code = "import sys, penstock.store; print('sqlalchemy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_nothing_heavy_is_imported_for_a_file(tmp_path: Path) -> None:
    where = str(tmp_path / "store.db")
    assert [loaded(where), loaded(where)] == ["[]", "[]"], "the first one makes it"
    later = preamble(write_later(tmp_path))
    assert "alembic" in loaded(where, later), "it must be migrated, so Alembic's absence elsewhere means something"
    assert loaded(where, later) == "[]"


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
