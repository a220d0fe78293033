"""A file that is not a whole store of ours is refused with its name and the way out, not taken for empty."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from tests.contracts.store_contract import NOW, after, deliver, take

from penstock import __version__
from penstock.errors import StoreRefused
from penstock.ports import Store
from penstock.store import location, open_store
from penstock.store.schema import HEAD

UNCHANGED = "It was not changed, and it is not taken for an empty one."
WAY_OUT = (
    "move it aside, with store.db-wal and store.db-shm if they exist; then restore a copy of it, or run "
    "`penstock state recover FILE`, which rebuilds it from what the sink holds"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def refused(path: Path | str) -> str:
    with pytest.raises(StoreRefused) as error:
        open_store(str(path)).close()
    assert error.value.exit_code == 2
    return str(error.value)


def made(path: Path) -> bytes:
    """A store with something in it."""
    with closing(open_store(str(path))) as store:
        lease = take(store)
        at = deliver(store, lease, after(None, 1))
        store.intend(lease, after(at, 2), now=NOW, run="r")
        store.start_run(lease, "r", now=NOW)
    return path.read_bytes()


def everything(store: Store) -> object:
    return (store.holder("shop"), store.streams("shop"), store.history("shop", "orders"), store.runs("shop"))


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@contextmanager
def powerless() -> Iterator[None]:
    """As a user for whom permissions count."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_not_a_sqlite_file(path: Path) -> None:
    path.write_bytes(garbage := b"key,value\n" * 500)
    assert refused(path) == (
        f"the store {path} is not a SQLite database: it is another kind of file, or it was overwritten\n"
        f"{UNCHANGED}\n"
        f"Next: name another file for the store; if this one was it, {WAY_OUT}"
    )
    assert path.read_bytes() == garbage


def test_empty_file(path: Path) -> None:
    path.touch()
    assert refused(path) == (
        f"the store {path} is empty: it may have been truncated\n"
        f"{UNCHANGED}\n"
        f"Next: delete it if it never held anything; otherwise {WAY_OUT}"
    )
    assert path.stat().st_size == 0


