"""A disk that is full, and one that fails: what a log meets below it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

#: runs the command with a folder that is a small disk; for a machine on which mounting is not allowed
LIMITED = """
import sys
from pathlib import Path
import pytest
from tests.wal.disks import limit
limit(Path(sys.argv[1]), int(sys.argv[2]), pytest.MonkeyPatch())
sys.argv[1:] = sys.argv[3:]
from penstock.cli import main
main()
"""


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[bool]:
    """A tmpfs of this size at a folder; False where mounting is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def small_disk(folder: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on a file system of this size: a tmpfs, or calls that fail as on one."""
    with mounted(folder, size) as is_mounted, monkeypatch.context() as patch:
        if not is_mounted:
            limit(folder, size, patch)
        yield folder


def limit(folder: Path, size: int, patch: pytest.MonkeyPatch) -> None:
    """What is written below a folder counts in pages, as on a tmpfs."""
    real_pwrite, real_fsync, real_statvfs = os.pwrite, os.fsync, os.statvfs

    def pwritev(descriptor: int, pieces: Sequence[bytes], offset: int) -> int:
        return pwrite(descriptor, b"".join(pieces), offset)

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
    patch.setattr(os, "pwritev", pwritev)
    patch.setattr(os, "fsync", fsync)
    patch.setattr(os, "statvfs", statvfs)
