"""What a process and all that descend from it cost: seconds, CPU seconds, and the peak of their summed PSS.

The PSS of a process counts a page that n processes share for 1/n, so the sum counts it once. Looked at from outside,
all the while: a process that ends between two looks, as Spark's workers do, has counted until the last one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MIB = 1 << 20
#: seconds between two looks
LOOK = 0.2
#: ticks of a second, in which the kernel tells CPU time
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run has cost."""

    seconds: float
    #: of the whole tree of processes, user and system
    cpu: float
    #: MiB
    peak: float


@dataclass
class Peak:
    """The largest sum of memory that was seen and how it was made up; CPU time by process, also of those that ended."""

    bytes: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    cpu: dict[str, float] = field(default_factory=dict)

    def see(self, processes: Sequence[psutil.Process]) -> None:
        self.looks += 1
        parts = {}
        for one in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                name = f"{one.name()} {one.pid}"
                parts[name] = pss(one.pid)
                self.cpu[name] = max(self.cpu.get(name, 0.0), cpu(one.pid))
        if sum(parts.values()) > self.bytes:
            self.bytes, self.parts = sum(parts.values()), parts


def pss(pid: int) -> int:
    """The proportional set size of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def cpu(pid: int) -> float:
    """CPU seconds of a process alone; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # The name, in brackets, may hold anything; what follows it is field 3, and user and system time are 14 and 15.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def tree_of(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


@contextlib.contextmanager
def watching(pid: int) -> Iterator[Peak]:
    """Look at a process and its descendants all the while."""
    peak, over = Peak(), threading.Event()

    def look() -> None:
        while not over.wait(LOOK):
            peak.see(tree_of(pid))

    peak.see(tree_of(pid))
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
        peak.see(tree_of(pid))


@contextlib.contextmanager
def spending(pid: int) -> Iterator[list[Cost]]:
    """What a process that goes on costs meanwhile; one Cost is in the list afterwards."""
    found: list[Cost] = []
    begun = time.perf_counter()
    with watching(pid) as peak:
        before = dict(peak.cpu)
        yield found
        seconds = time.perf_counter() - begun
    spent = sum(peak.cpu.values()) - sum(before.values())
    found.append(Cost(seconds, spent, peak.bytes / MIB))


def cost_of(command: Sequence[str], env: Mapping[str, str], folder: Path) -> Cost:
    """Run a command to its end. SystemExit with what it said if it fails."""
    said = folder / "said"
    begun = time.perf_counter()
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    with watching(process.pid) as peak:
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{said.read_text(errors='replace')}")
    # The kernel's own count is exact, but lacks workers that nobody has waited for: Spark's daemon ignores their end.
    exact = usage.ru_utime + usage.ru_stime
    return Cost(seconds, max(exact, sum(peak.cpu.values())), peak.bytes / MIB)
