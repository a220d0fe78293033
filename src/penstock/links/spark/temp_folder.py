"""A folder for the temporary files of one Spark. It is removed with it; those of killed processes are swept.

The folder is locked while its process lives, and the kernel frees the lock however the process ends. So a folder with a
free lock has no owner any more, also after a reboot, and also if another process has the owner's id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

#: what the folder's name begins with; the process id follows, for people who look
PREFIX = "penstock-spark-of-"


class SparkTempFolder:
    """A folder that belongs to this process as long as it lives."""

    def __init__(self) -> None:
        # Under another name until it is locked: a process that sweeps meanwhile must not take it for a leftover.
        made = tempfile.mkdtemp(prefix=".penstock-")
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # a file system without locks: nobody sweeps there either
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        name = f"{PREFIX}{os.getpid()}-{os.path.basename(made).removeprefix('.penstock-')}"
        self.path = Path(made).rename(Path(made).with_name(name))

    def remove(self) -> None:
        """Remove it with everything in it. What a JVM that is just ending still holds is no failure of ours."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def leave_to_parent(self) -> None:
        """In a forked process: leave the folder and its lock to the process that made it."""
        os.close(self._lock)


def sweep_temp_folders() -> None:
    """Remove the folders of this user's processes that have ended without removing theirs."""
    for entry in os.scandir(tempfile.gettempdir()):
        if not entry.name.startswith(PREFIX):
            continue
        with contextlib.suppress(OSError):  # gone already, or its process lives
            handle = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.getuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(handle)
