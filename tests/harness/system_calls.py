"""System calls of a process and its threads, as strace saw them: what was on disk before what was said."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TRACED = (
    "openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,sendto,sendmsg,fsync,fdatasync,sync_file_range,msync,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,ftruncate,truncate,recvfrom,read"
)
_LINE = re.compile(r"^(\d+) +(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+|\?)(.*)$", re.DOTALL)
_BEGUN = re.compile(r"^(\w+)\((.*) <unfinished \.\.\.>$", re.DOTALL)
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)\) += (-?\d+|\?)(.*)$", re.DOTALL)
_DESCRIPTOR = re.compile(r"^-?\w+<([^>]*)>")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Call:
    """A call that has returned. It lies between the `begun`th and the `ended`th line of the trace."""

    name: str
    arguments: str
    result: int
    begun: int
    ended: int

    @property
    def path(self) -> str:
        """Of its descriptor, or the first one that it names."""
        if found := _DESCRIPTOR.match(self.arguments):
            return found[1] if self.name not in ("openat", "mkdirat", "unlinkat") else self.strings[0]
        return self.strings[0] if self.strings else ""

    @property
    def strings(self) -> list[str]:
        return _STRING.findall(self.arguments)

    @property
    def offset(self) -> int:
        """Where a pwrite64 begins."""
        return int(self.arguments.rpartition(", ")[2])


@dataclass(frozen=True)
class Trace:
    """All calls, in the order in which they returned."""

    calls: Sequence[Call]

    def find(self, name: str, path: str | Path | None = None, **has: str) -> list[Call]:
        """The calls with this name that succeeded, of a path, and with a text among their arguments."""
        wanted = None if path is None else str(path)
        return [
            call
            for call in self.calls
            if call.name == name
            and call.result >= 0
            and (wanted is None or call.path == wanted)
            and has.get("text", "") in call.arguments
        ]

    def one(self, name: str, path: str | Path | None = None, **has: str) -> Call:
        found = self.find(name, path, **has)
        assert len(found) == 1, f"{name} {path} {has}: {len(found)} times"
        return found[0]

    def is_synced(self, written: Call, before: Call) -> bool:
        """Whether the file of a write was synced between it and another call."""
        return any(
            written.ended < call.begun and call.ended < before.begun for call in self.find("fsync", written.path)
        )


def follows(*calls: Call) -> bool:
    """Whether each call began after the one before it had returned."""
    return all(before.ended < after.begun for before, after in zip(calls, calls[1:], strict=False))


def trace(command: Sequence[str], output: Path, run: Callable[[subprocess.Popen[str]], None] | None = None) -> Trace:
    """Run a command under strace to its end; `run` may talk to it meanwhile."""
    words = ["strace", "-f", "-y", "-s", "100000", "-e", f"trace={TRACED}", "-e", "signal=none", "-o", str(output)]
    with subprocess.Popen([*words, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if run is not None:
            run(process)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return parse(output.read_text())


def parse(text: str) -> Trace:
    """The calls in the output of `strace -f`: a call that others interrupt has two lines."""
    calls: list[Call] = []
    begun: dict[str, tuple[str, str, int]] = {}
    for at, line in enumerate(text.splitlines()):
        found = _LINE.match(line)
        if found is None:
            continue
        thread, rest = found.groups()
        if half := _BEGUN.match(rest):
            begun[thread] = half[1], half[2], at
        elif resumed := _RESUMED.match(rest):
            name, arguments, first = begun.pop(thread)
            assert name == resumed[1], line
            calls.append(_call(name, arguments + resumed[2], resumed[3], first, at))
        elif whole := _CALL.match(rest):
            calls.append(_call(whole[1], whole[2], whole[3], at, at))
    return Trace(calls)


def _call(name: str, arguments: str, result: str, begun: int, ended: int) -> Call:
    return Call(name, arguments, -1 if result == "?" else int(result), begun, ended)
