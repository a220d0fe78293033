"""The instruments of `script/bench cold` and `cold_phases`: the older checkout, the turns, the worker, the verdict."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import _archive, _before, _worker, cold, cold_phases, tick
from benchmarks import _orders as orders
from benchmarks._contenders import Ground
from benchmarks._processes import Cost
from benchmarks._starts import Cold

# ---------------------------------------------------------------- the older checkout


def git(folder: Path, *words: str) -> str:
    named = ["-c", "user.name=penstock", "-c", "user.email=penstock@localhost", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *named, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, version: str) -> str:
    """Commit a package of this version; the commit's id."""
    (folder / "src" / "penstock").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "penstock" / "__main__.py").write_text(f"print('version {version}')\n")
    (folder / "src" / "penstock" / "__init__.py").touch()
    (folder / "requirements.lock").touch()
    (folder / ".gitignore").write_text("__pycache__/\n/.bench/\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", version)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> tuple[Path, str]:
    """A clone with two commits, and the id of the first."""
    top = tmp_path / "clone"
    top.mkdir()
    git(top, "init", "--quiet")
    first = commit(top, "1")
    commit(top, "2")
    return top, first


def version_of(found: _before.Before, folder: Path) -> str:
    return orders.run_once([found.python, "-m", "penstock"], found.environment(os.environ), folder).strip()


def test_the_older_commit_runs_its_own_code(clone: tuple[Path, str]) -> None:
    top, first = clone
    assert version_of(_before.before(top, first), top) == "version 1"
    checkout = top / _before.FOLDER
    made = (checkout / ".git").stat().st_mtime_ns
    assert version_of(_before.before(top, first), top) == "version 1"
    assert (checkout / ".git").stat().st_mtime_ns == made, "it is made once"


def test_a_checkout_that_was_changed_or_removed_is_made_again(clone: tuple[Path, str]) -> None:
    top, first = clone
    main = _before.before(top, first).source / "penstock" / "__main__.py"
    main.write_text("print('changed')\n")
    assert version_of(_before.before(top, first), top) == "version 1"
    shutil.rmtree(top / _before.FOLDER)
    assert version_of(_before.before(top, first), top) == "version 1"


def test_a_shallow_clone_is_told_what_to_do(clone: tuple[Path, str], tmp_path: Path) -> None:
    top, first = clone
    git(tmp_path, "clone", "--quiet", "--depth", "1", top.as_uri(), "shallow")
    with pytest.raises(SystemExit, match=rf"does not hold commit {first}(.|\n)*git fetch --unshallow"):
        _before.before(tmp_path / "shallow", first)


# ---------------------------------------------------------------- turns


class Taker:
    """Takes the ids that it has not seen."""

    def __init__(self, ground: Ground, name: str, _stack: ExitStack) -> None:
        self.url, self.landed, self.seen = ground.url, ground.folder / name, 0
        self.landed.mkdir()

    def take(self) -> Cost:
        with psycopg.connect(self.url) as connection:
            ids = [id_ for (id_,) in connection.execute("SELECT id FROM orders WHERE id > %s", [self.seen])]
        self.seen += len(ids)
        pq.write_table(pa.table({"id": ids}), self.landed / f"{self.seen}.parquet")
        return Cost(1.0, 1.0, 1.0)


class Doubling(Taker):
    """Takes as many rows as it should, the wrong ones."""

    def take(self) -> Cost:
        cost = super().take()
        newest = max(self.landed.iterdir(), key=lambda path: int(path.stem))
        rows = pq.read_table(newest).num_rows
        pq.write_table(pa.table({"id": list(range(rows))}), newest)
        return cost


def test_ticks_and_loads_are_told_apart(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "PAUSE", 0)
    monkeypatch.setattr(cold, "TAKERS", {"before": Taker, "cold": Taker})
    orders.make_orders(database, 100)
    ground = Ground(database, tmp_path, rows=100, runs=2)
    costs = cold.ticks(ground, ["before_1000", "cold_1000", "before_5m", "cold_5m", "dlt_5m"])
    assert {name: len(each) for name, each in costs.items()} == {"before_1000": 2, "cold_1000": 2, "before_5m": 1}


def test_rows_that_came_otherwise_end_it(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "PAUSE", 0)
    monkeypatch.setattr(cold, "TAKERS", {"cold": Doubling})
    orders.make_orders(database, 100)
    with pytest.raises(SystemExit, match="cold was to bring out 2,100 rows"):
        cold.ticks(Ground(database, tmp_path, rows=100, runs=1), ["cold_1000"])


# ---------------------------------------------------------------- archive and worker


