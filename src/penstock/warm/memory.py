"""Measures the memory of a process and its descendants; shared pages count once."""

from __future__ import annotations

from pathlib import Path

from penstock.links.processes import children


def tree_bytes(pid: int) -> int:
    """The proportional set size of a process and its descendants; those that end meanwhile do not count."""
    return sum(_own_bytes(process) for process in list_tree(pid))


def list_tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found, waiting = [], [pid]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += children(process)
    return found


def _own_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * 1024
    return 0
