"""The pages on Python and on orchestration: every snippet is run, and the examples are carried out for real."""

from __future__ import annotations

import configparser
import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from tests.acceptance.shop import Shop
from tests.docs.pages import TOP, blocks
from tests.harness.command import START
from tests.harness.doubles import FIND_TESTS, LoopMover
from tests.plain_spark import small_spark

from penstock import wiring
from penstock.ports import Owner

PYTHON, ORCHESTRATION = TOP / "docs" / "python.md", TOP / "docs" / "orchestration.md"
EXAMPLES = TOP / "examples"


@pytest.fixture
def shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Three thousand orders of 97 customers."""
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.setattr(wiring, "make_mover", lambda _house: LoopMover())
    made = Shop.open(database, tmp_path)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("create table customers as select g as id, 'name ' || g as name from generate_series(0, 96) g")
        db.execute("alter table customers add primary key (id)")
    return made


# ---------------------------------------------------------------- docs/python.md

SNIPPETS = {
    "penstock.sync(": "3000 rows delivered",
    "penstock.run(": "orders: slice 1, ",
    "groupBy(": "|customer_id|count|",
    "customers.id": "3000",
}


#: goes before a snippet that only moves rows: without Spark, it is done in a third of the time
LOOP = (
    FIND_TESTS
    + """
