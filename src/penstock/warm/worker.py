"""The worker: listens, forks a process for each run that is handed over, and ends when nobody needs it any more.

One thread, no connection: everything that talks to Spark or to a database is forked. One run at a time: a command that
comes meanwhile runs by itself.
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
from typing import Any, Protocol

from penstock.core.messages import stamp
from penstock.errors import PenstockError
from penstock.links.spark.attach import STATUS, RunningSpark
from penstock.warm import wire
from penstock.warm.child import Handed, die_with
from penstock.warm.compatibility import difference, fingerprint
from penstock.warm.memory import tree_bytes
from penstock.warm.store_watch import StoreWatch
from penstock.warm.worker_folder import SOCKET, WorkerFolder

#: seconds that a command may take to say what it wants, or to send its files
WORD_SECONDS = 2.0
#: seconds between two looks at the store
LOOK_SECONDS = 5.0
#: seconds between two looks at penstock's own files
CODE_SECONDS = 60.0


class KeptSpark(Protocol):
    """The JVM that a worker keeps: see `jvm.WarmSpark`."""

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def status(self) -> int | None: ...

    def wait(self) -> int: ...

    def describe(self, status_pipe: int, on_misfit: Callable[[str], object]) -> RunningSpark: ...

    def leave_to_parent(self) -> None: ...

    def stop_tasks(self) -> None: ...

    def end(self) -> None: ...


@dataclass
class Run:
    """A run that is under way in a forked process."""

    pid: int
    #: readable once the process has ended
    handle: int
    connection: socket.socket
    #: where the JVM's exit status is written for it
    ended: int


class Worker:
    """Serves until it ends itself or is stopped."""

    def __init__(
        self,
        place: WorkerFolder,
        name: str,
        lock: int,
        spark: KeptSpark,
        store: StoreWatch,
        *,
        description: Mapping[str, Any],
        idle_seconds: float,
        memory_limit: int,
        say: Callable[[str], object],
    ) -> None:
        """`lock` is held; `description` is of this process as it was started; `say` adds a line to the log."""
        self._place, self._name, self._lock = place, name, lock
        self._spark, self._store = spark, store
        self._description = description
        self._idle_seconds, self._memory_limit = idle_seconds, memory_limit
        self._say = say
        self._pid = os.getpid()
        self._since = datetime.now(UTC)
        self._runs = 0
        self._run: Run | None = None
        self._idle_since = time.monotonic()
        self._looked_at_code = time.monotonic()
        self._memory = tree_bytes(self._pid)
        #: why it ends; None: it serves
        self._why: str | None = None
        #: connections of those who asked it to stop: closed at the very end
        self._stoppers: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._listening = place.listen(name)
        self._jvm = os.pidfd_open(spark.pid)
        self._woken, self._wakes = socket.socketpair()

    def serve(self, on_ready: Callable[[], object]) -> Handed | None:
        """Serve until the end; in a process that was forked for a run, return that run instead."""
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._end_soon(f"signal {number}"))
        for file, what in ((self._listening, "asked"), (self._jvm, "jvm"), (self._woken, "woken")):
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

    def _loop(self) -> Handed | None:
        while self._why is None or self._run is not None:
            for key, _ in self._selector.select(self._patience()):
                if key.data == "asked":
                    if (handed := self._answer()) is not None:
                        return handed
                elif key.data == "jvm":
                    self._jvm_ended()
                elif key.data == "run":
                    self._run_ended()
                else:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(64)
            self._look()
        return None

    def _patience(self) -> float:
        left = self._idle_seconds - (time.monotonic() - self._idle_since)
        return LOOK_SECONDS if self._run is not None else max(0.0, min(LOOK_SECONDS, left))

    def _look(self) -> None:
        """End if there is a reason to, but never in the middle of a run."""
        if self._run is not None or self._why is not None:
            return
        now = time.monotonic()
        if now - self._idle_since >= self._idle_seconds:
            self._end_soon("idle")
        elif self._memory > self._memory_limit:
            self._end_soon(f"memory: {self._memory >> 20} MiB")
        elif self._store.is_gone():
            self._end_soon("its store is gone")
        elif now - self._looked_at_code >= CODE_SECONDS:
            self._looked_at_code = now
            self._look_at_code()

    def _look_at_code(self) -> None:
        if fingerprint() != self._description["code"]:
            self._end_soon("penstock or a package was changed")

    def _end_soon(self, why: str) -> None:
        """End once the run that is under way has ended; it is asked to stop if somebody stops the worker."""
        if self._why is None:
            self._why = why
        if self._run is not None and why.startswith(("signal", "asked")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._run.pid, signal.SIGTERM)

    # ------------------------------------------------------------ commands

    def _answer(self) -> Handed | None:
        """Hear what a command wants; in a process that was forked for it, the run."""
        connection, _ = self._listening.accept()
        keep = False
        try:
            if not wire.same_user(connection):
                return None
            message, _ = wire.receive(connection, WORD_SECONDS)
            if "hello" in message:
                return self._greet(connection, message["hello"])
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

    def _greet(self, connection: socket.socket, hello: Mapping[str, Any]) -> Handed | None:
        if (why := self._refusal(hello)) is not None:
            wire.send(connection, {"refused": why})
            return None
        wire.send(connection, {"ready": self._pid})
        message, files = wire.receive(connection, WORD_SECONDS, most_files=3)
        if not message.get("go") or len(files) != 3:
            for file in files:
                os.close(file)
            return None
        return self._fork(connection, hello, files)

    def _refusal(self, hello: Mapping[str, Any]) -> str | None:
        if hello.get("protocol") != wire.PROTOCOL:
            self._look_at_code()
            return "penstock's version differs"
        if self._why is not None:
            return "it is stopping"
        if self._run is not None:
            return f"it is busy with another run (pid {self._run.pid})"
        differs = difference(self._description, hello["description"])
        if differs is not None:
            self._look_at_code()
            return differs
        if self._store.is_gone():
            self._end_soon("its store is gone")
            return "its store was deleted or replaced"
        if self._spark.status() is not None:
            return "its JVM has exited"
        return None

    def _fork(self, connection: socket.socket, hello: Mapping[str, Any], files: list[int]) -> Handed | None:
        ended, tells = os.pipe()
        pid = os.fork()
        if pid:
            for file in (*files, ended):
                os.close(file)
            self._run = Run(pid, os.pidfd_open(pid), connection, tells)
            self._selector.register(self._run.handle, selectors.EVENT_READ, "run")
            return None
        die_with(self._pid)
        os.setsid()
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for socket_ in (self._listening, self._woken, self._wakes, *self._stoppers):
            socket_.close()
        for file in (tells, self._jvm, self._lock):
            os.close(file)
        self._spark.leave_to_parent()
        self._place.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)

        def on_misfit(why: str) -> None:
            os.write(2, f"note: this run does not use the warm worker's Spark and starts its own: {why}\n".encode())

        return Handed(connection, hello, self._spark.describe(ended, on_misfit))

    # ------------------------------------------------------------ ends

    def _run_ended(self) -> None:
        run, self._run = self._run, None
        assert run is not None
        self._selector.unregister(run.handle)
        os.close(run.handle)
        os.close(run.ended)
        status = os.waitstatus_to_exitcode(os.waitpid(run.pid, 0)[1])
        self._runs += 1
        with run.connection, contextlib.suppress(wire.Gone):
            run.connection.settimeout(WORD_SECONDS)
            wire.send(run.connection, {"ended": status})
        self._store.after_run()
        if status != 0 and self._spark.status() is None:
            try:
                self._spark.stop_tasks()
            except PenstockError as error:
                self._end_soon(error.what)
        self._memory = tree_bytes(self._pid)
        self._idle_since = time.monotonic()

    def _jvm_ended(self) -> None:
        self._selector.unregister(self._jvm)
        status = self._spark.wait()
        if self._run is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._run.ended, STATUS.pack(status))
        self._end_soon(f"its JVM has ended ({status})")

    def _end(self) -> None:
        """Leave nothing behind. Not in a forked process, where nothing of this is ours."""
        if os.getpid() != self._pid:
            return
        self._say(f"ends: {self._why or 'an error'}")
        self._place.remove(self._name + SOCKET)
        self._place.remove_aliases(self._name)
        self._listening.close()
        if self._run is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._run.pid, signal.SIGKILL)
        self._spark.end()
        for stopper in self._stoppers:
            stopper.close()
        # Last, so that the next worker does not begin before this one has ended.
        self._place.unlock(self._name, self._lock)

    def document(self) -> dict[str, Any]:
        """What the worker says of itself."""
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
