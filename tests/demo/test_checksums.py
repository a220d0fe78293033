"""The comparison: a real shop against the files that penstock has made of it, whole and spoilt in every way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest
from demo.acts import table_of
from demo.checksums import Agreement, Connection, agreement, in_files
from demo.folder import Folder
from demo.shop import ORDERS, fill
from tests.harness.faults import Command
from tests.harness.postgres import PostgresServer


@pytest.fixture(scope="module")
def shop(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The shop's URL, and the archive that was made of it: three slices, of which the last brings changes."""
    folder = Folder(tmp_path_factory.mktemp("demo"))
    url = fill(postgres_server, 16000)
    folder.clear()
    command = Command(folder.path, "loop", {"DATABASE_URL": url})
    assert command.run("run", "shop.yaml", "archive").code == 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE orders SET status = 'returned' WHERE id <= 100")
    assert command.run("run", "shop.yaml", "archive").code == 0
    yield url, folder.archive
    postgres_server.drop("shop")


@pytest.fixture
def archive(shop: tuple[str, Path], tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copytree(shop[1], tmp_path / "archive"))


@pytest.fixture
def connection(shop: tuple[str, Path]) -> Iterator[Connection]:
    with psycopg.connect(shop[0], autocommit=True) as connection:
        yield connection


def compared(connection: Connection, archive: Path) -> Agreement:
    return agreement(connection, ORDERS, "archive", in_files(archive, ORDERS))


def slices(archive: Path) -> list[Path]:
    return sorted((archive / "orders").glob("*.parquet"))


def test_what_was_delivered_agrees_by_number_and_checksum(connection: Connection, archive: Path) -> None:
    found = compared(connection, archive)
    assert len(slices(archive)) == 3
    assert found.same
    assert (found.rows, found.rows_in_sink, found.twice, found.differs) == (16000, 16000, 0, "")
    assert found.checksum == found.checksum_in_sink


def test_a_file_that_is_gone_is_missed(connection: Connection, archive: Path) -> None:
    gone = slices(archive)[1]
    rows = pq.read_metadata(gone).num_rows
    gone.unlink()
    found = compared(connection, archive)
    assert not found.same
    assert found.rows_in_sink == 16000 - rows
    assert found.differs.startswith(f"{rows:,} missing from the sink (")


def test_changes_that_are_gone_are_told_as_different(connection: Connection, archive: Path) -> None:
    slices(archive)[2].unlink()
    found = compared(connection, archive)
    assert not found.same
    assert found.rows_in_sink == 16000
    assert found.differs.startswith("100 different (")


def test_a_file_that_is_there_twice_is_counted(connection: Connection, archive: Path) -> None:
    last = slices(archive)[-1]
    shutil.copy(last, last.with_name("00000009-again.parquet"))
    found = compared(connection, archive)
    assert not found.same
    assert (found.twice, found.differs) == (100, "")


def test_a_single_value_that_differs_is_named_by_its_key(connection: Connection, archive: Path) -> None:
    connection.execute("BEGIN")
    connection.execute("ALTER TABLE orders DISABLE TRIGGER touch")
    connection.execute("UPDATE orders SET amount = amount + 0.01 WHERE id = 4711")
    found = compared(connection, archive)
    connection.execute("ROLLBACK")
    assert found.differs == "1 different (4711)"


def test_a_row_that_the_source_does_not_have_is_told(connection: Connection, archive: Path) -> None:
    connection.execute("BEGIN")
    connection.execute("DELETE FROM orders WHERE id = 4711")
    found = compared(connection, archive)
    connection.execute("ROLLBACK")
    assert found.differs == "1 unknown to the source (4711)"


def test_both_sides_stand_side_by_side_and_a_difference_is_seen() -> None:
    same = Agreement("orders", "lake", 1234, 1234, "a" * 32, "a" * 32, 0, "")
    other = Agreement("events", "report", 1234, 1233, "b" * 32, "c" * 32, 7, "1 missing from the sink (5)")
    assert table_of([same, other]).splitlines()[1:] == [
        f"    orders       lake         1,234 rows {'a' * 16}  =     1,234 rows {'a' * 16}      0",
        f"    events       report       1,234 rows {'b' * 16}  ≠     1,233 rows {'c' * 16}      7",
    ]
