"""Attaches this process, with a session of its own, to a Spark that another process has started.

`offer` names that Spark; `attach` is called before a Spark is started here, and attaches if the offered one fits.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.links.spark import daemon
from penstock.links.spark.launch import connect_gateway
from penstock.links.spark.session import JAVA_OPTIONS, LIST_SEPARATORS, SparkOptions, all_settings, worker_python

#: settings that each session has for itself: they can still be made once it runs, and are never passed to another
SESSION_SETTINGS = "spark.sql.catalog."
#: the form in which the exit status of the JVM is sent
STATUS = struct.Struct("i")


@dataclass(frozen=True)
class RunningSpark:
    """A JVM with a SparkContext that another process has started, and how it was started."""

    port: int
    secret: str
    pid: int
    #: readable once the JVM has ended: its exit status, as `STATUS`
    status_pipe: int
    options: SparkOptions
    #: without those of a session
    settings: Mapping[str, str]
    #: called with the reason where this Spark is not used
    on_misfit: Callable[[str], object]


class ForeignProcess:
    """The JVM, which is not our child, with as much of `Popen` as is asked of it."""

    stdin = None

    def __init__(self, spark: RunningSpark) -> None:
        self.pid = spark.pid
        self._status_pipe = spark.status_pipe
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._read_status(0)

    def wait(self, timeout: float | None = None) -> int:
        if (status := self._read_status(timeout)) is None:
            raise subprocess.TimeoutExpired("java", timeout or 0)
        return status

    def kill(self) -> None:
        """Do nothing: the process that has started it ends it."""

    def _read_status(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status_pipe], [], [], timeout)[0]:
            sent = os.read(self._status_pipe, STATUS.size)
            self.returncode = STATUS.unpack(sent)[0] if len(sent) == STATUS.size else -9
        return self.returncode


_offered: RunningSpark | None = None


def offer(spark: RunningSpark | None) -> None:
    """Let the next start of Spark in this process attach to this one, if it fits."""
    global _offered
    _offered = spark


def attach(options: SparkOptions, wanted: Mapping[str, str], jars: Sequence[Path]) -> bool:
    """Make PySpark use the Spark that was offered, in a new session; False: there is none, or it does not fit.

    It is offered once: a process that loses it starts its own Spark.
    """
    global _offered
    spark, _offered = _offered, None
    if spark is None:
        return False
    if (difference := find_misfit(spark, options, wanted, jars)) is not None:
        spark.on_misfit(difference)
        return False
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark import SparkContext

    os.environ["PYSPARK_PYTHON"] = worker_python(wanted)
    try:
        _open_session(connect(spark))
    except (Py4JError, OSError):
        with SparkContext._lock:
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        spark.on_misfit("its JVM does not answer")
        return False
    return True


def _open_session(gateway: Any) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    _drop_other_objects(gateway)
    java = gateway.jvm.org.apache.spark
    context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    ours = SparkContext(gateway=gateway, jsc=context, conf=conf)
    default = java.sql.classic.SparkSession.getDefaultSession().get()
    SparkSession(ours, default.newSession())


def _drop_other_objects(gateway: Any) -> None:
    """Drop the objects that earlier processes hold in the JVM: py4j keeps them, though those processes have ended."""
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]  # py4j has no types

    server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    own = gateway.jvm.java.util.ArrayList()
    for name in ("GATEWAY_SERVER", "j", "t"):
        own.add(name)
    server.getGateway().getBindings().keySet().retainAll(own)


def connect(spark: RunningSpark) -> Any:
    """A gateway of this process to the JVM."""
    gateway = connect_gateway(spark.port, spark.secret)
    gateway.proc = ForeignProcess(spark)
    return gateway


def find_misfit(
    spark: RunningSpark, options: SparkOptions, wanted: Mapping[str, str], jars: Sequence[Path]
) -> str | None:
    """Describe the setting in which the running Spark differs from what is wanted; None: it fits.

    It may have more extensions and libraries than are wanted: other pipelines of the file may need them.
    """
    if options.resolved_master != spark.options.resolved_master:
        return "`spark.master` differs"
    if options.memory != spark.options.memory:
        return "`spark.memory` differs"
    for key in sorted(options.config.keys() | spark.options.config.keys()):
        if options.config.get(key) != spark.options.config.get(key):
            return f"`spark.config` differs in {key}"
    for key, value in all_settings(options, wanted, jars).items():
        if key.startswith((SESSION_SETTINGS, f"spark.executorEnv.{daemon.VARIABLE}")) or key == JAVA_OPTIONS:
            continue  # Java's own options are ours, apart from those of `spark.config`; imports only save time
        has, separator = spark.settings.get(key), LIST_SEPARATORS.get(key)
        if has != value and not (separator and set(value.split(separator)) <= set((has or "").split(separator))):
            return f"it was started without {key}, or with another value"
    return None


def without_session_settings(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if not key.startswith(SESSION_SETTINGS)}
