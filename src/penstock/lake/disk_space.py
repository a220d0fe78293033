"""Recognizes a full disk under a warehouse or its catalog."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.errors import PenstockError, StreamFailed

#: parts of the messages of the system, SQLite and Java about a full disk
_SIGNS = ("No space left", "Disk quota exceeded", "disk is full")
#: a disk with less than this left is full: SQLite and Java do not always name the reason
_LEFT_BYTES = 64 << 10


def is_full(error: BaseException, folder: str | None = None) -> bool:
    """Whether an error is that of a full disk; with a folder, also whether its disk is full now."""
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOSPC, errno.EDQUOT) or any(sign in str(error) for sign in _SIGNS):
        return True
    with suppress(OSError):
        return folder is not None and shutil.disk_usage(folder).free < _LEFT_BYTES
    return False


def make_no_space(location: str, *, pipeline: str, stream: str) -> StreamFailed:
    return StreamFailed(
        f"no space left for {location}",
        next_step="free some space and run again; the slice is moved again from its start",
        pipeline=pipeline,
        stream=stream,
    )


@contextmanager
def name_full_disk(location: str, *, pipeline: str, stream: str) -> Iterator[None]:
    """Raise a StreamFailed that names the full disk, if that is the reason for an error."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        if not is_full(error):
            raise
        raise make_no_space(location, pipeline=pipeline, stream=stream) from error
