"""A Spark that another process has started and lends: this process attaches to its JVM with a session of its own.

`offer` says that there is one; `attach` is called before a Spark is started, and attaches if it fits what is wanted.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.links.spark import daemon
from penstock.links.spark.log import SparkLog
from penstock.links.spark.session import _JAVA_OPTIONS, _LISTS, SparkOptions, _launch, _reached, _settings

#: settings that each session may have of its own; those of the lender are never passed on
OF_A_SESSION = "spark.sql.catalog."
#: how the exit status of the JVM is sent
STATUS = struct.Struct("i")


@dataclass(frozen=True)
class RunningSpark:
    """A JVM with a running SparkContext, and what it was started with."""

    port: int
    secret: str
    pid: int
    #: readable once the JVM has ended: its exit status, as `STATUS`
    ended: int
    options: SparkOptions
    #: without those of a session
    settings: Mapping[str, str]
    #: called with the reason where this Spark is not used
    unfit: Callable[[str], object]


class ForeignProcess:
    """As much of `Popen` as is asked of a JVM that is not our child."""

    stdin = None

    def __init__(self, lent: RunningSpark) -> None:
        self.pid = lent.pid
        self._ended = lent.ended
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        if (status := self._look(timeout)) is None:
            raise subprocess.TimeoutExpired("java", timeout or 0)
        return status

    def kill(self) -> None:
        """It is the lender's to end."""

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            sent = os.read(self._ended, STATUS.size)
            self.returncode = STATUS.unpack(sent)[0] if len(sent) == STATUS.size else -9
        return self.returncode


_offered: RunningSpark | None = None


def offer(lent: RunningSpark | None) -> None:
    """From now on a Spark that is wanted here is this one, if it fits."""
    global _offered
    _offered = lent


def attach(options: SparkOptions, wanted: Mapping[str, str], jars: Sequence[Path]) -> bool:
    """Make PySpark use the Spark that was offered, in a new session; False: there is none, or it does not fit.

    It is offered once: a process that loses it starts a Spark of its own.
    """
    global _offered
    lent, _offered = _offered, None
    if lent is None:
        return False
    if (difference := misfit(lent, options, wanted, jars)) is not None:
        lent.unfit(difference)
        return False
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark import SparkContext

    os.environ["PYSPARK_PYTHON"] = python_of(wanted)
    try:
        _attach(connect(lent))
    except (Py4JError, OSError):
        with SparkContext._lock:
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        lent.unfit("its JVM does not answer")
        return False
    return True


def _attach(gateway: Any) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    _forget_others(gateway)
    java = gateway.jvm.org.apache.spark
    context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    ours = SparkContext(gateway=gateway, jsc=context, conf=conf)
    default = java.sql.classic.SparkSession.getDefaultSession().get()
    SparkSession(ours, default.newSession())


def _forget_others(gateway: Any) -> None:
    """Drop what earlier processes still hold in the JVM: py4j keeps it until they let go, and they have ended."""
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]  # py4j has no types

    server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    own = gateway.jvm.java.util.ArrayList()
    for name in ("GATEWAY_SERVER", "j", "t"):
        own.add(name)
    server.getGateway().getBindings().keySet().retainAll(own)


def python_of(wanted: Mapping[str, str]) -> str:
    """The Python of the workers, as `session.start` chooses it."""
    import sys

    return wanted.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def connect(lent: RunningSpark) -> Any:
    """A gateway of this process to the JVM."""
    from pyspark.java_gateway import launch_gateway

    with _told(PYSPARK_GATEWAY_PORT=str(lent.port), PYSPARK_GATEWAY_SECRET=lent.secret):
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark's own
    gateway.proc = ForeignProcess(lent)
    return gateway


def launch(options: SparkOptions, wanted: Mapping[str, str], jars: Sequence[Path], log: SparkLog, scratch: Path) -> Any:
    """Start a JVM that is to be lent; the gateway to it, to which this process has no connection. No Spark runs yet."""
    os.environ["PYSPARK_PYTHON"] = python_of(wanted)
    settings = _settings(options, wanted, jars, scratch)
    launched = _launch(options, settings, log, scratch, None)
    gateway = _reached(launched, options, settings, log, scratch)
    client = gateway._gateway_client
    connection = client.get_thread_connection()
    if connection is not None:
        client.deque.remove(connection)
        connection.close()
    return gateway


def lendable(options: SparkOptions, wanted: Mapping[str, str], jars: Sequence[Path]) -> dict[str, str]:
    """The settings of a Spark that is to be lent, as `misfit` compares them."""
    return of_context(_settings(options, wanted, jars))


def misfit(lent: RunningSpark, options: SparkOptions, wanted: Mapping[str, str], jars: Sequence[Path]) -> str | None:
    """The setting in which the Spark that is lent differs from what is wanted; None: it fits.

    It may have more extensions and libraries than are wanted: other pipelines of the file may need them.
    """
    if options.resolved_master != lent.options.resolved_master:
        return "`spark.master` differs"
    if options.memory != lent.options.memory:
        return "`spark.memory` differs"
    for key in sorted(options.config.keys() | lent.options.config.keys()):
        if options.config.get(key) != lent.options.config.get(key):
            return f"`spark.config` differs in {key}"
    for key, value in _settings(options, wanted, jars).items():
        if key.startswith((OF_A_SESSION, f"spark.executorEnv.{daemon.VARIABLE}")) or key == _JAVA_OPTIONS:
            continue  # Java's own options are ours, apart from those of `spark.config`; imports only save time
        has = lent.settings.get(key)
        if key in _LISTS:
            between = _LISTS[key]
            if set(value.split(between)) <= set((has or "").split(between)):
                continue
        elif has == value:
            continue
        return f"it was started without {key}, or with another"
    return None


def of_context(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings without those of a session."""
    return {key: value for key, value in settings.items() if not key.startswith(OF_A_SESSION)}


@contextlib.contextmanager
def _told(**variables: str) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
