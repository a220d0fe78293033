"""A standalone cluster on loopback, as PySpark's own package brings it; and what is said where there is none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.find_spark_home import _find_spark_home

from penstock import config, sinks, sources
from penstock.errors import ConfigError, ConnectionFailed, InputError, PenstockError
from penstock.links.spark import SparkMover, SparkOptions, SparkSessionProvider
from penstock.links.spark.cluster import check_master_answers, count_workers, refuse_connect
from penstock.links.spark.failures import start_failed, unfit_python
from penstock.links.spark.session import is_private
from penstock.testing.contracts.mover import Notes, Numbers, parts

TOP = Path(__file__).parents[2]
# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

#: for JVMs that live for seconds
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SECRETS = tuple(f"for-nobody-{number}" for number in range(5))


@contextmanager
def part_of_cluster(kind: str, log: Path, *words: str) -> Iterator[None]:
    """A master or a worker, until it has said that it is up."""
    home: str = _find_spark_home()  # type: ignore[no-untyped-call]  # pyspark's own
    command = [str(Path(home, "bin", "spark-class")), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--host", "localhost", "--webui-port", "0", *words],
            stdout=out,
            stderr=out,
            env=os.environ
            | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    try:
        said = "registered with master" if kind == "Worker" else "New state: ALIVE"
        while said not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        process.wait(timeout=60)
        for child in psutil.wait_procs(family, timeout=30)[1]:
            child.kill()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def wrapper(path: Path, *lines: str) -> str:
    """A Python for Spark's workers that does something first."""
    path.write_text("\n".join(["#!/bin/sh", *lines, f'exec {sys.executable} "$@"', ""]))
    path.chmod(0o755)
    return str(path)


@contextmanager
def mover_on(master: str, settings: dict[str, str], seconds: float = 300.0) -> Iterator[SparkMover]:
    own = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    own |= {"spark.executor.extraJavaOptions": SHORT_LIVED}
    options = SparkOptions(master=master, memory="512m", config=own | settings, executor_seconds=seconds)
    mover = SparkMover(SparkSessionProvider(options))
    try:
        yield mover
    finally:
        mover.close()