from penstock import wiring
from tests.harness.doubles import LoopMover
wiring.make_mover = lambda spark_provider: LoopMover()
"""
)
#: one after the other, each with names of its own, as if it were alone
ONE_BY_ONE = "import sys\nfor code in sys.argv[1:]: exec(code, {})"


@pytest.mark.parametrize("snippets", [["penstock.sync("], ["penstock.run("], ["groupBy(", "customers.id"]])
def test_snippets_do_what_the_page_says(shop: Shop, snippets: list[str]) -> None:
    """Those that need Spark in one process, where the second finds the session of the first."""
    codes = [block.text for about in snippets for block in blocks(PYTHON, "python") if about in block.text]
    assert len(codes) == len(snippets)
    before = LOOP if snippets[0].startswith("penstock.") else ""
    done = subprocess.run(
        [sys.executable, "-c", before + ONE_BY_ONE, *codes],
        cwd=shop.folder,
        env={
            **os.environ,
            **small_spark(shop.folder / "conf"),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for about in snippets:
        assert SNIPPETS[about] in done.stdout
    if "customers.id" in snippets:
        assert list((shop.folder / "copies").iterdir()) == []


def test_every_snippet_of_the_page_is_run() -> None:
    for block in blocks(PYTHON, "python"):
        assert [about for about in SNIPPETS if about in block.text], str(block)
    assert len(blocks(PYTHON)) == len(SNIPPETS)


# ---------------------------------------------------------------- docs/orchestration.md


def test_the_page_shows_the_examples_as_they_are() -> None:
    shown = {block.text for block in blocks(ORCHESTRATION)}
    names = (
        "shop.yaml",
        "penstock.env",
    )
    assert shown == {(EXAMPLES / name).read_text() for name in names}


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_airflow_task_syncs_for_real(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's decorators are stood in for; what they decorate is called as it is."""
    found: dict[str, Any] = {}

    def task(**options: Any) -> Callable[[Callable[[], int]], Callable[[], None]]:
        def decorate(function: Callable[[], int]) -> Callable[[], None]:
            found["task"], found["options"] = function, options
            return lambda: found.update(used=True)

        return decorate

    def dag(**options: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        found["dag"] = options
        return lambda function: function

    sdk = ModuleType("airflow.sdk")
    sdk.dag, sdk.task = dag, task  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    monkeypatch.setenv("SHOP_FILE", str(shop.folder / "shop.yaml"))
    loaded("airflow_dag")
    assert (found["used"], found["dag"]["catchup"], found["options"]["retries"]) == (True, False, 3)
    assert found["task"]() == 3000
    assert found["task"]() == 0
    assert shop.compared().same


class Told:
    """Anything that Dagster makes of its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs
        self.lines: list[str] = []

    @property
    def log(self) -> Told:
        return self

    def info(self, line: str) -> None:
        self.lines.append(line)


def test_the_dagster_asset_syncs_for_real(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's decorators are stood in for; what they decorate is called as it is."""
    dagster: Any = ModuleType("dagster")
    dagster.asset = lambda **_: lambda function: function
    for name in ("RetryPolicy", "AssetExecutionContext", "MaterializeResult", "Definitions", "ScheduleDefinition"):
        setattr(dagster, name, Told)
    dagster.define_asset_job = Told
    monkeypatch.setitem(sys.modules, "dagster", dagster)
    monkeypatch.setenv("SHOP_FILE", str(shop.folder / "shop.yaml"))
    module: Any = loaded("dagster_job")
    context = Told()
    result = module.shop(context)
    assert result.kwargs == {"metadata": {"rows": 3000, "has_more": False}}
    assert context.lines[0].startswith("orders: slice 1, ")
    assert shop.compared().same


def through_sh(shop: Shop, command: str) -> int:
    """A line, as a scheduler's shell runs it: without an environment, penstock in the folder's own `.venv`."""
    binary = shop.folder / ".venv" / "bin"
    binary.mkdir(parents=True, exist_ok=True)
    start = shlex.join([*START, '{"mover": "loop"}'])
    (binary / "penstock").write_text(f'#!/bin/sh\nexec {start} "$@"\n')
    (binary / "penstock").chmod(0o755)
    (shop.folder / "penstock.env").write_text(f"DATABASE_URL={shop.url}\n")
    line = command.replace("/srv/shop", str(shop.folder))
    return subprocess.run(["/usr/bin/env", "-i", "/bin/sh", "-c", line], cwd=shop.folder, check=False).returncode


def hold(shop: Shop) -> Callable[[], None]:
    """Somebody else runs the pipeline, as far as anyone can tell."""
    store = wiring.open_store(wiring.load(str(shop.folder / "shop.yaml")))
    now = wiring.SystemClock().now()
    owner = Owner("other", "elsewhere", 1)
    lease = store.acquire("shop", owner, now=now, ttl=timedelta(hours=1).total_seconds(), gone=lambda _: False)

    def let_go() -> None:
        store.release(lease)
        store.close()

    return let_go


def cron_command() -> str:
    (line,) = [line for line in (EXAMPLES / "crontab").read_text().splitlines() if not line.startswith("#")]
    assert line.startswith("*/10 * * * * ")
    return line.split(" ", 5)[5]


def test_the_cron_line(shop: Shop) -> None:
    command = cron_command()
    let_go = hold(shop)
    assert through_sh(shop, command) == 0, "that another run is at work is no failure"
    assert "holds the pipeline" in (shop.folder / "penstock.log").read_text()
    let_go()
    assert through_sh(shop, command) == 0
    assert shop.compared().same
    (shop.folder / "shop.yaml").write_text("pipelines: {}")
    assert through_sh(shop, command) != 0, "a failure is one"


def test_the_systemd_units(shop: Shop) -> None:
    def unit(name: str) -> configparser.ConfigParser:
        parser = configparser.ConfigParser(interpolation=None)
        parser.optionxform = str  # type: ignore[assignment]  # the documented way to keep the case of keys
        parser.read(EXAMPLES / "systemd" / name)
        return parser

    service = unit("penstock-shop.service")["Service"]
    assert unit("penstock-shop.timer")["Timer"]["OnUnitInactiveSec"] == "10min"
    let_go = hold(shop)
    assert str(through_sh(shop, service["ExecStart"])) in service["SuccessExitStatus"].split()
    let_go()
    assert through_sh(shop, service["ExecStart"]) == 0
    assert shop.compared().same
