"""Measures the CPU time of a run: this process and every process that it has started."""

from __future__ import annotations

import os
import resource
import time

from penstock.links.processes import START_TIME, children, stat_fields

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
        for child in children(os.getpid()):
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
        for pid in children(parent):
            if fields := stat_fields(pid):
                used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                self._workers[pid, fields[START_TIME]] = used
                self._sample_children(pid)
