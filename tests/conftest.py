"""What every room's tests may ask for: a real PostgreSQL server, an empty database on it, and a real S3 server."""

import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain
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

#: files that take over eight seconds, the longest first: one begun last would keep the other workers waiting
LONG = (
    "acceptance/test_state_kill.py",
    "contracts/test_source.py",
    "acceptance/test_stripe_live.py",
    "spark/test_archive_of_java.py",
    "warm/test_chaos.py",
    "acceptance/test_http_kill.py",
    "acceptance/test_lake_kill.py",
    "acceptance/test_what_was_there_postgres.py",
    "verify/test_list_kill.py",
    "acceptance/test_outbox_kill.py",
    "acceptance/test_postgres_kill.py",
    "acceptance/test_kill.py",
    "contracts/test_postgres_sink.py",
    "acceptance/test_rest_kill.py",
    "warm/test_on_spark.py",
    "acceptance/test_http.py",
    "acceptance/test_outbox_load_kill.py",
    "acceptance/test_what_was_there_source.py",
    "acceptance/test_ties.py",
    "soak/test_lake.py",
    "api/test_read.py",
    "acceptance/test_rest_sinks.py",
    "cli/display/test_terminal.py",
    "docs/test_walks.py",
    "acceptance/test_rest_changes.py",
    "acceptance/test_init.py",
    "acceptance/test_rest.py",
    "verify/test_repair_kill.py",
    "api/test_read_gathered.py",
    "acceptance/test_what_was_there_wal.py",
    "demo/test_folder.py",
    "shaping/test_contract.py",
    "verify/test_misuse.py",
    "acceptance/test_what_was_there_open.py",
    "verify/test_repair.py",
    "verify/test_find_deletes.py",
    "config/test_fuzz.py",
    "spark/test_shared.py",
    "acceptance/test_first_load.py",
    "sources/test_postgres_wide.py",
    "acceptance/test_bad_input.py",
    "verify/test_lists.py",
    "acceptance/test_lake_failures.py",
    "api/test_run.py",
    "contracts/test_mover.py",
    "contracts/test_store.py",
    "acceptance/test_rest_takeover.py",
    "acceptance/test_signals.py",
    "acceptance/test_rest_providers.py",
    "warm/test_detached.py",
    "acceptance/test_what_was_there_files.py",
    "acceptance/test_migrate.py",
    "acceptance/test_slow_commits.py",
    "acceptance/test_wal_kill.py",
    "acceptance/test_late_commits.py",
    "cli/test_completion.py",
)


#: files with tests that use the fixture `shared_jvm`, by process: each starts one JVM for all of its files. Both begin
#: first and take about as long: a third would need the memory that the other tests' JVMs have.
ON_SHARED_JVM = (
    (
        "lake/test_state_tables.py",
        "lake/test_folding.py",
        "contracts/test_sink.py",
        "sources/outbox/test_into_lake.py",
        "lake/test_plain_readers.py",
        "lake/test_planning.py",
        "soak/test_foreign.py",
        "verify/test_lake.py",
        "verify/test_list_lake.py",
    ),
    (
        "acceptance/test_drift.py",
        "acceptance/test_stripe_lake.py",
        "acceptance/test_what_was_there_lake.py",
        "acceptance/test_what_was_there_lake_source.py",
        "lake/test_catalogs.py",
        "lake/test_conflicts.py",
        "lake/test_foreign.py",
        "lake/test_merging.py",
        "lake/upkeep/test_compaction.py",
        "lake/upkeep/test_tombstones.py",
    ),
)
_TOP = Path(__file__).parent
_JVM_OF = {name: number for number, names in enumerate(ON_SHARED_JVM) for name in names}


class _Files(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives a process whole files, and all files on a shared Spark to one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0].removeprefix(f"{_TOP.name}/")
        return f"shared JVM {_JVM_OF[file]}" if file in _JVM_OF else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Files:
    return _Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files on the shared Spark first, then those that take long; apart from that the order stays."""
    for item in items:
        if "shared_jvm" in getattr(item, "fixturenames", ()) and not _on_shared_jvm(item):
            raise pytest.UsageError(f"{item.path} uses `shared_jvm`: name it in ON_SHARED_JVM")
    place = {_TOP / name: number for number, name in enumerate((*_JVM_OF, *LONG))}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through thousands of tests and all modules again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long the tests of each folder took together, if there are several."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.removeprefix(f"{_TOP.name}/").split("/", 1)[0]] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("seconds by folder")
        for folder, each in sorted(seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{each:8.0f}  {folder}")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the shared Spark before the files that do not use it: some start their own, or see that there is none."""
    if _on_shared_jvm(item) and (nextitem is None or not _on_shared_jvm(nextitem)):
        _SHARED.end()


def _on_shared_jvm(item: pytest.Item) -> bool:
    return item.path.is_relative_to(_TOP) and item.path.relative_to(_TOP).as_posix() in _JVM_OF


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