def test_an_archive_in_the_making_is_noticed() -> None:
    name = f"penstock.test.{os.getpid()}"
    with subprocess.Popen([sys.executable, "-c", "input()", name], stdin=subprocess.PIPE) as process:
        assert _archive.making(name)
        process.communicate(b"\n")
    assert not _archive.making(name)


def test_a_run_that_was_not_handed_over_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([0, 1, 1])
    asked = []

    def answer(command: list[str], _env: dict[str, str], _folder: Path) -> str:
        asked.append(command[1:])
        return json.dumps({"worker": {"pid": 7, "runs": next(runs, 0)}})

    monkeypatch.setattr(orders, "run_once", answer)
    with _worker.Worker(tmp_path / "shop.yaml", {}) as worker:
        worker.must_have_run("")
        with pytest.raises(SystemExit, match="not used: busy"):
            worker.must_have_run("not used: busy")
    assert asked[-1] == ["warm", "shop.yaml", "--stop", "--json"]


# ---------------------------------------------------------------- phases

#: stand-ins for the command and for PySpark: a start that does what a real one does, in its order
COMMAND = """
import datetime, json, os, socket, sqlite3, subprocess, sys, time
def say(**message):
    print(json.dumps({**message, "_ts": datetime.datetime.now(datetime.UTC).isoformat()}))
def main():
    assert sys.argv[1:] == ["run", "shop.yaml", "shop", "--json"]
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname())
    sqlite3.connect(":memory:")
    subprocess.run(["true", "java", "-version"])
    socket.create_connection(server.getsockname())
    open("milestones", "a").write(f"asked {time.time():.6f}\\n")
    subprocess.run(["true", os.environ["GATEWAY"]])
    socket.create_connection(server.getsockname())
    from pyspark.sql.session import SparkSession
    SparkSession()
    say(type="progress", step="move")
    SparkSession()
    say(type="state")
"""
SESSION = """
class SparkSession:
    def __init__(self): pass
"""


@pytest.mark.parametrize("gateway", ["pyspark-shell", "org.apache.spark.api.python.PythonGatewayServer"])
def test_milestones_are_noticed_once_and_in_their_order(tmp_path: Path, gateway: str) -> None:
    for path, text in {"penstock/cli.py": COMMAND, "pyspark/sql/session.py": SESSION}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).parent.joinpath("__init__.py").touch()
        (tmp_path / path).write_text(text)
    (tmp_path / "pyspark" / "__init__.py").touch()
    taker = Cold(Ground("", tmp_path, rows=1, runs=1), "now", ExitStack())
    taker.env |= {"PYTHONPATH": str(tmp_path), "GATEWAY": gateway}
    found = cold_phases.measured(taker)
    assert list(found) == list(cold_phases.ENDS)
    assert min(found.values()) > 0
    lines = [line.split() for line in (taker.folder / "milestones").read_text().splitlines()]
    assert [name for name, _ in lines] == ["store", "asked", "java", "booted", "session"]
    assert sorted(float(moment) for _, moment in lines) == [float(moment) for _, moment in lines]


def test_phases_add_up_to_the_whole_start() -> None:
    reached = {"store": 1.0, "java": 1.5, "booted": 4.0, "session": 3.0, "move": 6.0, "state": 6.5, "exit": 8.0}
    found = cold_phases.phases(0.0, reached)
    assert list(found.values()) == [1.0, 0.5, 2.5, 0.0, 2.0, 0.5, 1.5]
    assert sum(found.values()) == 8.0
    with pytest.raises(SystemExit, match="was to reach java, and did not"):
        cold_phases.phases(0.0, {name: moment for name, moment in reached.items() if name != "java"})


def test_phases_can_be_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = dict.fromkeys(cold_phases.ENDS, 1.0)
    (tmp_path / "found").write_text(f"a table\n{json.dumps({'c299502': each, 'now': each})}\n")
    plot = tmp_path / "cold.svg"
    monkeypatch.setattr(sys, "argv", ["cold_phases", "--found", str(tmp_path / "found"), "--plot", str(plot)])
    cold_phases.main()
    drawn = ElementTree.parse(plot).getroot()
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("7.0 s") == 2
    assert set(cold_phases.ENDS) <= set(texts)


# ---------------------------------------------------------------- verdict


def test_what_must_hold_of_a_start_is_judged() -> None:
    seconds = {"before_1000": 12.0, "cold_1000": 6.1, "warm_1000": 0.3, "handed_over_1000": 1.2, "dlt_1000": 1.1}
    found = {name: {"s": each} for name, each in (seconds | {"cold_5m": 15.0, "dlt_5m": 16.0}).items()}
    assert [line.split()[0] for line in cold.verdicts(found)] == ["NO", "yes", "NO", "yes"]
    assert list(cold.verdicts({"cold_1000": {"s": 1.0}})) == []
