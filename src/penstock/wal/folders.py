"""The folder of each stream's log below the receiver's directory: one name for each stream, on every file system.

A stream is named by its users, and a folder's name must not leave the directory, nor be equal to another one on a disk
that ignores case or normalises letters. So a folder's name has ASCII letters in lower case, digits, `-`, `_` and `.`;
any other byte of the stream's name is %xx. No such name begins with a dot: files of the receiver itself may.
"""

from __future__ import annotations

import os
import re

from penstock.errors import UNTOUCHED, StreamRefused

#: bytes of a folder's name: file systems take 255
MOST_BYTES = 255
#: bytes that stand for themselves
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
_NAME = re.compile(r"(?!\.)(?:[a-z0-9_.-]|%[0-9a-f]{2})+")
_ESCAPE = re.compile(rb"%([0-9a-f]{2})")


def folder_of(directory: str, stream: str) -> str:
    """The folder of a stream's log; StreamRefused if no folder can have the stream's name."""
    return os.path.join(directory, _encode(stream))


def stream_of(folder: str) -> str | None:
    """The stream whose log a folder is for; None: its name is not one of `folder_of`."""
    name = os.path.basename(folder.rstrip("/"))
    if not _NAME.fullmatch(name):
        return None
    raw = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), name.encode())
    try:
        stream = raw.decode()
        return stream if _encode(stream) == name else None
    except (UnicodeDecodeError, StreamRefused):
        return None


def list_streams(directory: str) -> list[str]:
    """The streams that have a folder below a directory, by name."""
    names = os.listdir(directory) if os.path.isdir(directory) else ()
    folders = (os.path.join(directory, name) for name in names)
    return sorted(stream for folder in folders if (stream := stream_of(folder)) is not None and os.path.isdir(folder))


def _encode(stream: str) -> str:
    try:
        raw = stream.encode()
    except UnicodeEncodeError:
        raise _refused(stream, "has half of a surrogate pair, which is no character") from None
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in raw)
    if name.startswith("."):
        name = f"%2e{name[1:]}"
    if not name:
        raise _refused(stream, "is empty")
    if len(name) > MOST_BYTES:
        raise _refused(
            stream, f"takes {len(name)} bytes as the name of a folder, and {MOST_BYTES} are allowed", "a shorter name"
        )
    return name


def _refused(stream: str, reason: str, instead: str = "another name") -> StreamRefused:
    return StreamRefused(
        f"its name {stream[:40]!r}{'…' if len(stream) > 40 else ''} {reason}",
        safe=UNTOUCHED,
        next_step=f"give the stream {instead} (a capital letter or a special character takes 3 bytes for each of its "
        "bytes)",
    )
