"""The command's side: find a worker, hand the run over to it, pass signals on, and end as the run ends.

Cheap where there is no worker: one look at a folder. Whatever goes wrong before the run has begun, the command runs by
itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from penstock.errors import STOPPED_IMMEDIATELY, StreamFailed
from penstock.warm import wire
from penstock.warm.worker_folder import WorkerFolder

#: seconds that a worker may take to answer before the command runs by itself
ANSWER_SECONDS = 2.0
#: seconds that a worker may take to fork
START_SECONDS = 5.0
#: seconds between the end of a run's process and the worker's word about it
EXIT_SECONDS = 2.0
NOTHING_LOST = "Nothing was lost: a mark moves only after its slice is in."


@dataclass(frozen=True)
class NotHandedOver:
    """There is a worker, and this run was not handed over to it."""

    why: str


def find_worker(path: str, store_name: Callable[[], str | None], *, use_alias: bool = True) -> socket.socket | None:
    """A connection to the worker of a pipeline file; None: there is none.

    `store_name` reads the file for the name of its store; it is asked only if a worker is there that may serve it.
    `use_alias`: the file itself says where its store is, so what the worker knows of it holds.
    """
    if sys.platform != "linux":
        return None
    folder = WorkerFolder.find()
    if folder is None:
        return None
    with folder:
        if not folder.any_socket():
            return None
        name = (folder.alias(path) if use_alias else None) or store_name()
        return folder.connect(name, ANSWER_SECONDS) if name is not None else None


def hand_over(
    connection: socket.socket, words: Sequence[str], variables: Mapping[str, str], added: Sequence[str]
) -> int | NotHandedOver:
    """Have the worker run a command, and wait for its end: the exit code.

    `variables` is this process's environment, of which an env file has `added` some.
    """
    from penstock.warm.compatibility import describe_process

    hello = {
        "protocol": wire.PROTOCOL,
        "words": list(words),
        "variables": dict(variables),
        "added": list(added),
        "description": describe_process(variables),
    }
    with connection:
        try:
            wire.send(connection, {"hello": hello})
            answer, _ = wire.receive(connection, ANSWER_SECONDS)
            if "refused" in answer:
                return NotHandedOver(str(answer["refused"]))
            sys.stdout.flush()
            sys.stderr.flush()
            wire.send(connection, {"go": True}, (0, 1, 2))
            answer, _ = wire.receive(connection, START_SECONDS)
            handle = os.pidfd_open(answer["started"])
            forwarder = _SignalForwarder(connection)
        except (wire.Gone, KeyError, ProcessLookupError):
            return NotHandedOver("it does not answer")
        with forwarder:
            try:
                forwarder.begin()
                return _wait_for_end(connection, handle, forwarder, answer["started"])
            finally:
                os.close(handle)


class _SignalForwarder:
    """Forwards signals to the run while it is open."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._before: dict[int, Any] = {}
        #: signals that came before the run has begun
        self._pending: list[int] | None = []
        self.number: int | None = None
        #: a second SIGINT has come: the command does not wait any longer than it must
        self.at_once = False
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._forward)

    def __enter__(self) -> _SignalForwarder:
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # A third one must not change how this command ends.
            signal.signal(number, signal.SIG_IGN if self.at_once else handler)

    def begin(self) -> None:
        """Let the run begin: from here on this command waits for its end."""
        self._send({"begin": True})
        pending, self._pending = self._pending or [], None
        for number in pending:
            self._send({"signal": number})

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.at_once = self.at_once or (self.number is not None and number == signal.SIGINT)
        self.number = self.number or number
        if self._pending is not None:
            self._pending.append(number)
        else:
            self._send({"signal": number})

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(wire.Gone):  # the waiting loop notices the end
            wire.send(self._connection, message)


def _wait_for_end(connection: socket.socket, handle: int, forwarder: _SignalForwarder, pid: int) -> int:
    """Wait for the worker's word about the end; the run's process itself is watched too."""
    done: int | None = None
    process_ended = False
    while True:
        # Short looks: a signal's handler does not end the wait by itself.
        seconds = EXIT_SECONDS if process_ended or forwarder.at_once else 1.0
        watched: list[Any] = [connection] if process_ended else [connection, handle]
        found, _, _ = select.select(watched, [], [], seconds)
        if connection in found:
            try:
                message, _ = wire.receive(connection, None)
            except wire.Gone:
                if done is not None:
                    return done
                raise _run_lost("the warm worker exited during the run") from None
            if "ended" in message:
                return _exit_code(int(message["ended"]), pid, forwarder)
            done = message.get("done", done)
        elif handle in found:
            process_ended = True
        elif process_ended:
            if done is not None:
                return done
            raise _run_lost(f"the warm worker's process for this run (pid {pid}) exited")
        elif forwarder.at_once:
            os.write(2, STOPPED_IMMEDIATELY)
            return 128 + signal.SIGINT


def _exit_code(status: int, pid: int, forwarder: _SignalForwarder) -> int:
    if status >= 0:
        return status
    if forwarder.number == -status:
        return 128 + forwarder.number  # it had come before the run could listen to signals
    raise _run_lost(f"the warm worker's process for this run (pid {pid}) was ended by signal {-status}")


def _run_lost(what: str) -> StreamFailed:
    return StreamFailed(what, safe=NOTHING_LOST, next_step="run the same command again to resume")
