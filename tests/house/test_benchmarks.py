"""What the benchmarks measure is looked after between their runs: a run with nothing new imports and writes little.

And their instruments are tried: one that never shows anything would show nothing when it matters.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import _list_api, _processes, _targets, _verdict, memory, noop, postgres_in, postgres_out, subdivision
from benchmarks import _orders as orders
from benchmarks._opens import Opens
from tests.harness.doubles import FIND_TESTS

RUN = (
    FIND_TESTS
    + """
import json, sys
from penstock import wiring
from penstock.cli import main
from tests.harness.doubles import LoopMover
wiring.make_mover = lambda _house: LoopMover()
heavy = {"adbc_driver_postgresql", "alembic", "numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "rich"}
sys.argv = ["penstock", "run", "shop.yaml"]
try:
    main()
finally:
    print(json.dumps(sorted(heavy & sys.modules.keys())))
"""
)

#: spends half a second of CPU time for each line that it reads
BURN = """
import time
while input():
    begun = time.process_time()
    while time.process_time() - begun < 0.5:
        pass
    print()
"""


def run(folder: Path, url: str) -> tuple[str, list[str]]:
    """A run in a process of its own: what it said, and which heavy packages it imported."""
    said, heavy = orders.run_once([sys.executable, "-c", RUN], orders.environment(url), folder).rsplit("\n", 2)[:2]
    return said, json.loads(heavy)


def test_nothing_new_imports_nothing_heavy_and_writes_its_report_alone(tmp_path: Path, database: str) -> None:
    orders.make_orders(database, 1000)
    orders.write_pipeline(tmp_path)
    _, heavy = run(tmp_path, database)
    assert "pyarrow" in heavy, "rows have moved, so its absence below means something"
    assert "alembic" not in heavy, "a new store is not migrated"
    assert orders.rows_in(tmp_path / "out") == 1000
    out, store = tmp_path / "out", tmp_path / ".penstock" / "store.db"
    before = noop.tree(out), noop.store_rows(store)
    said, heavy = run(tmp_path, database)
    assert "nothing new" in said
    assert heavy == []
    assert (noop.tree(out), noop.store_rows(store)) == before


def test_help_imports_little() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "penstock", "--help"], capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert not imported & {"pydantic", "psycopg", "rich", "sqlalchemy", "yaml"}


def test_a_written_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    before = noop.tree(tmp_path)
    os.utime(tmp_path / "a", ns=(1, 1))
    touched = noop.tree(tmp_path)
    assert touched != before
    (tmp_path / "b").touch()
    assert noop.tree(tmp_path) != touched


def test_a_started_java_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    watch = noop.JavaWatch(tmp_path)
    env = watch.watched(os.environ)
    assert watch.starts() == 0
    found = shutil.which("java", path=env["PATH"])
    assert found == str(Path(env["JAVA_HOME"], "bin", "java"))
    done = subprocess.run([found, "-version"], env=env, capture_output=True, text=True, check=True)
    assert "version" in done.stderr
    assert watch.starts() == 1


def test_an_opened_file_is_noticed(tmp_path: Path) -> None:
    """From another process, once however often it is opened, and without what is only listed or looked at."""
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    script = "import os, sys; [open(sys.argv[1]).close() for _ in range(3)]; os.stat(sys.argv[2]); os.listdir('.')"
    with Opens(tmp_path) as opens:
        subprocess.run([sys.executable, "-c", script, "a", "b"], cwd=tmp_path, check=True)
    assert opens.names == {"a"}
    (tmp_path / "c").read_bytes()
    assert opens.names == {"a"}, "only what happens inside counts"
    (tmp_path / "below").mkdir()
    with pytest.raises(SystemExit, match="folders"), Opens(tmp_path):
        pass


def test_a_child_counts(tmp_path: Path) -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with _processes.watching(process.pid) as peak:
            pass
        process.communicate(b"\n")
    assert len(peak.parts) == 2
    assert all(size > _processes.MIB for size in peak.parts.values())
    assert _processes.pss(2**22 + 1) == 0


class Process:
    """A process by its name and those above it."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def name(self) -> str:
        return self._names[0]

    def parents(self) -> list[Process]:
        return [Process(name) for name in self._names[1:]]


def test_memory_counts_by_role() -> None:
    found = [
        _processes.role_of(Process(*names.split()))  # type: ignore[arg-type]  # as much of one as is asked
        for names in (
            "penstock bash",
            "java penstock",
            "python java penstock",
            "python python java",
            "python python sh",
        )
    ]
    assert found == ["driver", "jvm", "daemon", "workers", "driver"], "a run's process below a warm worker is one too"
    peak = _processes.Peak(bytes=941 << 20, roles={"jvm": 300 << 20, "driver": 641 << 20})
    assert memory.summary({"warm_tick": peak}) == {
        "bound_mib": 940,
        "runs": {"warm_tick": {"peak_mib": 941, "parts_mib": {"driver": 641, "jvm": 300}}},
    }


def test_a_worker_that_nobody_waits_for_counts(tmp_path: Path) -> None:
    """As Spark's daemon does it: the kernel then adds the worker's CPU time to nobody's."""
    burn = "import time; begun = time.process_time()\nwhile time.process_time() - begun < 1: pass"
    ignoring = "import signal, subprocess, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    script = f"{ignoring}subprocess.run([sys.executable, '-c', {burn!r}])"
    cost = _processes.cost_of([sys.executable, "-c", script], os.environ, tmp_path)
    assert 0.7 < cost.cpu < 5
    with pytest.raises(SystemExit, match=r"ended with 3:\nwhy"):
        _processes.cost_of([sys.executable, "-c", "print('why'); raise SystemExit(3)"], os.environ, tmp_path)


def test_only_what_is_spent_meanwhile_counts() -> None:
    with subprocess.Popen(
        [sys.executable, "-uc", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as it:
        assert it.stdin is not None
        assert it.stdout is not None

        def spend() -> None:
            print("more", file=it.stdin, flush=True)
            it.stdout.readline()  # type: ignore[union-attr]  # it is there: see above

        spend()
        with _processes.spending(it.pid) as cost:
            spend()
        it.communicate("\n")
    assert 0.4 < cost[0].cpu < 0.9


def test_a_child_that_ends_meanwhile_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a warm worker does it, which runs each command in a child and waits for it; no look has seen it."""
    monkeypatch.setattr(_processes, "LOOK", 60)
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    script = (
        f"import subprocess, sys\nwhile input(): print(subprocess.run([sys.executable, '-c', {burn!r}]), flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with _processes.spending(process.pid) as cost:
            process.stdin.write(b"more\n")
            process.stdin.flush()
            process.stdout.readline()
        process.communicate(b"\n")
    assert 0.4 < cost[0].cpu < 0.9


def test_the_comparison_ends_with_its_json(tmp_path: Path) -> None:
    """On a small table and without the peers, whose environment is not the tests' to make."""
    command = [sys.executable, "-m", "benchmarks.postgres_out", "--rows", "5000", "--runs", "1", "--only", "copy"]
    done = subprocess.run(
        [*command, "--plot", str(tmp_path / "out.svg")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == ["rows", "contenders"]
    assert {name: list(each) for name, each in found["contenders"].items()} == {"copy": ["s", "cpu_s", "peak_mib"]}
    assert "one bare COPY" in (tmp_path / "out.svg").read_text()


def test_growth_ends_with_its_json() -> None:
    """With few ticks behind it; ticks are made in both ways."""
    few = ["--ticks", "4", "--young", "2", "--measured", "1", "--untimed"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", *few],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == ["tick_ratio", "noop_ratio", "store_bytes_per_tick", "metadata_bytes"]
    assert all(value > 0 for value in found.values())


def test_subdivision_ends_with_its_json(tmp_path: Path) -> None:
    """With few pages; the pictures are drawn."""
    few = ["--pages", "0", "10", "250", "--plot", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.subdivision", *few],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == ["worst_requests_over_bound", "worst_makespan_over_bound", "worst_makespan_over_published"]
    assert all(0 < value <= 1 for value in found.values())
    assert {path.name for path in tmp_path.iterdir()} == {"subdivision.svg", "subdivision-figures.svg"}


def test_a_rule_that_needs_too_much_is_noticed() -> None:
    """Requests are bounded more tightly where there are 50 pages for each worker."""
    cost = _list_api.Cost
    few = subdivision.Case("uniform", 100, 50, 1.0, cost(510, 15), cost(150, 13))
    assert subdivision.verdict([few]) == {
        "worst_requests_over_bound": 1.0,
        "worst_makespan_over_bound": 1.0,
        "worst_makespan_over_published": 1.0,
    }
    many = subdivision.Case("uniform", 1000, 20, 1.0, cost(1121, 88), cost(1400, 70))
    assert [value > 1 for value in subdivision.verdict([few, many]).values()] == [True, True, True]


def test_records_that_were_not_delivered_are_missed() -> None:
    api = _list_api.ListApi([1, 2, 3])
    api.page(2, 4, None)
    with pytest.raises(SystemExit, match="3 records, and 2 were delivered"):
        api.check()


def test_rows_that_did_not_come_are_missed(tmp_path: Path) -> None:
    for number, ids in enumerate(([1, 2], [3, 3])):
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{number}.parquet")
    with pytest.raises(SystemExit, match=r"4 rows, and brought 4 with ids that sum to 9"):
        postgres_out.counted(tmp_path, 4, "someone")
    (tmp_path / "1.parquet").unlink()
    postgres_out.counted(tmp_path, 2, "someone")


def test_a_table_that_is_not_as_it_must_be_is_noticed(tmp_path: Path, database: str) -> None:
    """Loaded by the expectation itself; then one value, and one row of the older version, differ."""
    stock = _targets.Stock(tmp_path, database, 40)
    stock.make()
    assert (orders.rows_in(stock.files("all")), orders.rows_in(stock.files("all", floats=True))) == (40, 40)
    for like, rest, change in (
        (_targets.EMPTY, "", ""),
        (_targets.EMPTY, "", "UPDATE t SET payload = payload || '{\"qty\": 9}' WHERE id = 7"),
        (_targets.HALF, "WHERE id % 2 = 1", ""),
    ):
        stock.fresh("t", like)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"INSERT INTO t SELECT * FROM expected {rest}; {change}".encode())
        if not rest and not change:
            stock.checked("t", "someone")
            continue
        with pytest.raises(SystemExit, match="someone was to leave"):
            stock.checked("t", "someone")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("DROP TABLE t")


def test_an_upsert_is_judged_by_the_limit_and_by_every_peer() -> None:
    seconds = {"adbc_merge": 6.0, "penstock_upsert_warm": 7.5, "rustream": 12.0, "spark_jdbc_merge": 7.0}
    found = {name: {"s": each, "cpu_s": 1.0, "peak_mib": 10.0} for name, each in seconds.items()}
    assert [line.split()[0] for line in postgres_in.verdicts(found)] == ["must", "yes", "yes", "NO"]
    assert list(postgres_in.verdicts({"rustream": found["rustream"]})) == []


def test_what_must_hold_is_judged() -> None:
    base = {
        "copy": 1.0,
        "adbc": 2.0,
        "penstock_files_warm": 1.5,
        "rustream": 9.0,
        "dlt_pyarrow": 20.0,
        "dlt_connectorx": 2.0,
    }
    found = {name: {"s": seconds, "cpu_s": 1.0, "peak_mib": 10.0} for name, seconds in base.items()}
    assert [line.split()[0] for line in _verdict.verdicts(1, found)[1:]] == ["NO", "yes", "NO", "yes", "yes"]
    assert not [line for line in _verdict.verdicts(1, found) if "cold" in line]


def test_time_is_told_apart() -> None:
    at = "2026-01-01T00:00:0{}.000000Z".format
    messages = [
        {"type": "catalog", "_ts": at(1)},
        {"type": "progress", "step": "intend", "_ts": at(2)},
        {"type": "progress", "step": "move", "_ts": at(5)},
        {"type": "progress", "step": "move", "_ts": at(6)},
    ]
    begun = 1767225600.0
    assert memory.phases(messages, begun, begun + 8) == {
        "start and connect": 1,
        "plan and intend": 1,
        "start Spark and move slice 1": 3,
        "move": 1,
        "end Spark and exit": 2,
    }


def test_a_table_without_rows_can_be_made(database: str) -> None:
    orders.make_orders(database, 0)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (0,)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in Path(noop.__file__).parent.glob("[a-z]*.py")), ids=lambda name: name
)
def test_every_benchmark_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 0
    size = {"growth": "--ticks", "manifests": "--slices", "subdivision": "--pages"}.get(name, "--rows")
    assert size in capsys.readouterr().out
