"""The JVM of this process's Spark: its connection, its exit status, and its end."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.links.spark.archive import Archive

#: seconds that a JVM is given to end by itself
END_SECONDS = 10
#: seconds between a connection that breaks and the end of its process
_EXIT_LAG_SECONDS = 5
#: seconds between two tries to wake a server
_WAKE_SECONDS = 0.02
#: the exit status that Spark gives itself when its heap is full
HEAP_FULL_STATUS = 52


class Jvm:
    """The process behind a gateway of PySpark. One that others have started has no process that we know of."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
        #: of its classes, if we have started it ourselves
        # Not by getattr: a gateway that `spark-submit` has opened takes any name for one of Java's.
        self.archive: Archive | None = vars(gateway).get("archive")

    @classmethod
    def current(cls) -> Jvm | None:
        """The one that PySpark uses at present; PySpark is not imported for that."""
        if "pyspark" not in sys.modules:
            return None
        from pyspark import SparkContext

        return None if SparkContext._gateway is None else cls(SparkContext._gateway)

    def status(self, error: BaseException | None = None) -> int | None:
        """Its exit status, negative for a signal; None: it lives, as far as we know.

        After an error that only a broken connection has, its end is waited for: the process ends a little later.
        """
        if self._process is None:
            return None
        if error is not None and _is_broken_connection(error):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(timeout=_EXIT_LAG_SECONDS)
        return self._process.poll()

    def end(self, *, at_once: bool = False) -> None:
        """End it, unless it is dead, and have PySpark forget it with its context and session: the next one is new.

        A Spark in it that was stopped has nothing left to do: then it can be ended `at_once`.
        """
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        with SparkContext._lock:
            if SparkContext._gateway is not self._gateway:
                return  # somebody has done so already
            context, SparkContext._active_spark_context = SparkContext._active_spark_context, None
            SparkSession._instantiatedSession = SparkSession._activeSession = None
            SparkContext._gateway = SparkContext._jvm = None
        gateway: Any = self._gateway
        gateway.shutdown()
        if self._process is not None:
            if at_once:
                self._process.kill()
            end_process(self._process)
        if context is not None:
            context._jsc = None  # not to be asked any more
            server: Any = context._accumulatorServer
            if server is not None:
                server.shutdown = partial(_wake_and_shut_down, server, server.shutdown)
            context.stop()


def forget_dead() -> None:
    """Have PySpark forget a JVM that has died."""
    before = Jvm.current()
    if before is not None and before.status() is not None:
        before.end()


def has_context() -> bool:
    """Whether this process has a SparkContext, made by penstock or not."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a JVM: it exits when its standard input is closed."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_session(session: Any) -> None:
    """Stop Spark in a JVM that may die meanwhile. PySpark's own part of it ends with the JVM: see `Jvm.end`.

    PySpark would now wait for its server of accumulators, which waits a second for a JVM that still lives.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types

    context = session.sparkContext
    with contextlib.suppress(Py4JError, OSError):
        if context._jsc is not None:
            context._jsc.stop()


def _wake_and_shut_down(server: Any, shutdown: Callable[[], None]) -> None:
    """Wake a `socketserver` until it has seen that it is to shut down."""
    thread = threading.Thread(target=shutdown, daemon=True)
    thread.start()
    while thread.is_alive():
        with contextlib.suppress(OSError), socket.socket(server.address_family, server.socket_type) as waker:
            waker.settimeout(_WAKE_SECONDS)
            waker.connect(server.server_address)
        thread.join(_WAKE_SECONDS)


def _is_broken_connection(error: BaseException) -> bool:
    """Whether the failure is that of a connection to the JVM: py4j's own error, without one of Java's inside."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError) or type(error) is Py4JError


def close_connection(client: Any) -> None:
    """Close this thread's connection to the JVM, which py4j would leave to the garbage collector."""
    connection = client.get_thread_connection()
    if connection is not None:
        with contextlib.suppress(ValueError):  # another thread has closed it
            client.deque.remove(connection)
        connection.close()
