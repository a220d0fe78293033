"""What every room's tests may ask for: a real PostgreSQL server, an empty database on it, and a real S3 server."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.testing.postgres import PostgresServer
from penstock.testing.s3 import S3Server

# Every test that runs Spark would have an archive of its classes made behind it. A test of archives sets this itself.
os.environ.setdefault("PENSTOCK_ARCHIVES", "off")

#: files that take minutes, the longest first: begun last, each would keep the others' workers waiting for it
LONG = (
    "demo/test_whole.py",
    "engine/test_machine.py",
    "acceptance/test_kill.py",
    "contracts/test_sink.py",
    "engine/test_crash_matrix.py",
    "soak/test_lake.py",
    "acceptance/test_init.py",
    "lake/test_catalogs.py",
    "docs/test_examples.py",
    "api/test_read.py",
    "lake/test_conflicts.py",
    "engine/test_lake_machine.py",
    "engine/test_postgres_machine.py",
    "acceptance/test_undo_kill.py",
    "acceptance/test_lake_kill.py",
    "acceptance/test_postgres_kill.py",
    "acceptance/test_lake_failures.py",
    "acceptance/test_postgres_freeze.py",
    "docs/test_walks.py",
    "house/test_benchmarks.py",
    "acceptance/test_first_load.py",
    "acceptance/test_late_commits.py",
    "spark/test_mover.py",
    "acceptance/test_bad_input.py",
    "lake/upkeep/test_compaction.py",
    "lake/test_plain_readers.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; apart from that the order stays."""
    top = Path(__file__).parent
    place = {top / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole session; roles and settings that a test changes outlive the test."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, empty database, which is dropped afterwards whoever is still connected."""
    url = postgres_server.database()
    yield url
    postgres_server.drop(urlsplit(url).path.removeprefix("/"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for the whole session; a test makes buckets of its own."""
    with S3Server() as server:
        yield server
