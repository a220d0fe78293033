"""A real S3 server for tests: SeaweedFS, from its wheel, on loopback ports, in a directory of its own.

It has an Iceberg REST catalog beside it. Nothing is kept: leaving the `with` removes all of it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.harness.postgres import free_port

ACCESS_KEY = "key-of-the-tests"
SECRET_KEY = "penstock-secret-of-the-tests"
REGION = "us-east-1"
#: seconds that a start or a stop may take on a busy machine
PATIENCE = 60.0
#: every server that the one program is made of listens twice
_SERVERS = ("master", "volume", "filer", "s3")


class S3Server:
    """One server. `stop` and `start` again keep its objects and ports.

    It ends with the thread that started it, so a killed test run leaves no server behind.
    """

    def __init__(self) -> None:
        self._program = program()
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-s3-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = {name: free_port() for server in _SERVERS for name in (f"{server}.port", f"{server}.port.grpc")}
        self._ports["s3.port.iceberg"] = free_port()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    @property
    def catalog(self) -> str:
        """The address of its Iceberg REST catalog."""
        return f"http://127.0.0.1:{self._ports['s3.port.iceberg']}"

    @property
    def properties(self) -> dict[str, str]:
        """What a lake needs to reach it."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
        }

    def start(self) -> None:
        """Start the server and return once it answers."""
        if self._process is not None:
            raise RuntimeError("this S3 server is already running")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                # Its own session: Ctrl-C in the terminal is for the tests, which then stop the server.
                ["setpriv", "--pdeathsig", "KILL", "--", str(self._program), *self._options()],
                cwd=self._directory,
                env={"HOME": str(self._directory), "PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_it_answers(self._process)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server; nothing happens if it does not run. It takes its time, unless it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def files(self) -> Any:
        """Arrow's file system on it."""
        from pyarrow import fs

        return fs.S3FileSystem(
            endpoint_override=self.endpoint,
            region=REGION,
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def bucket(self, name: str) -> str:
        """Make a bucket; returns its address."""
        self.files().create_dir(name)
        return f"s3://{name}"

    def table_bucket(self, name: str) -> str:
        """Make a bucket that its Iceberg catalog keeps tables in; returns its address."""
        master = f"127.0.0.1:{self._ports['master.port']}.{self._ports['master.port.grpc']}"
        made = subprocess.run(
            [str(self._program), "shell", f"-master={master}"],
            cwd=self._directory,
            input=f"s3tables.bucket -create -name {name} -account 000000000000\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if f"bucket/{name}" not in made.stdout:
            raise RuntimeError(f"the bucket {name} could not be made: {made.stdout}{made.stderr}")
        return f"s3://{name}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    @property
    def _log(self) -> Path:
        return self._directory / "server.log"

    def _options(self) -> list[str]:
        users = self._directory / "users.json"
        allowed = ["Admin", "Read", "List", "Tagging", "Write"]
        keys = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        users.write_text(json.dumps({"identities": [{"name": "penstock", "credentials": keys, "actions": allowed}]}))
        chosen: dict[str, object] = {
            "dir": self._directory,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            **self._ports,
            "s3.port.lance": 0,
            "s3.config": users,
            # As Amazon does: a bucket that is not there is an error.
            "s3.autoCreateBucket": "false",
            "filer.localSocket": self._directory / "filer.sock",
            "s3.localSocket": self._directory / "s3.sock",
            "master.telemetry": "false",
            "master.electionTimeout": "1s",
            "master.volumeSizeLimitMB": 256,
            "volume.max": 200,
            "volume.minFreeSpace": "100MiB",
            "volume.preStopSeconds": 0,
        }
        return ["-logtostderr=true", "server", "-s3", *(f"-{name}={value}" for name, value in chosen.items())]

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (_answers(self.endpoint) and _answers(f"{self.catalog}/v1/config")):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                log = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the S3 server does not answer at {self.endpoint}:\n{log}")
            time.sleep(0.05)

    def _remove(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self._directory)


def program() -> Path:
    """The server's program, which its wheel puts beside the interpreter."""
    found = Path(sys.prefix, "bin", "weed")
    if not found.exists():
        raise RuntimeError(f"there is no S3 server at {found}; run script/setup")
    return found


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except urllib.error.HTTPError as error:
        error.close()  # it wants to know who asks
        return error.code < 500
    except OSError:
        return False
    return True
