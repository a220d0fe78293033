"""A private PostgreSQL server: a cluster in one directory, on a loopback port, with Debian's newest programs.

Durability is off, so a crash of the machine loses data; a crash of a client does not.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from penstock.errors import PenstockError

PASSWORD = "penstock"
INSTALLED = Path("/usr/lib/postgresql")
SUPERUSER = "penstock"
#: seconds to wait for a start or a stop
START_STOP_SECONDS = 60.0
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
#: the server's message for a port in use
PORT_IN_USE = "Address already in use"


class ServerFailed(PenstockError):
    """A private server that does not start or stop."""


class PortTaken(ServerFailed):
    """Another process listens on the port."""


class LocalServer:
    """One server, whose data survives `stop` and `start`."""

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
        """With `ends_with_us`, the server ends with the thread that starts it, even if that is killed."""
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
        """Start the server and wait until it answers; create its cluster the first time."""
        if self.pid() is not None:
            raise ServerFailed("this PostgreSQL server is already running", next_step="stop it first")
        if not self.data.exists():
            self._make_cluster()
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]
        with self.log.open("ab") as log:
            log_start = log.tell()
            self._process = subprocess.Popen(
                # In its own session, because Ctrl-C must reach only us; we then stop the server.
                [*as_unprivileged(ends_with_us=self._ends_with_us), *command],
                cwd=self.directory,
                env=without_settings(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait_until_it_answers(self._process, log_start)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and disconnect its clients; do nothing if it is not running."""
        process, self._process = self._process, None
        pid = process.pid if process is not None and process.poll() is None else self.pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGINT)
        end = time.monotonic() + START_STOP_SECONDS
        while self._serves(pid) if process is None else process.poll() is None:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        if process is not None:
            process.wait()

    def pid(self) -> int | None:
        """The process id of the server of this directory, whichever process started it; None if there is none."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split(maxsplit=1)[0])
        except (OSError, IndexError, ValueError):
            return None
        return pid if self._serves(pid) else None

    def _serves(self, pid: int) -> bool:
        """Whether a process is this server: ids are reused, but only the server runs in its data directory."""
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == self.data.resolve()
        except OSError:
            return False

    def url(self, database: str = "postgres", *, user: str = SUPERUSER, password: str | None = None) -> str:
        """The URL of a database, which need not exist."""
        secret = quote(self.password if password is None else password)
        return f"postgresql://{quote(user)}:{secret}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def create(self, database: str, *, template: str | None = None) -> str:
        """Create a database, empty or as a copy of an unused one, and return its URL."""
        # Since version 15 a database is copied through the log, which takes twice as long as a copy of the files.
        faster = " STRATEGY file_copy" if int(self.programs.parts[-2]) >= 15 else ""
        like = sql.SQL("CREATE DATABASE {} TEMPLATE {}" + faster)
        self.execute(like.format(sql.Identifier(database), sql.Identifier(template or "template1")))
        return self.url(database)

    def drop(self, database: str) -> None:
        """Drop a database and disconnect its clients."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _make_cluster(self) -> None:
        """Create the cluster under a temporary name, so that one with its final name is complete."""
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
        # md5: a proof by scram-sha-256 takes longer than the rest of a connection, and tests open thousands.
        access = ["--auth-host=md5", "--auth-local=trust", f"--username={SUPERUSER}"]
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
                next_step=f"check that {self.directory} is writable and that its disk is not full",
            )

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes], log_start: int) -> None:
        deadline = time.monotonic() + START_STOP_SECONDS
        while True:
            try:
                with psycopg.connect(self.url(), connect_timeout=2) as connection:
                    row = connection.execute("SHOW data_directory").fetchone()
                # Another server on this port might accept any login.
                if row is not None and Path(row[0]) == self.data:
                    return
            except psycopg.OperationalError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                with self.log.open("rb") as log:
                    log.seek(log_start)
                    raise self._refused(log.read().decode(errors="replace")[-2000:].strip())
            time.sleep(0.05)

    def _refused(self, log: str) -> ServerFailed:
        kind = PortTaken if PORT_IN_USE in log else ServerFailed
        return kind(
            f"PostgreSQL does not answer on port {self.port}:\n{log}",
            safe="",
            next_step=f"read the log {self.log}",
        )


def unprivileged_user() -> pwd.struct_passwd:
    """The user for the server, which refuses to run as root: Debian's postgres user, or nobody."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerFailed(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor a user nobody to run it as",
        safe="",
        next_step="run `useradd --system postgres`, or run this command as an ordinary user",
    )


def as_unprivileged(*, ends_with_us: bool = True) -> list[str]:
    """The prefix of a command that drops root and ends the command with its parent."""
    how = ["--pdeathsig", "INT"] if ends_with_us else []
    if os.geteuid() == 0:
        owner = unprivileged_user()
        how += [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    return ["setpriv", *how, "--"] if how else []


def without_settings() -> dict[str, str]:
    """The environment without the variables of libpq and of the server's programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def free_port() -> int:
    """A port that is free at present."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class PostgresServer(LocalServer):
    """One server, with databases that are never named alike; leaving the `with` removes all of it.

    It ends with the thread that started it, so a killed test run leaves no server behind.
    """

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        ours = {
            "max_prepared_transactions": "10",
            "unix_socket_directories": str(directory),
            # Dropping a database goes through all of it.
            "shared_buffers": "32MB",
        }
        super().__init__(
            newest_programs(), directory, port=free_port(), password=PASSWORD, settings=ours | (settings or {})
        )
        self._numbers = itertools.count(1)
        #: for what is executed: a connection costs as much as a database
        self._kept: psycopg.Connection | None = None

    def database(self, name: str | None = None) -> str:
        """Create an empty database, of that name or of one never used before; return its URL."""
        return self.create(name or f"test_{next(self._numbers)}")

    def execute(self, statement: sql.Composed) -> None:
        """The same on a connection that is kept, until the server ends or has ended it."""
        if self._kept is not None:
            try:
                self._kept.execute(statement)
            except psycopg.OperationalError:
                self._hang_up()
            else:
                return
        self._kept = psycopg.connect(self.url(), autocommit=True)
        self._kept.execute(statement)

    def stop(self) -> None:
        self._hang_up()
        super().stop()

    def _hang_up(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def crash(self) -> None:
        """End at once, as `pg_ctl stop -m immediate` does: the next start recovers, and empties unlogged tables."""
        process, self._process = self._process, None
        if process is None:
            raise RuntimeError("this server was not started here, or has ended")
        self._hang_up()
        process.send_signal(signal.SIGQUIT)
        process.wait()

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

    def _remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)


def newest_programs() -> Path:
    """The directory of the newest PostgreSQL that the machine's packages have installed."""
    found = [path.parent for path in INSTALLED.glob("*/bin/postgres") if path.parts[-3].isdigit()]
    if not found:
        raise RuntimeError(f"no PostgreSQL server programs under {INSTALLED}/*/bin; run script/setup")
    return max(found, key=lambda path: int(path.parts[-2]))
