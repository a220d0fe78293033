"""Servers that stand in for a site: a streaming replica of a primary, and a pooler before a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from tests.harness.postgres import (
    PASSWORD,
    START_STOP_SECONDS,
    PostgresServer,
    as_unprivileged,
    free_port,
    unprivileged_user,
    without_settings,
)
from tests.sources.tables import execute, rows

POOLER = Path("/usr/sbin/pgbouncer")


class Replica(PostgresServer):
    """A streaming replica of another server, made by a base backup when it is first started."""

    def __init__(self, primary: PostgresServer, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings)
        self._primary = primary

    def _make_cluster(self) -> None:
        if os.geteuid() == 0:
            owner = unprivileged_user()
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)
        made = self.directory / "data.new"
        at = [f"--host={self._primary.directory}", f"--port={self._primary.port}", "--username=penstock"]
        how = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "--wal-method=stream"]
        self._as_owner([str(self.programs / "pg_basebackup"), f"--pgdata={made}", *at, *how])
        made.rename(self.data)

    def pause(self) -> None:
        """Keep receiving, but replay nothing."""
        execute(self.url(), "SELECT pg_wal_replay_pause()")
        until(self.url(), "SELECT pg_get_wal_replay_pause_state() = 'paused'")

    def resume(self) -> None:
        execute(self.url(), "SELECT pg_wal_replay_resume()")

    def catch_up(self) -> None:
        """Wait until everything that the primary has written is replayed here."""
        [[lsn]] = rows(self._primary.url(), "SELECT pg_current_wal_insert_lsn()")
        until(self.url(), f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'")

    def promote(self) -> None:
        execute(self.url(), "SELECT pg_promote()")


class Pooler:
    """PgBouncer in transaction mode before a server, with few connections to it."""

    def __init__(self, server: PostgresServer, *, size: int) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-pooler-"))
        users, self._settings = self._folder / "users.txt", self._folder / "pgbouncer.ini"
        users.write_text(f'"penstock" "{PASSWORD}"\n')
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={server.port}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = plain",
            f"auth_file = {users}",
            "admin_users = penstock",
            "pool_mode = transaction",
            f"default_pool_size = {size}",
        ]
        self._settings.write_text("\n".join(lines))
        if os.geteuid() == 0:
            owner = unprivileged_user()
            for path in (self._folder, users, self._settings):
                os.chown(path, owner.pw_uid, owner.pw_gid)

    def url(self, database: str) -> str:
        return f"postgresql://penstock:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Self:
        with (self._folder / "pgbouncer.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*as_unprivileged(), str(POOLER), str(self._settings)],
                env=without_settings(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + START_STOP_SECONDS
        while True:
            try:
                psycopg.connect(self.url("pgbouncer"), autocommit=True).close()
                return self
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    said = (self._folder / "pgbouncer.log").read_text()
                    raise RuntimeError(f"pgbouncer does not answer: {error}\n{said}") from None
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._folder)

    def tell(self, command: str) -> None:
        """A command to PgBouncer's own console."""
        execute(self.url("pgbouncer"), command)


def until(url: str, question: str) -> None:
    """Wait until a question is answered by true."""
    end = time.monotonic() + START_STOP_SECONDS
    while rows(url, question) != [(True,)]:
        if time.monotonic() > end:
            raise TimeoutError(question)
        time.sleep(0.02)
