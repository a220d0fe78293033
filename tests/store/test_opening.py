"""Where a store may be, and that many may make it at once."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.contracts.store_contract import after, deliver, take
from tests.store.later import preamble, use_later, write_later

from penstock.core.outcome import Outcome
from penstock.store import missing_store, open_store
from penstock.store.schema import APPLICATION_ID

MAKE = """
import sys
import alembic.command
import penstock.store.postgres
import penstock.store.sqlite
from penstock.store import open_store
for first in ("", LATER):
    exec(first)
    print("ready", flush=True)
    sys.stdin.readline()
    open_store(sys.argv[1]).close()
"""


@pytest.mark.parametrize(
    ("where", "file"),
    [
        ("store.db", "store.db"),
        ("new/deep/store.db", "new/deep/store.db"),
        ("sqlite:///store.db", "store.db"),
        ("sqlite:///{}/elsewhere.db", "elsewhere.db"),
        ("{}/elsewhere.db", "elsewhere.db"),
        ("100% ö?#.db", "100% ö?#.db"),
    ],
)
def test_where_a_file_is(tmp_path: Path, where: str, file: str) -> None:
    with closing(open_store(where.replace("{}", str(tmp_path)), folder=str(tmp_path))) as store:
        take(store)
        assert (tmp_path / file).is_file()


def test_a_new_file_is_ours_whole_and_alone(tmp_path: Path) -> None:
    open_store(str(tmp_path / "store.db")).close()
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        pragmas = ("application_id", "journal_mode", "integrity_check")
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]
    assert found == [APPLICATION_ID, "wal", "ok"]


def test_every_connection_is_durable_and_checks_references(tmp_path: Path) -> None:
    from penstock.store.sqlite import SqliteFile

    open_store(str(tmp_path / "store.db")).close()
    engine = SqliteFile(tmp_path / "store.db").engine()
    with engine.connect() as connection:
        names = ("synchronous", "foreign_keys", "busy_timeout")
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names]
    engine.dispose()
    assert found == [2, 1, 30_000]


def test_a_store_that_appears_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    link = os.link

    def slowly(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        with closing(open_store(str(path))) as faster:
            take(faster)
        link(source, target)

    monkeypatch.setattr(os, "link", slowly)
    with closing(open_store(str(path))) as store:
        assert take(store).epoch == 2


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_many_who_make_it_at_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(tmp_path / "store.db") if kind == "sqlite" else request.getfixturevalue("database")
    later = preamble(write_later(tmp_path))
    # Made as it is today by all of them at once, and then migrated.
    command = [sys.executable, "-W", "error", "-c", MAKE.replace("LATER", repr(later)), where]
    makers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for _ in range(2):
        for maker in makers:
            assert maker.stdout is not None
            assert maker.stdout.readline() == b"ready\n"
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write(b"go\n")
            maker.stdin.flush()
    for maker in makers:
        maker.communicate()
    assert [maker.returncode for maker in makers] == [0] * 4
    use_later(monkeypatch, tmp_path / "here")
    with closing(open_store(where)) as store:
        lease = take(store)
        assert lease.epoch == 1
        deliver(store, lease, after(None, 1), outcome=Outcome(created=10))


def test_one_who_only_asks_makes_no_store(tmp_path: Path, database: str) -> None:
    places = {"store.db": str(tmp_path / "store.db"), database: "database "}
    for where, words in places.items():
        missing = missing_store(where, folder=str(tmp_path))
        assert missing is not None
        assert missing.startswith(words)
        assert missing == missing_store(where, folder=str(tmp_path)), "the first question has made it"
        open_store(where, folder=str(tmp_path)).close()
        assert missing_store(where, folder=str(tmp_path)) is None
