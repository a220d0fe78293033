"""A disk that is full, and one that fails: what a log meets below it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on a file system of this size: a tmpfs, or where mounting is not allowed, calls that fail as on one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        with monkeypatch.context() as patch:
            _limit(folder, size, patch)
            yield folder
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _limit(folder: Path, size: int, patch: pytest.MonkeyPatch) -> None:
    """What is written below a folder counts in pages, as on a tmpfs."""
    real_pwrite, real_fsync, real_statvfs = os.pwrite, os.fsync, os.statvfs

    def used() -> int:
        return sum(-(-each.stat().st_size // 4096) * 4096 for each in folder.rglob("*") if each.is_file())

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        room = max(0, size - used()) + -os.fstat(descriptor).st_size % 4096
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_pwrite(descriptor, bytes(data)[:room], offset)

    def fsync(descriptor: int) -> None:
        if used() > size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_fsync(descriptor)

    def statvfs(path: str) -> os.statvfs_result:
        found = [*real_statvfs(path)]
        found[1], found[4] = 4096, max(0, size - used()) // 4096
        return os.statvfs_result(found)

    patch.setattr(os, "pwrite", pwrite)
    patch.setattr(os, "fsync", fsync)
    patch.setattr(os, "statvfs", statvfs)
