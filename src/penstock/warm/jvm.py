"""The worker's Spark: a JVM that lives as long as the worker, with a context that a forked process has made in it.

The worker itself never talks to the JVM: that takes connections and threads, and a worker must be able to fork. It
holds the pipe that ends the JVM when it is closed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, StreamFailed
from penstock.links.spark import attach, jars
from penstock.links.spark.archive import Archive
from penstock.links.spark.attach import RunningSpark, without_session_settings
from penstock.links.spark.daemon import start_workers
from penstock.links.spark.failures import jvm_died, start_failed
from penstock.links.spark.jvm import close_connection, end_process
from penstock.links.spark.log import SparkLog
from penstock.links.spark.session import JvmStarter, SparkOptions, all_settings, start, worker_python
from penstock.links.spark.temp_folder import SparkTempFolder, sweep_temp_folders
from penstock.warm.child import die_with

#: seconds that the tasks of a run that has ended may take to stop
STOP_TASKS_SECONDS = 20.0


class WarmSpark:
    """Starts the JVM, describes how to attach to it, and ends it."""

    def __init__(self, options: SparkOptions, settings: Mapping[str, str], packages: Sequence[str]) -> None:
        self._options = options
        self._files: list[Path] = jars.files(packages, settings)
        self._wanted = without_session_settings(settings)
        self._log = SparkLog()
        self._temp_folder: SparkTempFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._archive: Archive | None = None
        self._running: RunningSpark | None = None

    def start(self) -> None:
        """Start the JVM and a Spark in it, and run a job that has its Python workers import what they need."""
        os.environ["PYSPARK_PYTHON"] = worker_python(self._wanted)
        sweep_temp_folders()
        self._temp_folder = SparkTempFolder()
        folder = self._temp_folder.path
        settings = all_settings(self._options, self._wanted, self._files, folder)
        try:
            gateway = JvmStarter(self._options, settings, self._log, folder).connect()
        except (OSError, RuntimeError) as error:
            raise start_failed(self._options.resolved_master, str(error), self._log.keep(str(error))) from error
        close_connection(gateway._gateway_client)
        process: subprocess.Popen[bytes] = gateway.proc
        self._process, self._archive = process, vars(gateway).get("archive")
        self._running = RunningSpark(
            port=gateway.gateway_parameters.port,
            secret=gateway.gateway_parameters.auth_token,
            pid=process.pid,
            status_pipe=-1,
            options=self._options,
            settings=without_session_settings(all_settings(self._options, self._wanted, self._files)),
            on_misfit=lambda _: None,
        )
        self._in_fork(partial(self._start_context, folder))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def status(self) -> int | None:
        """The JVM's exit status; None: it lives."""
        return self._process.poll() if self._process is not None else None

    def wait(self) -> int:
        """The exit status of a JVM that is ending."""
        assert self._process is not None
        return self._process.wait()

    def describe(self, status_pipe: int, on_misfit: Callable[[str], object]) -> RunningSpark:
        """What a run's process needs to attach. `status_pipe` becomes readable when the JVM ends."""
        assert self._running is not None
        return replace(self._running, status_pipe=status_pipe, on_misfit=on_misfit)

    def leave_to_parent(self) -> None:
        """In a forked process: hold neither the JVM's pipe nor the lock of its folder."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.returncode = 0  # not ours to wait for
        if self._temp_folder is not None:
            self._temp_folder.leave_to_parent()

    def end(self) -> None:
        """End the JVM and remove its temporary files."""
        process = self._process
        lived = process is not None and process.poll() is None
        if process is not None:
            end_process(process)
        self._log.close()
        if self._temp_folder is not None:
            self._temp_folder.remove()
        if lived and self._archive is not None:
            self._archive.make_in_background()

    def stop_tasks(self) -> None:
        """Cancel whatever still runs for a process that has ended, and wait until it has stopped."""
        self._in_fork(_stop_tasks)

    def _in_fork(self, work: Callable[[Any], None]) -> None:
        """Let a forked process do something with the JVM, by a gateway of its own; its error arrives here."""
        offered = self._running
        assert offered is not None
        reading, writing = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            die_with(parent)
            self.leave_to_parent()
            # The worker sees for itself whether the JVM ends: nothing comes through this pipe.
            never, _held = os.pipe()
            _report(writing, lambda: work(attach.connect(replace(offered, status_pipe=never))))
        os.close(writing)
        with open(reading, "rb") as pipe:
            content = pipe.read()
        os.waitpid(pid, 0)
        status = self.status()
        if status is not None:
            raise jvm_died(status, self._log.keep("the JVM of the warm worker has ended"))
        error = (
            pickle.loads(content)
            if content
            else StreamFailed("the warm worker's own process died", next_step="run again")
        )
        if error is not None:
            raise error

    def _start_context(self, folder: Path, gateway: Any) -> None:
        """In a forked process: make the context and the first session, and run a small job."""
        from pyspark import SparkContext

        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
        session = start(self._options, self._wanted, self._files, self._log, folder)
        start_workers(session, self._options.workers)


def _report(writing: int, work: Callable[[], None]) -> None:
    """Do the work, send its error or None, and end this process without what a whole interpreter does at its end."""
    error: BaseException | None = None
    try:
        work()
    except PenstockError as known:
        error = known
    except BaseException as unknown:  # noqa: BLE001 (handed to the process that waits)
        error = StreamFailed(f"Spark failed: {type(unknown).__name__}: {unknown}", next_step="run again")
    with open(writing, "wb") as pipe:
        pipe.write(pickle.dumps(error))
    os._exit(0)


def _stop_tasks(gateway: Any) -> None:
    import time

    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    context.cancelAllJobs()
    deadline = time.monotonic() + STOP_TASKS_SECONDS
    while sum(info.numRunningTasks() for info in context.statusTracker().getExecutorInfos()):
        if time.monotonic() > deadline:
            raise StreamFailed("timed out waiting for the tasks of an ended run to stop", next_step="run again")
        time.sleep(0.05)
        context.cancelAllJobs()
