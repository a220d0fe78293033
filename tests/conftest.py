"""What every room's tests may ask for: a real PostgreSQL server, an empty database on it, and a real S3 server."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.links.spark.house import SparkHouse
from penstock.links.spark.shared import SharedSpark
from penstock.testing.postgres import PostgresServer
from penstock.testing.s3 import S3Server
from penstock.testing.spark import house_on, shared_spark

# The archives that script/test has made are used. No test has one made behind it; a test of archives sets this itself.
os.environ.setdefault("PENSTOCK_TRAINING", "off")

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


#: the tests that use the fixture of this name run in one process
SHARED_JVM = "shared_jvm"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; apart from that the order stays. A file's tests stay in one process.

    All files with a test on the shared Spark stay together, so that it is started once.
    """
    top = Path(__file__).parent
    place = {top / name: number for number, name in enumerate(LONG)}
    together = {item.path for item in items if SHARED_JVM in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (item.path not in together, place.get(item.path, len(LONG))))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(SHARED_JVM if item.path in together else str(item.path)))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the shared Spark before the files that do not use it: some start their own, or see that there is none."""
    if _group(item) == SHARED_JVM and (nextitem is None or _group(nextitem) != SHARED_JVM):
        _SHARED.end()


def _group(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker is not None else None


#: the Spark behind `shared_jvm`
_SHARED = shared_spark()


@pytest.fixture(scope="session")
def shared_jvm() -> SharedSpark:
    """One JVM for every module that uses `house`, ended after the last of them."""
    return _SHARED


@pytest.fixture(scope="module")
def house(shared_jvm: SharedSpark) -> Iterator[SparkHouse]:
    """A Spark session of the module's own, on the JVM that such modules share; the first that asks starts it."""
    house = house_on(shared_jvm)
    yield house
    house.close()


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
