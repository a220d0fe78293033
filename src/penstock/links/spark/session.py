"""A Spark session for moving parts: local by default, lazily started, bound to loopback."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.links.spark import daemon
from penstock.links.spark.archive import Archive
from penstock.links.spark.background_start import BackgroundStart, cancelled_error
from penstock.links.spark.cluster import check_master_answers, count_workers, refuse_connect
from penstock.links.spark.failures import jvm_died, start_failed
from penstock.links.spark.jvm import Jvm, end_process
from penstock.links.spark.launch import Command, LaunchedJvm
from penstock.links.spark.log import SparkLog

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
    #: seconds that a cluster may take to give an executor
    executor_seconds: float = 300.0

    @property
    def resolved_master(self) -> str:
        return self.master or f"local[{min(os.cpu_count() or 1, MOST_WORKERS)},3]"

    @property
    def one_process(self) -> bool:
        """Whether the driver is all there is of it (`local-cluster` has executors of its own)."""
        return re.match(r"local(\[|$)", self.resolved_master) is not None

    @property
    def workers(self) -> int:
        """Parts that can move at the same time, as far as is known before a cluster is asked."""
        return count_workers(self.resolved_master, self.config, os.cpu_count() or 1)


EXTENSIONS = "spark.sql.extensions"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: Java's own setting for its temporary files; Spark's is `spark.local.dir`
_TEMPORARY = "-Djava.io.tmpdir"
#: settings that are lists, each with its separator
LIST_SEPARATORS = {
    EXTENSIONS: ",",
    "spark.jars": ",",
    "spark.jars.packages": ",",
    "spark.driver.extraClassPath": os.pathsep,
}
#: names of settings whose values are secrets: Spark's own list has neither a catalog's headers nor its credential
SECRET = "(?i)secret|password|passphrase|token|credential|authorization|header|access[.]?key|account[.]?key"
#: given to the JVM once it runs: on a command line, every user of the machine could read a password
_PRIVATE = ("spark.sql.", "spark.hadoop.")
#: which Python the workers run
_PYTHON = "spark.pyspark.python"
#: what they are forked from, and the variables that it and they get
_DAEMON, _VARIABLE = "spark.python.daemon.module", "spark.executorEnv."


def merge_settings(settings: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Settings with more added: lists are joined; InputError where two values contradict each other."""
    result = dict(settings)
    for key, value in more.items():
        known = result.get(key, value)
        if key in LIST_SEPARATORS:
            separator = LIST_SEPARATORS[key]
            result[key] = separator.join(dict.fromkeys(known.split(separator) + value.split(separator)))
        elif known != value:
            raise InputError(
                f"source and sink need different values of Spark's setting {key}",
                next_step="remove it from `spark.config` in the pipeline file, or give both the same options; "
                "two lakes need different values of `catalog.name`",
            )
        else:
            result[key] = value
    return result


