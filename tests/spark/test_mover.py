"""The Mover on a real Spark: workers that fail or die, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from penstock.errors import InputError, StreamFailed
from penstock.links.spark import SparkMover, SparkOptions, SparkSessionProvider
from penstock.links.spark import mover as moving
from penstock.links.spark.failures import key_line
from penstock.links.spark.mover import payload_of
from penstock.ports import Reader
from penstock.testing.contracts.delivery import STREAM, after
from penstock.testing.contracts.mover import Notes, Numbers, parts, until
from tests.sinks.files.folder import open_sink
from tests.spark.workers import AlwaysKilled, FailsOnce, KilledOnce, Where

TOP = Path(__file__).parents[2]
# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark's logs are kept."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def mover(logs: Path) -> Iterator[SparkMover]:
    mover = SparkMover(SparkSessionProvider(SparkOptions(master="local[2,3]")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TOP))
        patch.setattr(tempfile, "tempdir", str(logs))
        yield mover
        mover.close()


def moved(mover: SparkMover, folder: Path, reader: Reader, *, killed: bool) -> list[int]:
    """Four parts into files, committed; the numbers that readers see."""
    sink = open_sink(folder)
    slice_ = after(None)
    writer = sink.writer(slice_, "a1")
    receipts = mover.move(reader, KilledOnce(writer, str(folder)) if killed else writer, parts(5, 5, 0, 5))
    sink.commit(slice_, "a1", receipts)
    seen: list[int] = ds.dataset(folder / "out" / STREAM).to_table().column("n").to_pylist()
    sink.sweep(STREAM, slice_.position)
    assert sorted(receipt.part for receipt in receipts) == [0, 1, 2, 3]
    return seen


def test_a_part_that_fails_once_is_tried_again(mover: SparkMover, tmp_path: Path) -> None:
    assert sorted(moved(mover, tmp_path, FailsOnce(str(tmp_path)), killed=False)) == list(range(15))
    assert sorted(path.name for path in tmp_path.glob("failed-*")) == ["failed-0", "failed-1", "failed-3"]


def test_a_worker_that_is_killed_is_replaced_and_what_it_put_aside_is_not_seen(
    mover: SparkMover, tmp_path: Path
) -> None:
    assert sorted(moved(mover, tmp_path, Numbers(), killed=True)) == list(range(15))
    assert (tmp_path / "killed").exists()


def test_what_a_killed_worker_left_lies_there_until_it_is_swept(mover: SparkMover, tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    slice_ = after(None)
    receipts = mover.move(Numbers(), KilledOnce(sink.writer(slice_, "a1"), str(tmp_path)), parts(2, 2))
    staged = list(tmp_path.rglob("*.parquet"))
    assert len(staged) == 3, "one of them is the killed worker's"
    sink.commit(slice_, "a1", receipts)
    assert len(list((tmp_path / "out" / STREAM).iterdir())) == 2
    sink.sweep(STREAM, slice_.position)
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_a_worker_that_always_dies_fails_the_move_and_spark_lives_on(
    mover: SparkMover, logs: Path, tmp_path: Path
) -> None:
    with pytest.raises(StreamFailed) as failed:
        mover.move(AlwaysKilled(), Notes(str(tmp_path)), parts(1))
    assert "Python worker exited unexpectedly (crashed)" in failed.value.what
    kept = Path(failed.value.next_step.rpartition(" ")[2])
    assert kept.parent == logs
    assert "Python worker exited unexpectedly" in kept.read_text()
    assert failed.value.next_step == f"run again; if it happens again, Spark's log is in {kept}"
    assert len(mover.move(Numbers(), Notes(str(tmp_path)), parts(1))) == 1


def test_parts_run_in_python_workers_of_the_same_python(mover: SparkMover, tmp_path: Path) -> None:
    mover.move(Numbers(), Where(str(tmp_path)), parts(1, 1))
    for path in tmp_path.glob("here-*"):
        here = json.loads(path.read_text())
        assert here["pid"] != os.getpid()
        assert here["python"] == sys.executable
        assert not [entry for entry in here["path"] if entry.endswith((".zip", ".jar"))]


def test_workers_of_another_version_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = payload_of(Numbers(), Notes(str(tmp_path)), parts(1))
    monkeypatch.setattr(moving, "remove_zips_from_path", lambda: None)
    monkeypatch.setattr(moving, "__version__", "9.9")
    (outcome,) = moving.run_parts(sent, iter([0]))
    with pytest.raises(InputError, match=r"Spark's workers have penstock 9\.9, and this process has"):
        moving._receipt(outcome)
    assert list(tmp_path.iterdir()) == [], "nothing was moved"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Traceback (most recent call last):\n  File x\n    boom\nValueError: no\nmore\n", "ValueError: no"),
        (
            "Traceback (most recent call last):\n  File x\nKeyError: 1\n\nDuring handling:\n\n"
            "Traceback (most recent call last):\n  File y\n    except Error as error:\na.b.Odd: 2\n",
            "a.b.Odd: 2",
        ),
        (
            "An error occurred while calling o47.collect.\n: org.apache.spark.SparkException: Job aborted\n\tat x",
            "org.apache.spark.SparkException: Job aborted",
        ),
        ("", ""),
    ],
)
def test_the_line_that_tells(text: str, line: str) -> None:
    assert key_line(text) == line


@pytest.mark.parametrize(
    ("master", "config", "workers"),
    [
        ("local[3,3]", {}, 3),
        ("local[*]", {}, os.cpu_count()),
        ("local", {}, 1),
        ("spark://there:7077", {}, 4),
        ("spark://there:7077", {"spark.default.parallelism": "16"}, 16),
    ],
)
def test_how_many_parts_move_at_once(master: str, config: dict[str, str], workers: int) -> None:
    assert SparkMover(SparkSessionProvider(SparkOptions(master=master, config=config))).workers == workers


# ---------------------------------------------------------------- each in a process of its own

#: what the scripts below begin with; `java()` lists the JVMs that this process has started
BEGIN = """
import os, signal, sys, time
from pathlib import Path
from penstock.errors import PenstockError
from penstock.links.spark import SparkSessionProvider, SparkMover, SparkOptions
from penstock.ports import Reader
from penstock.testing.contracts.mover import Notes, Numbers, Waiting, parts
from tests.shared_jvm import jvms_of

