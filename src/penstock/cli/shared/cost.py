"""What a run costs: processor time, of this process and of everything that it has started."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

#: seconds between two looks at the processes that are at work
PAUSE = 1.0
_told = 0.0


class Cost:
    """Adds up processor time.

    The system counts children that have ended. Spark's Python workers are not among them: nobody waits for their end,
    so they are looked at while they work.
    """

    def __init__(self) -> None:
        #: when they were last looked at, and what each had used by then; a process is known by its id and its start
        self._looked = 0.0
        self._workers: dict[tuple[int, str], float] = {}

    def look(self) -> None:
        """See what the children's children have used so far."""
        if time.monotonic() - self._looked < PAUSE:
            return
        self._looked = time.monotonic()
        for child in _children(os.getpid()):
            self._see(child)

    def seconds(self) -> float:
        """Processor seconds since this was last asked of any, the first time since the process began."""
        global _told
        used = sum(
            usage.ru_utime + usage.ru_stime
            for usage in (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        since, _told = used - _told, used
        return round(max(0.0, since) + sum(self._workers.values()), 3)

    def _see(self, parent: int) -> None:
        for pid in _children(parent):
            try:
                # The name, in brackets, may hold anything; what follows it is field 3.
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            self._workers[pid, fields[19]] = used
            self._see(pid)


def _children(pid: int) -> list[int]:
    """The processes that one has started; none where the system does not tell."""
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