def test_a_cluster_that_gives_no_executor_and_one_that_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOP))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    # Set first, so that what the session sets is taken back after the test.
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    port = free_port()
    master = f"spark://localhost:{port}"
    python = wrapper(tmp_path / "their-python", f"touch {tmp_path}/their-python-ran")
    with ExitStack() as cluster:
        cluster.enter_context(part_of_cluster("Master", tmp_path / "master.txt", "--port", str(port)))
        secret = {"spark.authenticate.secret": SECRETS[0]}
        with mover_on(master, {"spark.pyspark.python": python, **secret}, seconds=2) as mover:
            assert mover.workers == 4, "a host called localhost is no Spark in this process"
            with pytest.raises(ConnectionFailed, match="has given this run no executor for 2 s") as starved:
                mover.move(Numbers(), Notes(str(tmp_path)), parts(1))
            assert "executor_seconds" in starved.value.next_step
            worker = ("--cores", "3", "--memory", "1g", "--work-dir", str(tmp_path / "work"), master)
            cluster.enter_context(part_of_cluster("Worker", tmp_path / "worker.txt", *worker))
            mover.provider.options = replace(mover.provider.options, executor_seconds=300.0)
            receipts = mover.move(Numbers(), Notes(str(tmp_path)), parts(1, 2, 3))
            assert [receipt.rows for receipt in receipts] == [1, 2, 3]
            assert mover.workers == 3, "as many cores as the cluster has given"
            assert (tmp_path / "their-python-ran").exists()
            lines = [line for line in map(_command_line, psutil.Process().children(recursive=True)) if line]
            assert any("SparkSubmit" in line for line in lines), "the driver's JVM is among them"
            assert not [line for line in lines if SECRETS[0] in line]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_secrets_are_not_in_the_event_log_and_workers_without_penstock_are_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On a Spark in this process: none of it needs a cluster."""
    monkeypatch.setenv("PYTHONPATH", str(TOP))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # Set first, so that what the session sets is taken back after the test.
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    (tmp_path / "without" / "penstock").mkdir(parents=True)
    missing = "raise ModuleNotFoundError(\"No module named 'penstock'\")\n"
    (tmp_path / "without" / "penstock" / "__init__.py").write_text(missing)
    (tmp_path / "events").mkdir()
    catalog = "spark.sql.catalog.lake"
    settings = {
        "spark.pyspark.python": wrapper(tmp_path / "poor", f"export PYTHONPATH={tmp_path}/without:$PYTHONPATH"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.compress": "false",
        f"{catalog}.header.X-Api-Key": SECRETS[0],
        f"{catalog}.token": SECRETS[1],
        f"{catalog}.credential": SECRETS[2],
    }
    with mover_on("local[1,3]", settings) as mover:
        with pytest.raises(InputError, match="has no penstock") as poor:
            mover.move(Numbers(), Notes(str(tmp_path)), parts(1))
        assert "spark.pyspark.python" in poor.value.next_step
        later = {"spark.sql.catalog.later.token": SECRETS[3], "spark.sql.catalog.later.header.X-Api-Key": SECRETS[4]}
        mover.provider.require(later)
        session: Any = mover.provider.session()
        capfd.readouterr()
        with pytest.raises(PenstockError, match=r"(?i)divi"):
            mover.provider.wait(lambda: session.sql("SELECT 1 / (id - id) FROM range(1)").collect())
        assert capfd.readouterr() == ("", ""), "PySpark logs a traceback to standard error"
    said = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    assert f"{catalog}.header.X-Api-Key" in said, "the settings are there"
    assert not [secret for secret in SECRETS if secret in said]


# ---------------------------------------------------------------- without Spark


@pytest.mark.parametrize(
    ("master", "settings", "workers"),
    [
        ("local[*]", {}, 8),
        ("local[ 3 , 3 ]", {}, 3),
        ("local-cluster[2,3,1024]", {}, 6),
        ("spark://localhost:7077", {}, 4),
        ("spark://spark.svc.cluster.local:7077", {}, 4),
        ("k8s://https://local", {"spark.executor.instances": "5", "spark.executor.cores": "2"}, 10),
        ("yarn", {"spark.executor.instances": "5"}, 5),
        ("spark://there:7077", {"spark.cores.max": "12"}, 12),
        ("spark://there:7077", {"spark.cores.max": "12", "spark.default.parallelism": "16"}, 16),
        ("spark://there:7077", {"spark.default.parallelism": "many"}, 4),
    ],
)
def test_how_large_a_cluster_is_as_far_as_it_is_said(master: str, settings: dict[str, str], workers: int) -> None:
    assert count_workers(master, settings, 8) == workers


def test_an_address_where_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    address = f"127.0.0.1:{free_port()}"
    with (
        mover_on(f"spark://{address}", {}) as mover,
        pytest.raises(ConnectionFailed, match=f"master does not answer \\({address}: Connection refused\\)"),
    ):
        mover.move(Numbers(), Notes(str(tmp_path)), parts(1))
    assert list(tmp_path.iterdir()) == [], "no JVM was started for it"


def test_one_master_of_several_is_enough_and_an_address_without_a_port_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        check_master_answers(f"spark://127.0.0.1:{free_port()},127.0.0.1:{there.getsockname()[1]}")
    with pytest.raises(InputError, match="is not the address of a cluster"):
        check_master_answers("spark://somewhere")
    check_master_answers("yarn")


@pytest.mark.parametrize(
    ("master", "settings", "environment"),
    [
        ("local[1]", {"spark.remote": "sc://there"}, {}),
        ("local[1]", {"spark.api.mode": "connect"}, {}),
        ("sc://there:15002", {}, {}),
        ("local[1]", {}, {"SPARK_REMOTE": "sc://there"}),
        ("local[1]", {}, {"SPARK_API_MODE": "connect"}),
    ],
)
def test_spark_connect_is_refused_as_such(master: str, settings: dict[str, str], environment: dict[str, str]) -> None:
    with pytest.raises(InputError, match="Spark Connect") as refused:
        refuse_connect(master, settings, environment)
    assert "Java" not in refused.value.next_step


@pytest.mark.parametrize("spark", ["{master: sc://there}", "{config: {spark.remote: sc://there}}"])
def test_spark_connect_is_a_mistake_in_the_pipeline_file(spark: str, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(f"spark: {spark}\npipelines: {{}}\n")
    with pytest.raises(ConfigError, match=r"shop.yaml:1: spark\.(master|config): .*Spark Connect is not supported"):
        config.load(tmp_path / "shop.yaml", environment={}, sources=sources, sinks=sinks)


def test_a_master_that_does_not_take_us_is_no_matter_of_java() -> None:
    error = start_failed("spark://there:1", "Cannot call methods on a stopped SparkContext.", "log")
    assert isinstance(error, ConnectionFailed)
    assert "Java" not in error.next_step
    assert "Java 17" in start_failed("local[1]", "[JAVA_GATEWAY_EXITED] Java gateway process exited", "log").next_step


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ModuleNotFoundError: No module named 'penstock.links'", "has no penstock"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "has no pyarrow"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "has another version"),
        ('java.io.IOException: Cannot run program "/p": error=2, No such file or directory', "have no /p"),
    ],
)
def test_a_python_that_is_not_fit_is_said_to_be(text: str, what: str) -> None:
    error = unfit_python(text, "/p", "1.2")
    assert error is not None
    assert what in error.what
    assert "install penstock 1.2" in error.next_step
    assert unfit_python("ValueError: no", "/p", "1.2") is None


@pytest.mark.parametrize("name", ["spark.authenticate.secret", "spark.ssl.keyPassword", "spark.x.token", "spark.sql.a"])
def test_what_is_private_stays_off_the_command_line(name: str) -> None:
    assert is_private(name)
    assert not is_private("spark.driver.memory")
