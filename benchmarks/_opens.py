"""Which files of a folder are opened, by whichever process: the kernel's own word (inotify), so nothing is installed.

Counted from outside: the process that is watched does not know.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

_OPENED, _OVERFLOW, _FOLDER = 0x20, 0x4000, 0x40000000
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Opens:
    """The names of the files that are opened in one folder while this is entered; not in folders below it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle = -1
        #: complete once the `with` is left
        self.names: set[str] = set()

    def __enter__(self) -> Self:
        below = [path.name for path in self._folder.iterdir() if path.is_dir()]
        if below:
            raise SystemExit(f"{self._folder} has folders ({below[0]}), whose files would not be counted")
        self._handle = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        _checked(_libc.inotify_add_watch(self._handle, os.fsencode(self._folder), _OPENED))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while read := self._read():
                self._take(read)
        finally:
            os.close(self._handle)

    def _read(self) -> bytes:
        try:
            return os.read(self._handle, 1 << 16)
        except BlockingIOError:
            return b""

    def _take(self, events: bytes) -> None:
        at = 0
        while at < len(events):
            _, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size
            name = events[at : at + length].rstrip(b"\0")
            at += length
            if mask & _OVERFLOW:
                raise SystemExit("more files were opened than the kernel keeps word of")
            if name and not mask & _FOLDER:
                self.names.add(os.fsdecode(name))


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
