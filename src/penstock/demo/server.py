"""A PostgreSQL server of our own: a cluster in one directory, on a loopback port, started and stopped by us alone.

Which programs it is started from is said by whoever asks: the demo takes those of a wheel, the tests Debian's.
Durability is off, so a crash of the machine loses its data; a crash of a client does not.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from penstock.errors import PenstockError

SUPERUSER = "penstock"
#: seconds that a start or a stop may take on a busy machine
PATIENCE = 60.0
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
#: how the server says that somebody else listens on its port
TAKEN = "Address already in use"


class ServerFailed(PenstockError):
    """A server of ours that does not start, or does not stop."""


class PortTaken(ServerFailed):
    """Somebody else listens on the port."""


class LocalServer:
    """One server. `stop` and `start` again keep its data."""

    def __init__(
        self,
        programs: Path,
        directory: Path,
        *,
        port: int,
        password: str,
        settings: Mapping[str, str] | None = None,
        ends_with_us: bool = True,
    ) -> None:
        """`ends_with_us`: it ends with the thread that starts it, so that whoever is killed leaves no server behind."""
        self.programs = programs
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.port = port
        self.password = password
        self._settings = SETTINGS | dict(settings or {})
        self._ends_with_us = ends_with_us
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and return once it answers; the first time, make its cluster."""
        if self.pid() is not None:
            raise ServerFailed("this PostgreSQL server is already running", next_step="stop it first")
        if not self.data.exists():
            self._make_cluster()
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]
        with self.log.open("ab") as log:
            said = log.tell()
            self._process = subprocess.Popen(
                # Its own session: Ctrl-C in the terminal is for us, who then stop the server.
                [*as_unprivileged(ends_with_us=self._ends_with_us), *command],
                cwd=self.directory,
                env=without_settings(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait_until_it_answers(self._process, said)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server, disconnecting whoever is connected; nothing happens if it does not run."""
        process, self._process = self._process, None
        pid = process.pid if process is not None and process.poll() is None else self.pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGINT)
        end = time.monotonic() + PATIENCE
        while self._serves(pid) if process is None else process.poll() is None:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        if process is not None:
            process.wait()

    def pid(self) -> int | None:
        """The process that serves this directory, whoever started it; None if there is none."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split(maxsplit=1)[0])
        except (OSError, IndexError, ValueError):
            return None
        return pid if self._serves(pid) else None

    def _serves(self, pid: int) -> bool:
        """Numbers are used again: only a server works inside its data directory."""
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == self.data.resolve()
        except OSError:
            return False

    def url(self, database: str = "postgres", *, user: str = SUPERUSER, password: str | None = None) -> str:
        """The address of a database, existing or not."""
        secret = quote(self.password if password is None else password)
        return f"postgresql://{quote(user)}:{secret}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def create(self, database: str, *, template: str | None = None) -> str:
        """Create a database, empty or a copy of another one that nobody uses; return its URL."""
        like = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self.execute(like.format(sql.Identifier(database), sql.Identifier(template or "template1")))
        return self.url(database)

    def drop(self, database: str) -> None:
        """Drop a database, disconnecting whoever is connected."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _make_cluster(self) -> None:
        """Made under another name: a cluster that has its name is whole."""
        made, password = self.directory / "data.new", self.directory / "password"
        if made.exists():
            shutil.rmtree(made)
        password.write_text(self.password)
        password.chmod(0o600)
        if os.geteuid() == 0:
            owner = unprivileged_user()
            for path in (self.directory, password):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        options = ["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        access = ["--auth-host=scram-sha-256", "--auth-local=trust", f"--username={SUPERUSER}"]
        self._as_owner(
            [str(self.programs / "initdb"), f"--pgdata={made}", f"--pwfile={password}", *options, *access],
        )
        password.unlink()
        made.rename(self.data)

    def _as_owner(self, command: list[str]) -> None:
        ended = subprocess.run(
            [*as_unprivileged(), *command], cwd=self.directory, env=without_settings(), capture_output=True, text=True
        )
        if ended.returncode != 0:
            raise ServerFailed(
                f"{Path(command[0]).name} failed: {ended.stderr.strip()}",
                safe="",
                next_step=f"see whether {self.directory} can be written to, and whether its disk is full",
            )

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes], said: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with psycopg.connect(self.url(), connect_timeout=2) as connection:
                    row = connection.execute("SHOW data_directory").fetchone()
                # Another server on this port might let anyone in.
                if row is not None and Path(row[0]) == self.data:
                    return
            except psycopg.OperationalError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                with self.log.open("rb") as log:
                    log.seek(said)
                    raise self._refused(log.read().decode(errors="replace")[-2000:].strip())
            time.sleep(0.05)

    def _refused(self, log: str) -> ServerFailed:
        kind = PortTaken if TAKEN in log else ServerFailed
        return kind(
            f"PostgreSQL does not answer on port {self.port}:\n{log}",
            safe="",
            next_step=f"see {self.log}",
        )


def unprivileged_user() -> pwd.struct_passwd:
    """Who the server runs as when we are root, which it refuses to be: the user of Debian's packages, or nobody."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerFailed(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody to run it as",
        safe="",
        next_step="useradd --system postgres, or do this as an ordinary user",
    )


def as_unprivileged(*, ends_with_us: bool = True) -> list[str]:
    """The words before a command that take root away from it, and end it with whoever started it."""
    how = ["--pdeathsig", "INT"] if ends_with_us else []
    if os.geteuid() == 0:
        owner = unprivileged_user()
        how += [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    return ["setpriv", *how, "--"] if how else []


def without_settings() -> dict[str, str]:
    """Our environment without the variables that libpq and the server's programs obey."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
