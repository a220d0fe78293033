"""The start of a JVM: beside the caller, given up without a trace, and with the command line of `spark-submit`."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.errors import StreamFailed
from penstock.links.spark import SharedSpark, SparkOptions, SparkSessionProvider, shared
from penstock.links.spark.background_start import BackgroundStart
from penstock.links.spark.launch import GATEWAY, Command
from penstock.links.spark.temp_folder import PREFIX


class SlowStart:
    """A start whose JVM never answers."""

    def __init__(self) -> None:
        self.launched = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def __call__(self, *arguments: object) -> object:
        attempt = arguments[-1]
        assert isinstance(attempt, BackgroundStart)
        self.starts += 1
        self.process = subprocess.Popen(["sleep", "600"])
        attempt.register(self.process)
        self.launched.set()
        raise RuntimeError(f"it ended with {self.process.wait()}")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SlowStart:
    start = SlowStart()
    monkeypatch.setattr(shared, "start", start)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return start


def test_a_start_that_nobody_needs_any_more_is_ended_at_once_and_leaves_nothing(
    slow: SlowStart, tmp_path: Path
) -> None:
    spark_provider = SparkSessionProvider()
    spark_provider.begin()
    assert slow.launched.wait(60)
    assert [path.name.startswith(PREFIX) for path in tmp_path.iterdir()] == [True]
    spark_provider.close()
    assert slow.process is not None
    assert slow.process.poll() == -9
    assert list(tmp_path.iterdir()) == []
    assert not [thread for thread in threading.enumerate() if isinstance(thread, BackgroundStart)]


def test_a_signal_while_it_starts_is_heeded_at_once(slow: SlowStart, tmp_path: Path) -> None:
    spark_provider = SparkSessionProvider()
    spark_provider.begin()

    def cancel() -> None:
        slow.launched.wait(60)
        spark_provider.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(StreamFailed, match="cancelled"):
        spark_provider.session()
    canceller.join()
    spark_provider.close()
    assert slow.process is not None
    assert slow.process.poll() == -9
    assert list(tmp_path.iterdir()) == []


def test_what_was_begun_for_one_pipeline_serves_the_next(slow: SlowStart) -> None:
    """The first one was held by another process, say."""
    spark = SharedSpark(SparkOptions())
    first = SparkSessionProvider(spark.options, shared=spark)
    first.begin()
    assert slow.launched.wait(60)
    first.close()
    second = SparkSessionProvider(spark.options, shared=spark)
    second.begin()
    assert slow.starts == 1
    spark.end()
    assert slow.process is not None
    assert slow.process.poll() == -9


def test_it_is_told_once_that_it_starts(slow: SlowStart) -> None:
    said: list[str] = []
    spark_provider = SparkSessionProvider(on_start=lambda: said.append("begins"), on_ready=lambda: said.append("ready"))
    spark_provider.begin()
    spark_provider.begin()
    assert slow.launched.wait(60)
    assert slow.process is not None
    slow.process.kill()
    with pytest.raises(StreamFailed, match="it ended with -9"):
        spark_provider.session()
    assert said == ["begins"]
    spark_provider.close()


# ---------------------------------------------------------------- the command line

SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": '-XX:+UseSerialGC "-Djava.io.tmpdir=/tmp/a b"',
    "spark.driver.extraClassPath": "/a.jar:/b.jar",
}


def test_java_is_started_as_spark_submit_does_it() -> None:
    ours = Command.plain(SETTINGS, os.environ)
    assert ours is not None
    asked = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
    asked += [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    said = subprocess.run(
        [ours.java, "-cp", f"{ours.home}/jars/*", *asked, "pyspark-shell"],
        env=os.environ | {"SPARK_HOME": str(ours.home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    _, flag, path, *theirs = said.lstrip("\n\0").split("\0")
    theirs = theirs[: theirs.index("org.apache.spark.deploy.SparkSubmit")]
    words = ours.words(["-Xlog:disable"])
    assert (words[1], words[3 : 3 + len(theirs)]) == (flag, theirs)
    spelt = [str(jar) for entry in path.split(":") for jar in _expanded(entry)]
    assert sorted(dict.fromkeys(spelt)) == sorted(ours.class_path)
    assert [os.path.basename(entry) for entry in ours.class_path[:3]] == ["a.jar", "b.jar", os.path.basename(spelt[2])]
    assert words[-4:] == [*(f"-D{key}={value}" for key, value in SETTINGS.items()), GATEWAY]


def _expanded(entry: str) -> list[str]:
    """The files of an entry; none for the folder of settings that is not there."""
    if entry.endswith("/conf"):
        return []
    return [str(jar) for jar in Path(entry).parent.glob("*.jar")] if entry.endswith("/*") else [entry]


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({"spark.jars": "a.jar"}, {}),
        ({"spark.submit.pyFiles": "a.py"}, {}),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}),
        ({}, {"SPARK_HOME": "/opt/spark"}),
        ({}, {"PYSPARK_SUBMIT_ARGS": "pyspark-shell"}),
        ({}, {"JAVA_HOME": "/nowhere"}),
    ],
)
def test_what_only_spark_submit_understands_is_left_to_it(
    settings: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    assert Command.plain({}, os.environ) is not None
    assert Command.plain(settings, os.environ | environment) is None
