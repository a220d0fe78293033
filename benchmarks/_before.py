"""This project as it was before its start became quick: a checkout of that commit, and how its command is called.

The checkout is a git worktree in `.bench/before`, made once from this clone's own history. If that commit locks the
same packages as this one, it runs in this environment, with its own source first on Python's path; otherwise its
`script/setup` makes an environment of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import _orders as orders
from benchmarks import _peers as peers

COMMIT = "c299502"
#: below the top of the clone
FOLDER = Path(".bench", "before")
#: equal in both commits: one environment fits both
LOCK = "requirements.lock"

MISSING = """\
this clone does not hold commit {commit}, with which the start is compared
next: git fetch --unshallow (if the clone is shallow), or clone the repository with its history"""


@dataclass(frozen=True)
class Before:
    """How to call the command of a checkout: `python -m penstock` in its environment."""

    python: str
    #: of its Python files
    source: Path

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """An environment with the checkout's source first on Python's path."""
        rest = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
        return {**env, "PYTHONPATH": os.pathsep.join([str(self.source), *rest])}


def before(top: Path = peers.TOP, commit: str = COMMIT) -> Before:
    """The checkout, made if it is not there. SystemExit with the next step if this clone does not hold the commit."""
    folder = top / FOLDER
    wanted = _ask(top, "rev-parse", "--verify", f"{commit}^{{commit}}")
    if wanted is None:
        raise SystemExit(MISSING.format(commit=commit))
    if _ask(folder, "rev-parse", "HEAD") != wanted or _ask(folder, "status", "--porcelain") != "":
        print(f"  commit {commit} is checked out in {FOLDER}/", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        # Forced: git may still know of a worktree there.
        add = ["git", "-C", str(top), "worktree", "add", "--quiet", "--force", "--detach", str(folder), wanted]
        subprocess.run(add, check=True)
    python = orders.PYTHON
    if (folder / LOCK).read_bytes() != (top / LOCK).read_bytes():
        subprocess.run([str(folder / "script" / "setup")], check=True)
        python = str(folder / ".venv" / "bin" / "python")
    return Before(python, folder / "src")


def _ask(folder: Path, *words: str) -> str | None:
    """What git says; None if it fails, or the folder is not the top of a work tree."""
    if not (folder / ".git").exists():
        return None
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
