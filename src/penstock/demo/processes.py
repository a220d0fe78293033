"""Finds the descendants of a process in /proc, so that none is left running."""

from __future__ import annotations

from pathlib import Path


def descendants(pid: int) -> dict[int, str]:
    """The descendants of a process, each with its start time, because process ids are reused."""
    stats = {int(path.parent.name): fields for path in Path("/proc").glob("[0-9]*/stat") if (fields := _stat(path))}
    found: dict[int, str] = {}
    parents = {pid}
    while parents:
        children = {child: fields[19] for child, fields in stats.items() if int(fields[1]) in parents}
        parents = children.keys() - found.keys()
        found |= children
    return found


def alive(pid: int, born: str) -> bool:
    """Whether the process with this id and start time is still running."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return bool(fields) and fields[19] == born and fields[0] != "Z"


def name_of(pid: int) -> str:
    """The program's name; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stat(path: Path) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may contain anything; [] if the process has ended."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
