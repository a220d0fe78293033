"""Files and folders that survive a power cut: contents and names are on disk before the caller continues."""

from __future__ import annotations

import os


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until the contents of a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: str, mode: int = 0o777) -> None:
    """Create a folder and each missing folder above it, and sync each new name."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_folder(parent, mode)
    os.makedirs(path, mode, exist_ok=True)
    sync(parent)


def write_durably(path: str, text: str) -> None:
    """Write a file and sync its contents. The caller renames or links it, and syncs the folder that has its name."""
    write_bytes_durably(path, text.encode())


def write_bytes_durably(path: str, content: bytes) -> None:
    """The same for bytes."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
