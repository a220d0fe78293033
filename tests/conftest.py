"""What every room's tests may ask for: a real PostgreSQL server, an empty database on it, and a real S3 server."""

import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main
import typer.testing
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.links.spark.shared import SharedSpark
from tests.harness.postgres import PostgresServer
from tests.harness.statements import share_compiled
from tests.s3 import S3Server
from tests.shared_jvm import provider_on, shared_spark

# The archives that script/test has made are used. No test has one made behind it; a test of archives sets this itself.
os.environ.setdefault("PENSTOCK_TRAINING", "off")

# The same examples in every run: a landing does not hang on a draw. `script/soak suite` searches among new ones.
settings.register_profile("same", derandomize=True)
if "PENSTOCK_SEARCH" not in os.environ:
    settings.load_profile("same")

# Half a thousand modules are imported next, of which nothing is garbage.
gc.disable()

# Typer builds all commands anew whenever one is called, a third of the time of a short one.
_build_once = cache(typer.main.get_command)
for _where, _name in ((typer.main, "get_command"), (typer.testing, "_get_command")):
    setattr(_where, _name, _build_once)

share_compiled()

#: files that take over twenty seconds, the longest first: one begun last would keep the other workers waiting
LONG = (
    "acceptance/test_stripe_live.py",
    "verify/test_list_kill.py",
    "warm/test_on_spark.py",
    "acceptance/test_postgres_kill.py",
    "api/test_read.py",
    "api/test_read_gathered.py",
    "docs/test_walks.py",
    "acceptance/test_what_was_there_source.py",
    "contracts/test_postgres_sink.py",
    "warm/test_detached.py",
    "engine/test_lake_machine.py",
    "acceptance/test_rest_sinks.py",
    "verify/test_repair_kill.py",
    "acceptance/test_rest_takeover.py",
    "verify/test_lists.py",
    "contracts/test_source.py",
    "spark/test_shared.py",
    "verify/test_misuse.py",
    "links/test_http.py",
    "acceptance/test_rest.py",
    "acceptance/test_rest_changes.py",
    "acceptance/test_what_was_there_postgres.py",
    "cli/test_init_api.py",
    "acceptance/test_rest_kill.py",
    "verify/test_repair.py",
    "demo/test_folder.py",
    "acceptance/test_lake_kill.py",
    "contracts/test_store.py",
    "shaping/test_contract.py",
    "cli/test_command.py",
    "warm/test_chaos.py",
    "house/test_benchmarks.py",
    "api/test_run.py",
    "acceptance/test_what_was_there_open.py",
    "acceptance/test_undo_kill.py",
    "cli/test_completion.py",
    "soak/test_lake.py",
    "verify/test_find_deletes.py",
    "spark/test_archive_of_java.py",
    "sources/test_postgres_wide.py",
)


#: files with tests that use the fixture `shared_jvm`: they run in one process, so that it is started once
ON_SHARED_JVM = (
    "acceptance/test_drift.py",
    "acceptance/test_stripe_lake.py",
    "acceptance/test_what_was_there_lake.py",
    "acceptance/test_what_was_there_lake_source.py",
    "contracts/test_sink.py",
    "lake/test_catalogs.py",
    "lake/test_conflicts.py",
    "lake/test_folding.py",
    "lake/test_foreign.py",
    "lake/test_merging.py",
    "lake/test_plain_readers.py",
    "lake/test_planning.py",
    "lake/test_state_tables.py",
    "lake/upkeep/test_compaction.py",
    "lake/upkeep/test_tombstones.py",
    "soak/test_foreign.py",
    "sources/outbox/test_into_lake.py",
    "verify/test_lake.py",
    "verify/test_list_lake.py",
)
_TOP = Path(__file__).parent


class _Files(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives a process whole files, and one process all files on the shared Spark."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0].removeprefix(f"{_TOP.name}/")
        return "shared JVM" if file in ON_SHARED_JVM else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Files:
    return _Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files on the shared Spark first, then those that take long; apart from that the order stays."""
    for item in items:
        if "shared_jvm" in getattr(item, "fixturenames", ()) and not _on_shared_jvm(item):
            raise pytest.UsageError(f"{item.path} uses `shared_jvm`: name it in ON_SHARED_JVM")
    place = {_TOP / name: number for number, name in enumerate((*ON_SHARED_JVM, *LONG))}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through thousands of tests and all modules again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the shared Spark before the files that do not use it: some start their own, or see that there is none."""
    if _on_shared_jvm(item) and (nextitem is None or not _on_shared_jvm(nextitem)):
        _SHARED.end()


def _on_shared_jvm(item: pytest.Item) -> bool:
    return item.path.is_relative_to(_TOP) and item.path.relative_to(_TOP).as_posix() in ON_SHARED_JVM


#: the Spark behind `shared_jvm`
_SHARED = shared_spark()


@pytest.fixture(scope="session")
def shared_jvm() -> SharedSpark:
    """One JVM for every module that uses `spark_provider`, ended after the last of them."""
    return _SHARED


@pytest.fixture(scope="module")
def spark_provider(shared_jvm: SharedSpark) -> Iterator[SparkSessionProvider]:
    """A Spark session of the module's own, on the JVM that such modules share; the first that asks starts it."""
    spark_provider = provider_on(shared_jvm)
    yield spark_provider
    spark_provider.close()


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
