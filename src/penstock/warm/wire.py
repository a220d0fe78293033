"""What a command and a worker say to each other: JSON with its length before it, over a Unix socket of one user.

    command                     worker
    hello: who asks, for what →
                              ← ready, or refused and why
    go, with three files      →
                              ← started: the run's process, forked by the worker, waits
    begin                     →   only now anything runs: a command that gave up has not sent it
    signal: 2                 →
                              ← done: the run's process says how it ends
                              ← ended: the worker says how it has ended

`status` and `stop` are asked in the place of `hello`.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import time
from typing import Any

#: changes whenever either side must say something that the other would not understand
PROTOCOL = 1
#: bytes of one message, at most: an environment may have two million
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("iII")


class Gone(Exception):
    """The other side has closed the connection, does not answer in time, or does not speak this language."""


def same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user: the kernel says so."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, user, _group = _CREDENTIALS.unpack(found)
    return bool(user == os.geteuid())


def send(connection: socket.socket, message: dict[str, Any], files: tuple[int, ...] = ()) -> None:
    """Send a message, and open files with it. Gone if nobody takes it."""
    text = json.dumps(message).encode()
    content = _LENGTH.pack(len(text)) + text
    try:
        if files:
            about = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
            sent = connection.sendmsg([content], about)
            content = content[sent:]
        connection.sendall(content)
    except OSError as error:
        raise Gone(error.strerror or str(error)) from error


def receive(connection: socket.socket, seconds: float | None, most_files: int = 0) -> tuple[dict[str, Any], list[int]]:
    """The next message with the files that came with it; Gone if there is none within the time."""
    deadline = None if seconds is None else time.monotonic() + seconds
    files: list[int] = []
    try:
        (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline, files, most_files))
        if size > MAX_MESSAGE_BYTES:
            raise Gone("a message that is too long")
        message = json.loads(_exactly(connection, size, deadline, files, most_files))
        if not isinstance(message, dict):
            raise Gone("not a message")
    except (OSError, ValueError, Gone) as error:
        for file in files:
            os.close(file)
        raise error if isinstance(error, Gone) else Gone(str(error)) from error
    return message, files


def _exactly(connection: socket.socket, size: int, deadline: float | None, files: list[int], most_files: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        connection.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
        if most_files:
            room = socket.CMSG_SPACE(most_files * array.array("i").itemsize)
            found, about, _flags, _address = connection.recvmsg(size - len(content), room)
            for level, kind, data in about:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    numbers = array.array("i")
                    numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                    files += numbers
        else:
            found = connection.recv(size - len(content))
        if not found:
            raise Gone("the connection was closed")
        content += found
    return bytes(content)
