"""A real S3 server for tests: versitygw, on a loopback port, with its objects in a temporary folder.

    python -m tests.harness.versitygw

builds it once. Imports the standard library only until a client is asked for: script/setup builds it while the locked
packages are installed.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.harness.go_programs import go_program

MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
#: what its go.mod asks for
OLDEST_GO = (1, 25)
ACCESS_KEY, SECRET_KEY, REGION = "key-of-the-tests", "penstock-secret-of-the-tests", "us-east-1"
#: seconds that a start may take on a busy machine
START_SECONDS = 60.0
_buckets = itertools.count(1)


def program() -> Path:
    """The server's program. Built if it is missing."""
    return go_program(MODULE, VERSION, OLDEST_GO)


class Gateway:
    """One server. It ends with the thread that started it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-versitygw-"))
        for name in ("objects", "attributes", "versions"):
            (self.folder / name).mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        address = ["--port", f"127.0.0.1:{self.port}", "--region", REGION, "--quiet", "--keep-alive"]
        place = ["posix", *self._attributes(), "--versioning-dir", f"{self.folder}/versions"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", str(program()), *address, *place, f"{self.folder}/objects"],
                env={"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY, "PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "log").read_text(errors="replace")[-2000:]
                self.close()
                raise RuntimeError(f"versitygw does not answer at {self.endpoint}:\n{said}")
            time.sleep(0.02)

    def _attributes(self) -> list[str]:
        """With its attributes in files of their own, it does not forget versions that are deleted."""
        try:
            os.setxattr(self.folder, "user.penstock", b"1")
        except OSError:  # this file system has none
            return ["--sidecar", f"{self.folder}/attributes"]
        return []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """The `s3` block of a pipeline file."""
        return {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        }

    @property
    def pid(self) -> int:
        return self._process.pid

    @functools.cached_property
    def client(self) -> Any:
        from penstock.links.s3 import S3Options, client

        return client(S3Options.model_validate(self.options))

    def bucket(self) -> str:
        """Make a bucket of a new name."""
        name = f"bucket-{next(_buckets)}"
        self.client.create_bucket(Bucket=name)
        return name

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@functools.cache
def gateway() -> Gateway:
    """The server of this process's tests."""
    made = Gateway()
    atexit.register(made.close)
    return made


if __name__ == "__main__":
    print(program())
