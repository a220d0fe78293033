"""Compares a command with the worker that is to run it.

The worker's JVM and its Python workers keep the environment, folder and limits that the worker was started with. So the
worker may run only commands for which these are equal.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import sys
import sysconfig
from collections.abc import Mapping
from typing import Any

import penstock

#: variables of a terminal, a login or a service's start: nothing that moves rows reads them
_SESSION_VARIABLES = re.compile(
    r"_|SHLVL|PWD|OLDPWD|TERM|COLORTERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR\w*|TERM_\w+|VTE_VERSION|WINDOWID|"
    r"LS_COLORS|PS[1-4]|PROMPT_COMMAND|HIST\w+|GPG_TTY|SSH_\w+|TMUX\w*|STY|WINDOW|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|"
    r"XDG_SESSION_\w+|XDG_SEAT|XDG_VTNR|DBUS_SESSION_BUS_ADDRESS|DESKTOP_\w+|SUDO_\w+|MAIL|"
    r"INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|NOTIFY_SOCKET|MANAGERPID\w*|MEMORY_PRESSURE_\w+|"
    r"LISTEN_FDS|LISTEN_PID|LISTEN_FDNAMES"
)
#: limits of a process that change what a run can do
_LIMIT_NAMES = ("AS", "CPU", "DATA", "FSIZE", "NOFILE")
#: what a process sees of the machine
_NAMESPACES = ("mnt", "net", "pid", "user")


def describe_process(environment: Mapping[str, str]) -> dict[str, Any]:
    """Describe this process, as far as it matters to a run."""
    here = os.stat(".")
    top = os.stat("/")
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "version": penstock.__version__,
        "code": code_fingerprint(),
        "python": sys.executable,
        "folder": [os.getcwd(), here.st_dev, here.st_ino, top.st_dev, top.st_ino],
        "umask": mask,
        "groups": [os.getegid(), *sorted(os.getgroups())],
        "limits": {name: list(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))) for name in _LIMIT_NAMES},
        "namespaces": [_namespace(name) for name in _NAMESPACES],
        "environment": {name: value for name, value in environment.items() if not is_session_variable(name)},
    }


def is_session_variable(variable: str) -> bool:
    return _SESSION_VARIABLES.fullmatch(variable) is not None


def find_difference(worker: Mapping[str, Any], command: Mapping[str, Any]) -> str | None:
    """Describe the difference without the values of variables; None if there is none."""
    for part, words in (
        ("version", "penstock's version differs"),
        ("code", "penstock or a package has changed since the worker started"),
        ("python", "the worker runs another Python"),
        ("umask", "the umask differs"),
        ("groups", "the user's groups differ"),
        ("limits", "the process limits (`ulimit`) differ"),
        ("namespaces", "the worker runs in another container or namespace"),
    ):
        if worker.get(part) != command.get(part):
            return words
    if worker.get("folder") != command.get("folder"):
        return f"the worker runs in the folder {worker['folder'][0]}"
    theirs, ours = worker["environment"], command.get("environment") or {}
    names = sorted(name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"environment variables differ: {', '.join(names[:3])}{more}"
    return None


def code_fingerprint() -> str:
    """A hash of penstock's own files and the list of installed packages; an edit or an upgrade changes it."""
    seen: list[str] = []
    waiting = [os.path.dirname(penstock.__file__)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        waiting.append(entry.path)
                else:
                    found = entry.stat()
                    seen.append(f"{entry.path} {found.st_size} {found.st_mtime_ns}")
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        seen += [name for name in os.listdir(folder) if name.endswith((".dist-info", ".pth"))]
    return hashlib.sha256("\n".join(sorted(seen)).encode()).hexdigest()[:24]


def _namespace(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return ""
