"""A JVM that dies, as the system kills it when memory runs out; and what a killed process leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import psycopg
import pyarrow.dataset as ds
import pytest

from penstock.links.spark import failures
from penstock.links.spark.temp_folder import PREFIX, SparkTempFolder, sweep_temp_folders
from tests.spark.test_mover import process

TWO = """
spark: {master: "local[1,3]"}
pipelines:
  first:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: first}
    streams:
      customers: {cursor: updated_at, tiebreaker: id}
      orders: {cursor: updated_at, tiebreaker: id}
  second:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: second}
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def worker_of(pid: int) -> psutil.Process | None:
    """The JVM of a process, once it has Python workers: a part is under way."""
    for child in descendants(pid):
        try:
            if "-m penstock.links.spark.daemon" in " ".join(child.cmdline()):
                return child.parent()
        except psutil.Error:
            continue
    return None


def ids(folder: Path) -> list[int]:
    return sorted(ds.dataset(folder).to_table().column("id").to_pylist())


def test_a_jvm_that_is_killed_in_mid_move_costs_one_stream_its_turn(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        for table in ("customers", "orders"):
            db.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, updated_at timestamptz)".encode())
            db.execute(f"CREATE INDEX ON {table} (updated_at, id)".encode())
            db.execute(
                f"INSERT INTO {table} SELECT g, timestamptz '2026-01-01Z' + g * interval '1 h'"
                " FROM generate_series(1, 200) g".encode()
            )
    (tmp_path / "two.yaml").write_text(TWO)
    (tmp_path / "tmp").mkdir()
    command = [str(Path(sys.executable).with_name("penstock")), "run", "two.yaml", "--plain"]
    environment = os.environ | {"DATABASE_URL": database, "TMPDIR": str(tmp_path / "tmp")}

    def run(*, kill: bool) -> tuple[int, str]:
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running:
            if kill:
                while (jvm := worker_of(running.pid)) is None:
                    assert running.poll() is None, "it ended before a part was under way"
                    time.sleep(0.05)
                jvm.send_signal(signal.SIGKILL)
            said, _ = running.communicate()
        return running.returncode, said

    code, said = run(kill=True)
    assert code == 1, said
    assert "first/customers: Spark died: its JVM was killed (signal 9)" in said
    assert "Traceback" not in said
    assert "defect" not in said
    assert (ids(tmp_path / "first" / "orders"), ids(tmp_path / "second" / "orders")) == ([*range(1, 201)],) * 2
    assert not (tmp_path / "first" / "customers").exists()
    code, said = run(kill=False)
    assert code == 0, said
    assert ids(tmp_path / "first" / "customers") == [*range(1, 201)]
    assert [path.name for path in (tmp_path / "tmp").iterdir() if not path.name.endswith(".log")] == []


@pytest.mark.parametrize(
    ("status", "what", "step"),
    [
        (-9, "killed (signal 9), as the system does when memory runs out", 'master: "local[1,3]"'),
        (52, "the heap of its JVM was full", "`spark: {memory: 2g}`"),
        (-11, "was ended by signal 11", "its log is in there"),
        (1, "ended with exit code 1", "its log is in there"),
    ],
)
def test_how_it_died_is_said_with_what_to_do(status: int, what: str, step: str) -> None:
    error = failures.jvm_died(status, "there")
    assert error.what.startswith("Spark died: ")
    assert what in error.what
    assert step in error.next_step


# ---------------------------------------------------------------- temporary files


def test_what_a_killed_process_left_is_removed_and_what_lives_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = """
import sys, time
from penstock.links.spark.temp_folder import SparkTempFolder
folder = SparkTempFolder()
(folder.path / "blockmgr-1").mkdir()
print(folder.path, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        ours = SparkTempFolder()
        foreign = tmp_path / "blockmgr-of-others"
        foreign.mkdir()
        (tmp_path / f"{PREFIX}link").symlink_to(foreign)
        sweep_temp_folders()
        assert left.exists(), "its process lives"
        other.kill()
        other.wait()
        sweep_temp_folders()
    assert not left.exists()
    assert ours.path.exists(), "ours is locked by ourselves"
    assert foreign.exists()
    ours.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blockmgr-of-others", f"{PREFIX}link"]


def test_spark_keeps_its_temporary_files_in_our_folder_and_the_next_start_removes_them(tmp_path: Path) -> None:
    hold = """
mover.move(Numbers(), Notes(folder), parts(1))
print(flush=True)
sys.stdin.read()
"""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    running = process(hold, tmp_path, TMPDIR=str(temporary))
    assert running.stdout is not None
    running.stdout.readline()
    (scratch,) = temporary.iterdir()
    kinds = {path.name.partition("-")[0] for path in scratch.iterdir()}
    assert {"blockmgr", "spark"} <= kinds
    family = descendants(running.pid)
    for each in [*family, psutil.Process(running.pid)]:
        each.kill()
    running.communicate()
    psutil.wait_procs(family)
    assert list(temporary.iterdir()) == [scratch]
    script = "from penstock.links.spark.temp_folder import sweep_temp_folders; sweep_temp_folders()"
    subprocess.run([sys.executable, "-c", script], env=os.environ | {"TMPDIR": str(temporary)}, check=True)
    assert list(temporary.iterdir()) == []
