"""Errors of the operating system while writing, in words with a next step."""

from __future__ import annotations

import errno

from penstock.errors import StreamFailed


def failed_write(pipeline: str, stream: str, root: str, error: OSError) -> StreamFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return StreamFailed(
            f"no space left for {root}",
            next_step="free some space and run again; the slice is moved again from its start",
            safe="Nothing was lost: the mark has not moved, and what was half written is not visible.",
            pipeline=pipeline,
            stream=stream,
        )
    if error.errno == errno.EXDEV:
        return StreamFailed(
            f"{error.filename2 or error.filename or root} is on another file system than the folder in which files are "
            "staged: a file cannot be renamed into it",
            next_step=f"make everything below {root} one file system again, then run again: it goes on with the files",
            safe="Nothing was lost: the files are staged, and the next run makes them visible.",
            pipeline=pipeline,
            stream=stream,
        )
    return StreamFailed(
        f"cannot write to {root}: {error.strerror or error}",
        next_step="check that the folder exists and that this user may write in it, then run again",
        pipeline=pipeline,
        stream=stream,
    )
