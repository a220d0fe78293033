"""The look at a table without PyIceberg: catalogs and documents that are missing, damaged, locked or just replaced."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.lake.lake_runs import World, rows

from penstock.errors import ConnectionFailed, InputError
from penstock.lake import metadata as looking
from penstock.lake.metadata import list_tables, read_state


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A lake with one table."""
    made = World(tmp_path, {})
    made.land(rows(1, 2))
    return made


def located(world: World, to: str | None = None) -> Path:
    """The table's document by the catalog's row, which may be pointed elsewhere first."""
    with closing(sqlite3.connect(world.lake.uri)) as db, db:
        if to is not None:
            db.execute("update iceberg_tables set metadata_location = ?", (to,))
        (found,) = db.execute("select metadata_location from iceberg_tables").fetchone()
    return Path(found.removeprefix("file://"))


def test_a_table_and_none(world: World) -> None:
    state = read_state(world.lake, "s")
    assert state is not None
    assert state.head >= 2
    assert read_state(world.lake, "t") is None
    assert list_tables(world.lake) == ["s"]


def test_no_catalog_yet_and_none_is_made(tmp_path: Path) -> None:
    world = World(tmp_path, {})
    assert read_state(world.lake, "s") is None
    assert list_tables(world.lake) == []
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_without_its_tables(tmp_path: Path) -> None:
    world = World(tmp_path, {"catalog": {"uri": "empty.db"}})
    with closing(sqlite3.connect(tmp_path / "empty.db")) as db:
        db.execute("create table other (x)")
    assert read_state(world.lake, "s") is None
    assert list_tables(world.lake) == []


def test_a_damaged_catalog_is_not_taken_for_an_empty_one(world: World) -> None:
    Path(world.lake.uri).write_bytes(b"not a database, whatever it was before" * 100)
    for ask in (lambda: read_state(world.lake, "s"), lambda: list_tables(world.lake)):
        with pytest.raises(InputError, match=r"the catalog .*catalog\.db cannot be read") as refused:
            ask()
        assert "from a copy" in refused.value.next_step


def test_a_folder_in_the_place_of_the_catalog(world: World) -> None:
    Path(world.lake.uri).unlink()
    Path(world.lake.uri).mkdir()
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        read_state(world.lake, "s")


@contextmanager
def locked(world: World) -> Iterator[sqlite3.Connection]:
    """Someone else who writes to the catalog."""
    with closing(sqlite3.connect(world.lake.uri, check_same_thread=False, isolation_level=None)) as other:
        other.execute("begin exclusive")
        yield other


def test_a_locked_catalog_is_waited_for(world: World) -> None:
    with locked(world) as other:
        release = threading.Timer(0.5, lambda: other.execute("commit"))
        release.start()
        assert read_state(world.lake, "s") is not None
        release.join()


def test_a_catalog_that_stays_locked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "CATALOG_LOCK_SECONDS", 0.2)
    with locked(world), pytest.raises(ConnectionFailed, match=r"the catalog 'lake' .* cannot be reached: .*locked"):
        read_state(world.lake, "s")


def test_a_document_that_is_gone(world: World) -> None:
    located(world).unlink()
    with pytest.raises(InputError, match=r"the catalog 'lake' names file://.*metadata\.json, which cannot be read"):
        read_state(world.lake, "s")


def test_a_document_that_may_not_be_read(world: World) -> None:
    document = located(world)
    document.unlink()
    document.mkdir()
    with pytest.raises(InputError, match="which cannot be read: Is a directory"):
        read_state(world.lake, "s")


def test_a_damaged_document(world: World) -> None:
    for text in (b"", b'{"format-version"', b"\x1f\x8bnot gzip", b"[]"):
        located(world).write_bytes(text)
        with pytest.raises(InputError, match=r"metadata\.json, which cannot be read"):
            read_state(world.lake, "s")


def test_a_compressed_document(world: World) -> None:
    plain = located(world)
    before = read_state(world.lake, "s")
    packed = plain.with_name("packed.gz.metadata.json")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    located(world, to=f"file://{packed}")
    plain.unlink()
    found = read_state(world.lake, "s")
    assert found is not None
    assert before is not None
    assert found.properties == before.properties


@pytest.mark.parametrize("spelling", ["file://{}", "file:{}", "{}"])
def test_a_document_s_address_as_others_spell_it(world: World, spelling: str) -> None:
    located(world, to=spelling.format(located(world)))
    assert read_state(world.lake, "s") is not None


def test_a_document_that_is_replaced_and_removed_before_it_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, read = located(world), looking.read
    new = old.with_name("new.metadata.json")
    moved: list[Path] = []

    def meanwhile(place: object, location: str) -> bytes:
        if not moved:  # a commit between the look at the catalog and the look at the document
            shutil.move(old, new)
            moved.append(located(world, to=f"file://{new}"))
        return read(world.lake, location)

    monkeypatch.setattr(looking, "read", meanwhile)
    state = read_state(world.lake, "s")
    assert state is not None
    assert state.head >= 2
    assert moved == [new]


def test_a_catalog_that_never_stands_still_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read, looks = looking.read, []

    def gone(place: object, location: str) -> bytes:
        looks.append(location)
        located(world, to=f"{location}.next")
        return read(world.lake, f"{location}.gone")

    monkeypatch.setattr(looking, "read", gone)
    with pytest.raises(InputError, match="which cannot be read"):
        read_state(world.lake, "s")
    assert len(looks) == 5


def test_a_peek_imports_neither_pyiceberg_nor_arrow(world: World) -> None:
    program = (
        "import sys\n"
        "from penstock.lake.options import LakeOptions\n"
        "from penstock.lake.metadata import read_state\n"
        "from penstock.lake.lake import Lake\n"
        "standing = read_state(Lake.from_options(LakeOptions(), folder=sys.argv[1], pipeline='in'), 's')\n"
        "print(standing.head, sorted({'pyiceberg', 'pyarrow', 'pyspark', 'psycopg'} & set(sys.modules)))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(world.folder)], capture_output=True, text=True, check=True, timeout=60
    )
    state = read_state(world.lake, "s")
    assert state is not None
    assert said.stdout == f"{state.head} []\n"


def test_a_catalog_that_a_process_was_killed_while_writing(world: World) -> None:
    """Its journal is still there, and must be taken back before anyone can read: one who only reads may not."""
    before = located(world)
    program = (
        "import os, signal, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('pragma cache_size = 5')\n"
        "db.execute('begin')\n"
        "db.execute('update iceberg_tables set metadata_location = ?', ('half',))\n"
        "db.execute('create table junk (x)')\n"
        "db.executemany('insert into junk values (?)', [('x' * 4000,)] * 200)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, world.lake.uri], check=False)
    assert killed.returncode == -9
    assert Path(f"{world.lake.uri}-journal").exists()
    assert list_tables(world.lake) == ["s"]
    assert located(world) == before
    assert read_state(world.lake, "s") is not None
