"""The worker: listens, forks a process for each run that is handed over, and ends when it is not needed any more.

It has one thread and no connection: a forked process does everything that talks to Spark or to a database. It serves
one run at a time; a command that comes meanwhile runs by itself.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.core.messages import stamp
from penstock.errors import PenstockError
from penstock.links.spark.attach import STATUS
from penstock.warm import wire
from penstock.warm.child import HandedRun, die_with
from penstock.warm.compatibility import code_fingerprint, find_difference
from penstock.warm.memory import tree_bytes
from penstock.warm.store_watch import GONE, StoreWatch

if TYPE_CHECKING:
    from penstock.warm.jvm import WarmSpark
from penstock.warm.worker_folder import SOCKET, WorkerFolder

#: seconds that a command may take to send a message
MESSAGE_SECONDS = 2.0
#: seconds between two looks at the store
STORE_POLL_SECONDS = 5.0
#: seconds between two comparisons of penstock's own files
CODE_POLL_SECONDS = 60.0


@dataclass
class Run:
    """A run that is under way in a forked process."""

    pid: int
    #: readable once the process has ended
    handle: int
    connection: socket.socket
    #: where the JVM's exit status is written for it
    status_pipe: int


class Worker:
    """Serves until it ends itself or is stopped."""

    def __init__(
        self,
        folder: WorkerFolder,
        name: str,
        lock: int,
        spark: WarmSpark,
        store: StoreWatch,
        *,
        description: Mapping[str, Any],
        idle_seconds: float,
        memory_limit: int,
        log: Callable[[str], object],
    ) -> None:
        """`lock` is held; `description` is of this process as it was started; `log` adds a line to the log."""
        self._folder, self._name, self._lock = folder, name, lock
        self._spark, self._store = spark, store
        self._description = description
        self._idle_seconds, self._memory_limit = idle_seconds, memory_limit
        self._log = log
        self._pid = os.getpid()
        self._since = datetime.now(UTC)
        self._runs = 0
        self._run: Run | None = None
        self._idle_since = time.monotonic()
        self._code_checked_at = time.monotonic()
        self._memory = tree_bytes(self._pid)
        #: why it ends; None: it serves
        self._end_reason: str | None = None
        #: connections of those who asked it to stop: closed at the very end
        self._stoppers: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._listening = folder.listen(name)
        self._jvm = os.pidfd_open(spark.pid)
        self._wake_reader, self._wake_writer = socket.socketpair()

    def serve(self, on_ready: Callable[[], object]) -> HandedRun | None:
        """Serve until the end; in a process that was forked for a run, return that run instead."""
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._end_soon(f"signal {number}"))
        for file, what in ((self._listening, "asked"), (self._jvm, "jvm"), (self._wake_reader, "woken")):
            self._selector.register(file, selectors.EVENT_READ, what)
        on_ready()
        try:
            handed = self._loop()
        except BaseException:
            self._end()
            raise
        if handed is None:
            self._end()
        return handed

    def _loop(self) -> HandedRun | None:
        while self._end_reason is None or self._run is not None:
            for key, _ in self._selector.select(self._select_seconds()):
                if key.data == "asked":
                    if (handed := self._answer()) is not None:
                        return handed
                elif key.data == "jvm":
                    self._on_jvm_end()
                elif key.data == "run":
                    self._on_run_end()
                else:
                    with contextlib.suppress(BlockingIOError):
                        self._wake_reader.recv(64)
            self._check_reasons_to_end()
        return None

    def _select_seconds(self) -> float:
        left = self._idle_seconds - (time.monotonic() - self._idle_since)
        return STORE_POLL_SECONDS if self._run is not None else max(0.0, min(STORE_POLL_SECONDS, left))

    def _check_reasons_to_end(self) -> None:
        """End if there is a reason to, but never in the middle of a run."""
        if self._run is not None or self._end_reason is not None:
            return
        now = time.monotonic()
        if now - self._idle_since >= self._idle_seconds:
            self._end_soon("idle")
        elif self._runs and self._memory > self._memory_limit:
            self._end_soon(f"memory: {self._memory >> 20} MiB")
        elif (why := self._store.why_gone()) is not None:
            self._end_soon(why)
        elif now - self._code_checked_at >= CODE_POLL_SECONDS:
            self._code_checked_at = now
            self._check_code()

    def _check_code(self) -> None:
        if code_fingerprint() != self._description["code"]:
            self._end_soon("penstock or a package was changed")

    def _end_soon(self, why: str) -> None:
        """End once the run that is under way has ended; it is asked to stop if somebody stops the worker."""
        if self._end_reason is None:
            self._end_reason = why
        if self._run is not None and why.startswith(("signal", "asked")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._run.pid, signal.SIGTERM)

    # ------------------------------------------------------------ commands

    def _answer(self) -> HandedRun | None:
        """Answer a command; in a process that was forked for it, return its run."""
        connection, _ = self._listening.accept()
        keep = False
        try:
            if not wire.same_user(connection):
                return None
            message, _ = wire.receive(connection, MESSAGE_SECONDS)
            if "hello" in message:
                return self._accept(connection, message["hello"])
            if "status" in message:
                wire.send(connection, {"status": self.document()})
            elif "stop" in message:
                wire.send(connection, {"stopping": self.document()})
                self._stoppers.append(connection)
                keep = True
                self._end_soon("asked to stop")
        except wire.Gone:
            return None  # it has ended, or is frozen
        finally:
            keep = keep or (self._run is not None and self._run.connection is connection) or os.getpid() != self._pid
            if not keep:
                connection.close()
        return None

    def _accept(self, connection: socket.socket, hello: Mapping[str, Any]) -> HandedRun | None:
        if (why := self._refusal(hello)) is not None:
            wire.send(connection, {"refused": why})
            return None
        wire.send(connection, {"ready": self._pid})
        message, files = wire.receive(connection, MESSAGE_SECONDS, most_files=3)
        if not message.get("go") or len(files) != 3:
            for file in files:
                os.close(file)
            return None
        return self._fork(connection, hello, files)

    def _refusal(self, hello: Mapping[str, Any]) -> str | None:
        if hello.get("protocol") != wire.PROTOCOL:
            self._check_code()
            return "penstock's version differs"
        if self._end_reason is not None:
            return "it is stopping"
        if self._run is not None:
            return f"it is busy with another run (pid {self._run.pid})"
        differs = find_difference(self._description, hello["description"])
        if differs is not None:
            self._check_code()
            return differs
        if (why := self._store.why_gone()) is not None:
            self._end_soon(why)
            return "its store was deleted or replaced" if why == GONE else why
        if self._spark.status() is not None:
            return "its JVM has exited"
        return None

    def _fork(self, connection: socket.socket, hello: Mapping[str, Any], files: list[int]) -> HandedRun | None:
        status_pipe, writing = os.pipe()
        pid = os.fork()
        if pid:
            for file in (*files, status_pipe):
                os.close(file)
            self._run = Run(pid, os.pidfd_open(pid), connection, writing)
            self._selector.register(self._run.handle, selectors.EVENT_READ, "run")
            return None
        die_with(self._pid)
        os.setsid()
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for socket_ in (self._listening, self._wake_reader, self._wake_writer, *self._stoppers):
            socket_.close()
        for file in (writing, self._jvm, self._lock):
            os.close(file)
        self._spark.leave_to_parent()
        self._folder.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)

        def on_misfit(why: str) -> None:
            os.write(2, f"note: this run does not use the warm worker's Spark and starts its own: {why}\n".encode())

        return HandedRun(connection, hello, self._spark.describe(status_pipe, on_misfit))

    # ------------------------------------------------------------ ends

    def _on_run_end(self) -> None:
        run, self._run = self._run, None
        assert run is not None
        self._selector.unregister(run.handle)
        os.close(run.handle)
        os.close(run.status_pipe)
        status = os.waitstatus_to_exitcode(os.waitpid(run.pid, 0)[1])
        self._runs += 1
        with run.connection, contextlib.suppress(wire.Gone):
            run.connection.settimeout(MESSAGE_SECONDS)
            wire.send(run.connection, {"ended": status})
        self._store.after_run()
        if status != 0 and self._spark.status() is None:
            try:
                self._spark.stop_tasks()
            except PenstockError as error:
                self._end_soon(error.what)
        self._memory = tree_bytes(self._pid)
        self._idle_since = time.monotonic()

    def _on_jvm_end(self) -> None:
        self._selector.unregister(self._jvm)
        status = self._spark.wait()
        if self._run is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._run.status_pipe, STATUS.pack(status))
        self._end_soon(f"its JVM has ended ({status})")

    def _end(self) -> None:
        """Leave nothing behind. Not in a forked process, where nothing of this is ours."""
        if os.getpid() != self._pid:
            return
        self._log(f"ends: {self._end_reason or 'an error'}")
        self._folder.remove(self._name + SOCKET)
        self._folder.remove_aliases(self._name)
        self._listening.close()
        if self._run is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._run.pid, signal.SIGKILL)
        self._spark.end()
        for stopper in self._stoppers:
            stopper.close()
        # Last, so that the next worker does not begin before this one has ended.
        self._folder.unlock(self._name, self._lock)

    def document(self) -> dict[str, Any]:
        """The worker's status."""
        idle = 0.0 if self._run is not None else time.monotonic() - self._idle_since
        ends = datetime.now(UTC) + timedelta(seconds=self._idle_seconds - idle)
        return {
            "pid": self._pid,
            "since": stamp(self._since),
            "runs": self._runs,
            "running": self._run.pid if self._run is not None else None,
            "idle_seconds": round(idle, 1),
            "memory_bytes": self._memory,
            "memory_limit_bytes": self._memory_limit,
            "ends_at": None if self._run is not None else stamp(ends),
        }
