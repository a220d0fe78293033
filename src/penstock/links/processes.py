"""Identifies processes of this machine by what the kernel says about them in /proc."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from penstock.ports import Owner

#: fields of `stat_fields`
STATE, START_TIME = 0, 19


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; empty if the process has ended or is hidden.

    The second field, the process's name in parentheses, may contain anything.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def this_process() -> Owner:
    """The identity of this process, by which others recognize it."""
    pid = os.getpid()
    return Owner(
        token=secrets.token_hex(16),
        host=socket.gethostname(),
        pid=pid,
        boot=_boot(),
        started="".join(stat_fields(pid)[START_TIME : START_TIME + 1]),
    )


def has_ended(owner: Owner) -> bool:
    """Whether a process has certainly ended; False if this machine cannot know."""
    if not owner.boot or not owner.started or owner.boot != _boot():
        return False
    try:
        # Ask the kernel: /proc may hide the processes of other users.
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    fields = stat_fields(owner.pid)
    return bool(fields) and (fields[START_TIME] != owner.started or _is_zombie(owner.pid, fields))


def _boot() -> str:
    """The id of this boot and process namespace; "" if the system does not provide it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _is_zombie(pid: int, fields: list[str]) -> bool:
    """Whether a process has exited and its parent has not waited for it. Its first thread may end before the others."""
    try:
        return fields[STATE] == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return False  # its parent has just waited for it


def children(pid: int) -> list[int]:
    """The child processes of a process; empty where the system does not list them."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except OSError:
            continue
    return found
