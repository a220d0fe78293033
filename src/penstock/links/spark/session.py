"""A Spark session for moving parts: local by default, lazily started, bound to loopback."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InputError

#: unless told otherwise: a worker takes some 240 MiB, and a server seldom sends faster to more of them
MOST_WORKERS = 4


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Which Spark, and how much of it."""

    #: local[N,3]: a failed part is tried three times (`local[N]` would never retry); or a cluster's address
    master: str | None = None
    #: the JVM's heap; rows never enter it
    memory: str = "1g"
    #: any other Spark setting
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def resolved_master(self) -> str:
        return self.master or f"local[{min(os.cpu_count() or 1, MOST_WORKERS)},3]"

    @property
    def workers(self) -> int:
        """Parts that can move at the same time."""
        found = re.match(r"local\[(\d+|\*)", self.resolved_master)
        if found is None:
            return int(self.config.get("spark.default.parallelism", "4")) if "local" not in self.resolved_master else 1
        return (os.cpu_count() or 1) if found.group(1) == "*" else int(found.group(1))


class SparkLog:
    """Where the JVM and its workers write what they have to say, so that it does not run through our own output."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._kept = False

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The log, for the standard error of a process that is started in here."""
        made, self._path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
        os.close(made)
        # Appending, so that what we add is not written over.
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            yield handle
        finally:
            os.close(handle)

    def keep(self, text: str) -> str:
        """Add a report and keep the file; returns its path."""
        if self._path is None:
            handle, self._path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
            os.close(handle)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(text + "\n")
        self._kept = True
        return self._path

    def close(self) -> None:
        if self._path is not None and not self._kept and os.path.exists(self._path):
            os.unlink(self._path)
        self._path = None


def start(options: SparkOptions, log: SparkLog) -> Any:
    """A session; InputError with what to install if Spark cannot start here."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    local = options.resolved_master.startswith("local")
    settings = {
        "spark.app.name": "penstock",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": options.memory,
        # Rows never enter the JVM: one collector thread and the first compiler are enough, and start sooner.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.log.level": "ERROR",
    }
    if local:
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    settings |= dict(options.config)
    builder = SparkSession.builder.master(options.resolved_master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with SparkContext._lock:
            if SparkContext._gateway is None:
                # Not by turning our own standard error away meanwhile: a signal's last words must get through.
                conf = SparkConf().setMaster(options.resolved_master).setAll(list(settings.items()))
                with log.opened() as handle:
                    gateway = launch_gateway(conf, {"stderr": handle})  # type: ignore[no-untyped-call]  # pyspark's own
                SparkContext._gateway = gateway
                SparkContext._jvm = gateway.jvm
        return builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise InputError(
            f"Spark could not be started ({options.resolved_master}): {error}; its log is {log.keep(str(error))}",
            next_step="see that Java 17 or newer is installed (`script/setup` installs it) and that JAVA_HOME, if set, "
            "names it",
        ) from error


def end_jvm() -> None:
    """Close the gateway's JVM, which ends when its standard input does."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