def test_truncated(path: Path) -> None:
    whole = made(path)
    path.write_bytes(whole[: len(whole) // 2])
    assert refused(path) == (
        f"the store {path} is damaged: database disk image is malformed\n{UNCHANGED}\nNext: {WAY_OUT}"
    )


@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
def test_a_broken_page_is_noticed_or_does_not_matter(path: Path, filling: bytes) -> None:
    whole = made(path)
    with closing(open_store(str(path))) as store:
        truth = everything(store)
    noticed = 0
    for start in range(0, len(whole), 4096):
        path.write_bytes(whole[:start] + filling * 4096 + whole[start + 4096 :])
        try:
            with closing(open_store(str(path))) as store:
                assert everything(store) == truth
        except StoreRefused:
            noticed += 1
    assert noticed >= 6  # the first page, the schema, and the tables that were read


def test_damage_that_shows_only_later(path: Path) -> None:
    made(path)
    with closing(open_store(str(path))) as store:
        run_sql(path, "DROP TABLE history")
        with pytest.raises(StoreRefused) as error:
            store.history("shop", "orders")
    assert str(error.value) == (f"the store {path} is damaged: no such table: history\n{UNCHANGED}\nNext: {WAY_OUT}")


def test_an_open_slice_that_was_tampered_with(path: Path) -> None:
    made(path)
    run_sql(path, """UPDATE intents SET upto = '{"key":"999"}'""")
    with closing(open_store(str(path))) as store, pytest.raises(StoreRefused) as error:
        store.streams("shop")
    assert str(error.value) == (
        f"the store {path} is damaged: slice 2 of stream orders does not match its id\n{UNCHANGED}\nNext: {WAY_OUT}"
    )


def test_an_open_slice_that_is_missing(path: Path) -> None:
    made(path)
    run_sql(path, "DELETE FROM intents")
    with (
        closing(open_store(str(path))) as store,
        pytest.raises(StoreRefused, match="as open, which it is not"),
    ):
        store.state("shop", "orders")


def test_a_database_of_another_program(path: Path) -> None:
    run_sql(path, *(f"CREATE TABLE {name} (x)" for name in "abcd"))
    before = path.read_bytes()
    assert refused(path) == (
        f"the store {path} is a SQLite database of another program, with the tables a, b, c, …\n"
        f"{UNCHANGED}\n"
        "Next: name another file for the store; penstock creates it"
    )
    assert path.read_bytes() == before


def test_a_database_with_another_application_id(path: Path) -> None:
    made(path)
    run_sql(path, "PRAGMA application_id = 42")
    assert "is a SQLite database of another program, with the tables contents, days, failures, …" in refused(path)


def test_a_database_of_ours_without_tables(path: Path) -> None:
    run_sql(path, "PRAGMA application_id = 1885695603")
    assert refused(path) == f"the store {path} is damaged: its tables are missing\n{UNCHANGED}\nNext: {WAY_OUT}"


def test_a_database_without_a_revision(path: Path) -> None:
    made(path)
    run_sql(path, "DELETE FROM revision")
    assert f"the store {path} is damaged: its table revision is empty" in refused(path)


@pytest.mark.parametrize("wrote", ["9.8.7", None])
def test_a_newer_store(path: Path, wrote: str | None) -> None:
    made(path)
    run_sql(path, "UPDATE revision SET version_num = '9999'", f"UPDATE meta SET value = '{wrote}'")
    if wrote is None:
        run_sql(path, "DROP TABLE meta")
    before = path.read_bytes()
    who = f"penstock {wrote}" if wrote else "a newer penstock"
    assert refused(path) == (
        f"the store {path} was written by {who} (revision 9999); "
        f"this is penstock {__version__} (revision {HEAD})\n"
        f"{UNCHANGED}\n"
        "Next: upgrade penstock to at least that version"
    )
    assert path.read_bytes() == before


def test_a_directory(tmp_path: Path) -> None:
    assert refused(tmp_path) == (f"the store {tmp_path} is a directory\n{UNCHANGED}\nNext: name a file in it instead")


def test_something_that_is_no_file(path: Path) -> None:
    os.mkfifo(path)
    assert f"the store {path} is not a regular file" in refused(path)


def test_a_path_under_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "store.db"
    assert refused(path) == (
        f"the store {path} cannot be opened or created: not a directory\n"
        f"{UNCHANGED}\n"
        "Next: correct the path of the store"
    )


@pytest.mark.parametrize("there", [True, False])
def test_no_permission(there: bool) -> None:
    # Not in tmp_path, which nobody else may even enter.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.db")
        if there:
            made(path)
            path.chmod(0o444)
        Path(folder).chmod(0o555)
        with powerless():
            message = refused(path)
        Path(folder).chmod(0o755)
    # SQLite's versions differ in who notices first that a file may not be written: SQLite or the system.
    reasons = ["permission denied", "attempt to write a readonly database"][: 1 + there]
    assert message in [
        f"the store {path} cannot be read and written: {reason}\n"
        f"{UNCHANGED}\n"
        "Next: give this user read and write permission on the file and on its folder"
        for reason in reasons
    ]


def test_a_log_without_its_database(path: Path) -> None:
    log = path.with_name("store.db-wal")
    log.write_bytes(b"old")
    assert refused(path) == (
        f"the store {path} is missing, but its log {log} is there\n"
        f"{UNCHANGED}\n"
        "Next: put store.db back beside it; if it is gone for good, delete the log and run "
        "`penstock state recover FILE`, which rebuilds the store from what the sink holds"
    )
    assert not path.exists()


def test_a_file_that_vanishes_is_not_made_again(path: Path) -> None:
    made(path)
    with closing(open_store(str(path))) as store:
        store.close()  # drops its connections: the next read opens the file anew
        path.unlink()
        with pytest.raises(StoreRefused) as error:
            store.streams("shop")
    assert not path.exists()
    assert str(error.value) == (
        f"the store {path} has vanished while it was in use\n"
        f"{UNCHANGED}\n"
        "Next: put it back, or run `penstock state recover FILE`, which rebuilds it from what the sink holds"
    )


def test_a_full_disk(path: Path) -> None:
    def small(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 18").close()

    made(path)
    event.listen(Engine, "connect", small)
    try:
        with closing(open_store(str(path))) as store:
            lease, before = take(store, now=NOW), store.streams("shop")
            with pytest.raises(StoreRefused) as error:
                store.stop(lease, "other", "x" * 100_000, now=NOW)
            assert store.streams("shop") == before
    finally:
        event.remove(Engine, "connect", small)
    assert str(error.value) == (
        f"the store {path} cannot be written: its disk is full\n"
        "Nothing was lost: what was recorded before stays recorded.\n"
        "Next: free some space, then run again"
    )


def test_busy_beyond_patience(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path)
    monkeypatch.setattr(location, "LOCK_WAIT_SECONDS", 0.1)
    with closing(open_store(str(path))) as store, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        store.streams("shop")  # reading goes on
        with pytest.raises(StoreRefused) as error:
            take(store)
    assert str(error.value) == (
        f"the store {path} is busy: another process has been writing to it for more than 0.1 s\n"
        "Nothing was lost: nothing was written.\n"
        "Next: end or continue that process (one stopped with Ctrl-Z keeps its lock), then run again"
    )


@pytest.mark.parametrize("where", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/x"])
def test_a_store_in_memory(where: str) -> None:
    assert refused(where) == (
        "sqlite:// without a path names no file, and a store in memory would forget how far each stream is\n"
        "Nothing was changed.\n"
        "Next: name a file, sqlite:///path or postgresql://user:password@host:port/database"
    )


def test_an_unknown_kind_of_store() -> None:
    assert refused("mysql://me:secret@host/db") == (
        "a store cannot be in mysql://\n"
        "Nothing was changed.\n"
        "Next: name a file, sqlite:///path or postgresql://user:password@host:port/database"
    )
