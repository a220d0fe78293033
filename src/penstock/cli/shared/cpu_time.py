"""Measures the CPU time of a run: this process and every process that it has started."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

#: seconds between two samples of running processes
SAMPLE_SECONDS = 1.0
#: CPU seconds of this process that were reported already
_reported_seconds = 0.0


class CpuTime:
    """Adds up CPU time.

    The operating system counts children that have ended and were waited for. Nobody waits for Spark's Python workers,
    so they are sampled while they run.
    """

    def __init__(self) -> None:
        self._sampled_at = 0.0
        #: CPU seconds of each process, by its id and start time
        self._workers: dict[tuple[int, str], float] = {}

    def sample(self) -> None:
        """Record the CPU time of the children's children so far."""
        if time.monotonic() - self._sampled_at < SAMPLE_SECONDS:
            return
        self._sampled_at = time.monotonic()
        for child in _children(os.getpid()):
            self._sample_children(child)

    def seconds(self) -> float:
        """CPU seconds since the last call in this process, or since its start."""
        global _reported_seconds
        used = sum(
            usage.ru_utime + usage.ru_stime
            for usage in (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        since, _reported_seconds = used - _reported_seconds, used
        return round(max(0.0, since) + sum(self._workers.values()), 3)

    def _sample_children(self, parent: int) -> None:
        for pid in _children(parent):
            try:
                # The process name, in parentheses, may contain anything; field 3 follows it.
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            self._workers[pid, fields[19]] = used
            self._sample_children(pid)


def _children(pid: int) -> list[int]:
    """The child processes of a process; empty where the system does not list them."""
    pids: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return pids
    for thread in threads:
        try:
            pids += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except OSError:
            continue
    return pids
