"""A full disk under a warehouse or its catalog, told from every other failure."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError, StreamFailed

#: what the system, SQLite and Java say of a full disk
_SIGNS = ("No space left", "Disk quota exceeded", "disk is full")


def is_full(error: BaseException) -> bool:
    code = error.errno if isinstance(error, OSError) else None
    return code in (errno.ENOSPC, errno.EDQUOT) or any(sign in str(error) for sign in _SIGNS)


def make_no_space(location: str, *, pipeline: str, stream: str) -> StreamFailed:
    return StreamFailed(
        f"no space left for {location}",
        next_step="free some space and run again; the slice is moved again from its start",
        pipeline=pipeline,
        stream=stream,
    )


@contextmanager
def name_full_disk(location: str, *, pipeline: str, stream: str) -> Iterator[None]:
    """A full disk as the StreamFailed that names it; everything else as it is."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        if not is_full(error):
            raise
        raise make_no_space(location, pipeline=pipeline, stream=stream) from error
