"""A real PostgreSQL for tests: Debian's newest server on a loopback port, in a directory of its own.

Durability is off, so a crash of the machine loses it; a crash of a client does not.
"""

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

SUPERUSER = "penstock"
PASSWORD = "penstock"
INSTALLED = Path("/usr/lib/postgresql")
#: Seconds that a start or a stop may take on a busy machine.
PATIENCE = 60.0

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_prepared_transactions": "10",
    "listen_addresses": "127.0.0.1",
}


class PostgresServer:
    """One server. `stop` and `start` again keep its data and port; leaving the `with` removes all of it.

    It ends with the thread that started it, so a killed test run leaves no server behind.
    """

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self._programs = newest_programs()
        self._settings = SETTINGS | (settings or {})
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self.port = free_port()

    def start(self) -> None:
        """Start the server and return once it answers; the first time, make its cluster."""
        if self._process is not None:
            raise RuntimeError("this PostgreSQL server is already running")
        if not self._data.exists():
            self._make_cluster()
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                # Its own session: Ctrl-C in the terminal is for the tests, which then stop the server.
                [*as_unprivileged(), *command, "-k", str(self._directory), *options],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_it_answers(self._process)

    def stop(self) -> None:
        """Stop the server, disconnecting whoever is connected; nothing happens if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def url(self, database: str = "postgres", *, user: str = SUPERUSER, password: str = PASSWORD) -> str:
        """The address of a database, existing or not."""
        return f"postgresql://{quote(user)}:{quote(password)}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def database(self, name: str | None = None) -> str:
        """Create an empty database, of that name or of one never used before; return its URL."""
        name = name or f"test_{next(self._numbers)}"
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def drop(self, name: str) -> None:
        """Drop a database, disconnecting whoever is connected."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

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
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _log(self) -> Path:
        return self._directory / "server.log"

    def _remove(self) -> None:
        self.stop()
        shutil.rmtree(self._directory)

    def _make_cluster(self) -> None:
        password = self._directory / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            owner = unprivileged_user()
            for path in (self._directory, password):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        options = ["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        access = ["--auth-host=scram-sha-256", "--auth-local=trust", f"--username={SUPERUSER}"]
        made = subprocess.run(
            [
                *as_unprivileged(),
                str(self._programs / "initdb"),
                f"--pgdata={self._data}",
                f"--pwfile={password}",
                *options,
                *access,
            ],
            cwd=self._directory,
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr.strip()}")

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as refused:
                if process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    log = self._log.read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"PostgreSQL does not answer on port {self.port}:\n{log}") from refused
            time.sleep(0.05)

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)


def newest_programs() -> Path:
    """The directory of the newest PostgreSQL that the machine's packages have installed."""
    found = [path.parent for path in INSTALLED.glob("*/bin/postgres") if path.parts[-3].isdigit()]
    if not found:
        raise RuntimeError(f"no PostgreSQL server programs under {INSTALLED}/*/bin; run script/setup")
    return max(found, key=lambda path: int(path.parts[-2]))


def unprivileged_user() -> pwd.struct_passwd:
    """The user that the packages made for the server, which refuses to run as root."""
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        raise RuntimeError("there is no user postgres, whom the server needs under root; run script/setup") from None


def as_unprivileged() -> Sequence[str]:
    """The words before a command that take root away from it and end it with whoever started it."""
    ends_with_us = ["setpriv", "--pdeathsig", "INT"]
    if os.geteuid() != 0:
        return [*ends_with_us, "--"]
    owner = unprivileged_user()
    return [*ends_with_us, f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", "--"]


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
