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
    #: the same by role: see `role_of`
    roles: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    cpu: dict[str, float] = field(default_factory=dict)

    def see(self, processes: Sequence[psutil.Process]) -> None:
        self.looks += 1
        parts: dict[str, int] = {}
        roles: dict[str, int] = {}
        for one in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                name, role = f"{one.name()} {one.pid}", role_of(one)
                parts[name] = pss(one.pid)
                roles[role] = roles.get(role, 0) + parts[name]
                self.cpu[name] = max(self.cpu.get(name, 0.0), cpu(one.pid))
        if sum(parts.values()) > self.bytes:
            self.bytes, self.parts, self.roles = sum(parts.values()), parts, roles


def role_of(process: psutil.Process) -> str:
    """`jvm`; below it `daemon`, and the `workers` that the daemon has forked; everything else is the `driver`."""
    if process.name() == "java":
        return "jvm"
    above = [parent.name() for parent in process.parents()[:2]]
    return "daemon" if above[:1] == ["java"] else "workers" if above[1:] == ["java"] else "driver"


def pss(pid: int) -> int:
    """The proportional set size of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def cpu(pid: int) -> float:
    """CPU seconds of a process alone; 0 if it has ended."""
    return sum(_times(pid)[:2])


def cpu_of_waited(pid: int) -> float:
    """CPU seconds of the children whose end a process has waited for; 0 if it has ended itself."""
    return sum(_times(pid)[2:])


def _times(pid: int) -> list[float]:
    """User and system time of a process, then of the children that it has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return [0.0] * 4
    # The name, in brackets, may hold anything; what follows it is field 3, and the times are 14 to 17.
    return [int(field) / TICKS for field in stat.rpartition(")")[2].split()[11:15]]


def tree_of(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


@contextlib.contextmanager
def watching(*pids: int) -> Iterator[Peak]:
    """Look at processes and their descendants all the while."""
    peak, over = Peak(), threading.Event()

    def see() -> None:
        peak.see([each for pid in pids for each in tree_of(pid)])

    def look() -> None:
        while not over.wait(LOOK):
            see()

    see()
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
        see()


@contextlib.contextmanager
def spending(pid: int) -> Iterator[list[Cost]]:
    """What a process that goes on costs meanwhile; one Cost is in the list afterwards."""
    found: list[Cost] = []
    begun = time.perf_counter()
    with watching(pid) as peak:
        before, waited = dict(peak.cpu), cpu_of_waited(pid)
        yield found
        seconds = time.perf_counter() - begun
        waited = cpu_of_waited(pid) - waited
    alive = {one.pid for one in tree_of(pid)}
    spent = {name: after - before.get(name, 0.0) for name, after in peak.cpu.items()}
    going_on = {name for name in spent if int(name.rpartition(" ")[2]) in alive}
    # Of a child that has ended, the kernel's count is exact if it was waited for; otherwise it is what was seen.
    ended = sum(each for name, each in spent.items() if name not in going_on)
    goes_on = sum(each for name, each in spent.items() if name in going_on)
    found.append(Cost(seconds, goes_on + max(ended, waited), peak.bytes / MIB))


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