def start(
    options: SparkOptions,
    wanted: Mapping[str, str],
    jars: Sequence[Path],
    log: SparkLog,
    temp_folder: Path,
    attempt: BackgroundStart | None = None,
) -> Any:
    """A session; InputError with what to install if Spark cannot start here. `temp_folder` is for temporary files.

    The JVM is registered with the `attempt`, so that it can be given up.
    """
    # PySpark looks nowhere else for it, whatever the settings say.
    os.environ["PYSPARK_PYTHON"] = worker_python(wanted)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = all_settings(options, wanted, jars, temp_folder)
    starter = JvmStarter(options, settings, log, temp_folder, attempt)
    early = None
    if "pyspark" not in sys.modules:
        refuse_connect(options.resolved_master, wanted, os.environ)
        # The JVM begins while PySpark is imported.
        early = starter.launch()
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        refuse_connect(options.resolved_master, wanted, os.environ)
        check_master_answers(options.resolved_master)
    builder = SparkSession.builder.master(options.resolved_master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    launched: Jvm | None = None
    try:
        with SparkContext._lock:
            if SparkContext._gateway is None:
                gateway = starter.connect(early)
                SparkContext._gateway = gateway
                SparkContext._jvm = gateway.jvm
                launched = Jvm(gateway)
            elif early is not None:
                end_process(early.process)  # another thread was quicker
        session = _new_session(SparkSession, builder, settings)
    except (PySparkException, OSError, RuntimeError) as error:
        status = launched.status(error) if launched is not None else None
        if launched is not None:
            launched.end()
        if attempt is not None and attempt.given_up:
            raise cancelled_error() from error
        if status is not None:
            raise jvm_died(status, log.keep(str(error))) from error
        raise start_failed(options.resolved_master, str(error), log.keep(str(error))) from error
    if launched is not None:
        log.take_errors_of(session.sparkContext._accumulatorServer)
    _check_extensions(session, settings)
    return session


def _public(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that everyone may see on a command line."""
    return {key: value for key, value in settings.items() if not is_private(key)}


def is_private(key: str) -> bool:
    return key.startswith(_PRIVATE) or re.search(SECRET, key) is not None


@dataclass(frozen=True)
class JvmStarter:
    """Starts a JVM for Spark with some settings, and connects to it."""

    options: SparkOptions
    settings: Mapping[str, str]
    log: SparkLog
    temp_folder: Path
    #: notes the JVM, and says whether the start was given up
    attempt: BackgroundStart | None = None

    def connect(self, launched: LaunchedJvm | None = None) -> Any:
        """The gateway of the JVM that was launched; without one, launch it now.

        Should a JVM die as it starts with an archive, the archive is removed and another JVM started without it.
        """
        launched = launched or self.launch()
        if launched is None:
            return self._submit()
        try:
            return launched.gateway()
        except RuntimeError:
            given_up = self.attempt is not None and self.attempt.given_up
            if launched.archive is None or not launched.uses_archive or given_up:
                raise
            end_process(launched.process)
            launched.archive.remove()
            again = self.launch()
            if again is None:
                raise
            return again.gateway()

    def launch(self) -> LaunchedJvm | None:
        """Start the JVM ourselves; None: only `spark-submit` can."""
        public = _public(self.settings) | {"spark.master": self.options.resolved_master}
        command = Command.plain(public, os.environ) if self.options.one_process else None
        if command is None:
            return None
        with self.log.opened(self.temp_folder) as handle:
            launched = command.launch(self.temp_folder, handle, Archive.of(command))
        if self.attempt is not None:
            self.attempt.register(launched.process)
        return launched

    def _submit(self) -> Any:
        """The gateway of a JVM that `spark-submit` starts."""
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf().setMaster(self.options.resolved_master).setAll(list(_public(self.settings).items()))
        # Our own standard error is not redirected meanwhile: the last message after a signal must get through.
        with self.log.opened(self.temp_folder) as handle:
            return launch_gateway(conf, {"stderr": handle})  # type: ignore[no-untyped-call]  # pyspark's own


def _new_session(sessions: Any, builder: Any, settings: Mapping[str, str]) -> Any:
    """A new session; beside one that somebody else in this process has started, with our settings in ours alone."""
    theirs = sessions._instantiatedSession
    if theirs is None or theirs._sc._jsc is None:
        return builder.getOrCreate()
    ours = theirs.newSession()
    sessions._get_j_spark_session_module(ours._jvm).applyModifiableSettings(ours._jsparkSession, dict(settings))
    return ours


def _check_extensions(session: Any, settings: Mapping[str, str]) -> None:
    """A session that someone else had started keeps its own extensions and ignores ours without a word."""
    running = session.conf.get(EXTENSIONS, "").split(",")
    missing = [name for name in settings.get(EXTENSIONS, "").split(",") if name and name not in running]
    if missing:
        raise InputError(
            f"this process runs a Spark session without {', '.join(missing)}",
            next_step=f"start it with {EXTENSIONS} set, or run this in a process of its own",
        )


def all_settings(
    options: SparkOptions, wanted: Mapping[str, str], jars: Sequence[Path], temp_folder: Path | None = None
) -> dict[str, str]:
    """All of a session's settings: ours give way to what is wanted."""
    settings = {
        "spark.app.name": "penstock",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": options.memory,
        # Rows never enter the JVM: one collector thread and the first compiler are enough, and start sooner. A heap
        # that begins small takes 85 MiB less; room for classes keeps Java from collecting garbage while it loads them.
        JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms64m -XX:MetaspaceSize=160m",
        "spark.log.level": "ERROR",
        "spark.redaction.regex": SECRET,
    }
    if options.one_process:
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if temp_folder is not None:
        settings["spark.local.dir"] = str(temp_folder)
    if options.one_process and worker_python(wanted) == sys.executable:
        settings[_DAEMON] = daemon.__name__
        if any("iceberg" in jar.name for jar in jars):
            settings[_VARIABLE + daemon.VARIABLE] = ",".join(daemon.IMPORTED_WITH_LAKE)
    settings |= wanted
    if temp_folder is not None and _TEMPORARY not in settings[JAVA_OPTIONS]:
        settings[JAVA_OPTIONS] += f' "{_TEMPORARY}={temp_folder}"'
    if jars:
        # Spark would copy what `spark.jars` names at every start, 60 MB; the driver finds it where it lies.
        settings = merge_settings(settings, {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))})
    if jars and not options.one_process:
        settings = merge_settings(settings, {"spark.jars": ",".join(map(str, jars))})
    return settings


def worker_python(wanted: Mapping[str, str]) -> str:
    """The Python that the workers run."""
    return wanted.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
