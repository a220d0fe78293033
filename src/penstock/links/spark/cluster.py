"""Checks for a cluster, which a Spark in this process does not need: the master answers, and executors arrive."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from typing import Any

from penstock.errors import ConnectionFailed, InputError

#: seconds that an address may take to answer
ANSWER_SECONDS = 5.0
#: seconds between two looks at the cluster's executors
POLL_SECONDS = 1.0
#: workers of a cluster of unknown size, until it can be asked
ASSUMED_WORKERS = 4


def count_workers(master: str, config: Mapping[str, str], processors: int) -> int:
    """The number of parts that can move at the same time, according to the settings."""
    if master == "local":
        return 1
    if found := re.match(r"local\[\s*(\d+|\*)", master):
        return processors if found[1] == "*" else int(found[1])
    if found := re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,", master):
        return int(found[1]) * int(found[2])
    for name in ("spark.default.parallelism", "spark.cores.max"):
        if said := _number(config, name):
            return said
    executors, cores = _number(config, "spark.executor.instances"), _number(config, "spark.executor.cores")
    return executors * (cores or 1) if executors else ASSUMED_WORKERS


def _number(config: Mapping[str, str], name: str) -> int | None:
    text = config.get(name, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def refuse_connect(master: str, config: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """InputError for Spark Connect, which penstock cannot use yet."""
    connect = ["spark.remote"] if "spark.remote" in config else []
    connect += ["spark.api.mode"] if config.get("spark.api.mode") == "connect" else []
    connect += [f"spark.master {master}"] if master.startswith("sc://") else []
    connect += [name for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED") if name in environment]
    connect += ["SPARK_API_MODE"] if environment.get("SPARK_API_MODE") == "connect" else []
    if connect:
        raise InputError(
            f"{connect[0]} selects Spark Connect, which penstock does not support",
            next_step="remove it, and set a cluster's own address, as in `spark: {master: spark://host:7077}`, or "
            "leave `spark.master` out to run in this process",
        )


def check_master_answers(master: str) -> None:
    """ConnectionFailed if nobody listens at any address of a standalone master: Spark itself would try for a minute."""
    if not master.startswith("spark://"):
        return
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InputError(
                f"`spark.master` {master} is not the address of a cluster", next_step="write it as spark://host:7077"
            )
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise ConnectionFailed(
        f"Spark's master does not answer ({'; '.join(failures)})",
        next_step="see that the cluster is up and that this machine reaches it, or correct `spark.master`",
    )


class ExecutorWatch:
    """Notices a job for which a cluster gives no executor: Spark itself would wait for ever."""

    def __init__(self, session: Any, master: str, wait_seconds: float) -> None:
        self._session = session
        self._master = master
        #: seconds that a job may wait
        self._wait_seconds = wait_seconds
        self._looked = time.monotonic()
        #: since when a job waits
        self._waiting: float | None = None

    def look(self) -> None:
        """ConnectionFailed if a job has waited too long; asks the JVM now and then."""
        now = time.monotonic()
        if now - self._looked < POLL_SECONDS:
            return
        self._looked = now
        if not self._waits_for_executor():
            self._waiting = None
        elif self._waiting is None:
            self._waiting = now
        elif now - self._waiting > self._wait_seconds:
            raise ConnectionFailed(
                f"the cluster {self._master} has given this run no executor for {self._wait_seconds:g} s",
                next_step="see on the master's page that its workers are up and have cores and memory free for "
                "`spark.executor.memory`; `spark: {executor_seconds: 900}` waits longer",
            )

    def _waits_for_executor(self) -> bool:
        """Whether there are tasks to do and none is being done."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types

        try:
            tracker = self._session.sparkContext.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        except (Py4JError, OSError):
            return False  # the JVM has died: the thread that runs the job fails by itself
        known = [stage for stage in stages if stage is not None]
        left = [stage for stage in known if stage.numCompletedTasks < stage.numTasks]
        return bool(left) and not any(stage.numActiveTasks for stage in known)
