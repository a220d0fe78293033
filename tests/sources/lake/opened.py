"""Which files of a folder are opened, by whoever, seen from outside: the kernel tells (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPEN, _NONBLOCK = 0x20, 0o4000
_HEAD = struct.Struct("iIII")


@contextmanager
def opened(folder: Path) -> Iterator[list[str]]:
    """The names of files that were opened in a folder while the block ran, each once; filled in at its end."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(_NONBLOCK)
    if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(folder), _OPEN) < 0:
        raise OSError(ctypes.get_errno(), "the kernel does not tell", str(folder))
    found: list[str] = []
    try:
        yield found
        found += sorted(set(_names(watch)))
    finally:
        os.close(watch)


def _names(watch: int) -> Iterator[str]:
    while True:
        try:
            raw = os.read(watch, 1 << 20)
        except BlockingIOError:
            return
        at = 0
        while at < len(raw):
            _, mask, _, length = _HEAD.unpack_from(raw, at)
            assert not mask & 0x4000, "more happened than the kernel kept"
            name = raw[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0").decode()
            if name.endswith((".parquet", ".avro")):
                yield name
            at += _HEAD.size + length