def java():
    return jvms_of(os.getpid())

folder = sys.argv[1]
mover = SparkMover(SparkSessionProvider(SparkOptions(master="local[1,3]")))
"""


def process(script: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + script, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)} | environment,
    )


def logs_in(folder: Path) -> list[Path]:
    return list(folder.glob("penstock-spark-*"))


def test_the_jvm_ends_and_its_log_goes_when_all_went_well(tmp_path: Path) -> None:
    script = """
print(len(java()))
mover.move(Numbers(), Notes(folder), parts(1))
print(len(java()))
mover.close()
print(len(java()))
mover.close()
"""
    out, error = process(script, tmp_path).communicate()
    assert (out.split(), error) == (["0", "1", "0"], "")
    assert logs_in(tmp_path) == []


def test_sigint_ends_a_move_and_its_jvm_while_a_part_is_under_way(tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGINT, lambda *_: mover.cancel())
try:
    mover.move(Waiting(folder), Notes(folder), parts(1))
except PenstockError as error:
    print(type(error).__name__, error.what)
mover.close()
from pyspark import SparkContext
print(len(java()), SparkContext._active_spark_context)
"""
    running = process(script, tmp_path)
    until(lambda: (tmp_path / "waiting-0").exists())
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate()
    assert out == "StreamFailed the move was cancelled on request\n0 None\n", "the next run starts a Spark of its own"
    assert not (tmp_path / "go").exists()


def test_a_signal_while_spark_starts_is_heeded_and_our_last_words_get_through(tmp_path: Path) -> None:
    script = """
signal.signal(signal.SIGTERM, lambda *_: mover.cancel())
real = os.path.isfile
def heeded(path):  # pyspark looks for this file while it waits for the JVM
    Path(folder, "starting").touch()
    return real(path)
os.path.isfile = heeded
try:
    mover.move(Numbers(), Notes(folder), parts(1))
except PenstockError as error:
    print(error.what, file=sys.stderr, flush=True)
mover.close()
"""
    running = process(script, tmp_path)
    until(lambda: (tmp_path / "starting").exists())
    running.send_signal(signal.SIGTERM)
    _, error = running.communicate()
    assert error == "the move was cancelled on request\n"
    assert running.returncode == 0


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    script = """
try:
    mover.move(Numbers(), Notes(folder), parts(1))
except PenstockError as error:
    print(type(error).__name__)
    print(error.what)
    print(error.next_step)
mover.close()
"""
    out, error = process(script, tmp_path, JAVA_HOME=str(tmp_path / "no-java")).communicate()
    kind, what, step = out.splitlines()
    assert (kind, error) == (InputError.__name__, "")
    (log,) = logs_in(tmp_path)
    assert what.startswith("Spark could not be started (local[1,3]): ")
    assert what.endswith(f"; its log is {log}")
    assert "no-java" in log.read_text()
    assert "Java 17" in step
