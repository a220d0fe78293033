"""A run's own process, forked by the worker: it does what the command would have done, and gets its signals."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import STOPPED_IMMEDIATELY
from penstock.links.spark import attach
from penstock.links.spark.attach import RunningSpark
from penstock.warm import wire

_PR_SET_PDEATHSIG = 1
#: signals that a command passes on
FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: seconds that a command may take to say that the run may begin
BEGIN_SECONDS = 10.0


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _set_buffering(stream: object) -> None:
    """Set line buffering as a new interpreter does."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(line_buffering=stream is sys.stderr or os.isatty(stream.fileno()))


@dataclass(frozen=True)
class HandedRun:
    """A run that was handed over, in the process that is to run it."""

    connection: socket.socket
    #: the command's hello
    hello: Mapping[str, Any]
    spark: RunningSpark

    @property
    def env_file_variables(self) -> list[str]:
        """The variables that the command took from an env file."""
        return list(self.hello["added"])

    def run(self, command: Callable[[], object]) -> None:
        """Run the command as if it had been started here; ends as it ends, by SystemExit."""
        os.environ.clear()
        os.environ.update(self.hello["variables"])
        sys.argv = ["penstock", *self.hello["words"]]
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            _set_buffering(stream)
        for number in FORWARDED_SIGNALS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        self._await_begin()
        attach.offer(self.spark)
        threading.Thread(target=self._listen, name="penstock-command", daemon=True).start()
        gc.disable()
        try:
            command()
        except SystemExit as ended:
            self._report_end(ended.code)
            raise
        self._report_end(0)

    def _await_begin(self) -> None:
        """Nothing has happened so far: a command that has given up meanwhile runs by itself."""
        try:
            wire.send(self.connection, {"started": os.getpid()})
            message, _ = wire.receive(self.connection, BEGIN_SECONDS)
        except wire.Gone:
            os._exit(0)
        if not message.get("begin"):
            os._exit(0)

    def _listen(self) -> None:
        """Turn the command's messages, and its end, into signals of this process."""
        passed_on = False
        while True:
            try:
                message, _ = wire.receive(self.connection, None)
            except wire.Gone:
                os.kill(os.getpid(), signal.SIGTERM)
                return
            number = message.get("signal")
            if number == signal.SIGINT and passed_on:
                # Not by a signal: a process that was frozen would take two that come together for one.
                os.write(2, STOPPED_IMMEDIATELY)
                os._exit(128 + number)
            if number in FORWARDED_SIGNALS:
                passed_on = True
                os.kill(os.getpid(), number)

    def _report_end(self, code: Any) -> None:
        number = code if isinstance(code, int) else 0 if code is None else 1
        with contextlib.suppress(wire.Gone):  # the command has ended; this process ends now too
            wire.send(self.connection, {"done": number})
