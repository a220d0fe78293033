"""A store in a SQLite file: reaching it, making a new one, and what SQLite's errors mean.

The file is only ever touched through SQLite: opening and closing it ourselves, even to look at its first
bytes, would drop the locks that another thread's connection holds on it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from penstock.errors import StoreRefused
from penstock.links.durable import sync
from penstock.store import location
from penstock.store.location import NOTHING_LOST, StoreLocation, list_tables, one_line, translate_errors
from penstock.store.schema import APPLICATION_ID
from penstock.store.upgrade import create_tables

DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
FORBIDDEN_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@dataclass(frozen=True)
class SqliteFile(StoreLocation):
    """One file, with its -wal and -shm beside it while it is open."""

    #: absolute
    path: Path
    schema: str | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def address(self) -> str:
        return f"sqlite:{os.path.realpath(self.path)}"

    @property
    def restore_hint(self) -> str:
        return (
            f"move it aside, {self._with_log}; then restore a copy of it, or run `penstock state recover FILE`, "
            "which rebuilds it from what the sink holds"
        )

    @property
    def replace_hint(self) -> str:
        return (
            f"move it aside, {self._with_log}; then run `penstock state recover FILE`, "
            "which makes a new one from what the sink holds"
        )

    @property
    def _with_log(self) -> str:
        return f"with {self.path.name}-wal and {self.path.name}-shm if they exist"

    def missing(self) -> str | None:
        return None if self.path.exists() else str(self.path)

    def engine(self) -> Engine:
        """An engine on the file, which must be there."""
        engine = create_engine("sqlite://", creator=self._connect, poolclass=QueuePool, hide_parameters=True)
        event.listen(engine, "begin", _begin)
        return engine

    def prepare(self) -> None:
        """Check that something is there that may be a store; create one if nothing is."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._refuse_orphaned_log()
            return self._create()
        except OSError as error:
            raise self._unusable(error) from error
        if stat.S_ISDIR(found.st_mode):
            raise self.refused("is a directory", "name a file in it instead")
        if not stat.S_ISREG(found.st_mode):
            raise self.refused("is not a regular file", "name another file")
        if found.st_size == 0:
            raise self.refused(
                "is empty: it may have been truncated",
                f"delete it if it never held anything; otherwise {self.restore_hint}",
            )
        return None

    def create_empty(self) -> None:
        """Make a file that is ours and has no tables."""
        connection = sqlite3.connect(self.path)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").close()
        connection.close()

    def admit_tables(self, connection: Connection, tables: Sequence[str]) -> None:
        # New files get their tables before they get their name, so one without them has lost them.
        raise self.damaged("its tables are missing")

    def explain(self, error: BaseException | None) -> StoreRefused | None:
        if not isinstance(error, sqlite3.DatabaseError) or isinstance(
            error, sqlite3.IntegrityError | sqlite3.ProgrammingError
        ):
            return None
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        match code & 0xFF:
            case sqlite3.SQLITE_NOTADB:
                return self.refused(
                    "is not a SQLite database: it is another kind of file, or it was overwritten",
                    f"name another file for the store; if this one was it, {self.restore_hint}",
                )
            case sqlite3.SQLITE_FULL:
                return self._full()
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return self.busy(
                    "end or continue that process (one stopped with Ctrl-Z keeps its lock), then run again"
                )
            case sqlite3.SQLITE_CANTOPEN if not self.path.exists():
                return self.refused(
                    "has vanished while it was in use",
                    "put it back, or run `penstock state recover FILE`, which rebuilds it from what the sink holds",
                )
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
                return self._forbidden(one_line(error))
            case sqlite3.SQLITE_IOERR:
                if code == sqlite3.SQLITE_IOERR_SHMSIZE:
                    return self._full()
                name = getattr(error, "sqlite_errorname", "SQLITE_IOERR")
                return self.refused(
                    f"could not be read or written: {one_line(error)} ({name})",
                    "see that its disk has room and is healthy, then run again",
                    safe=NOTHING_LOST,
                )
            case _:
                return self.damaged(one_line(error))

    # ------------------------------------------------------------ inside

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a file that has vanished must be an error, not a new, empty database.
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",
            uri=True,
            timeout=location.LOCK_WAIT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # First of all, because switching to WAL would already change a file that is not ours.
            (found,) = connection.execute("PRAGMA application_id").fetchone()
            if found != APPLICATION_ID:
                raise self._foreign(connection)
            connection.execute("PRAGMA journal_mode = WAL").close()
            connection.execute("PRAGMA synchronous = FULL").close()
            connection.execute("PRAGMA foreign_keys = ON").close()
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self) -> None:
        """Make a whole store under another name, then link it: nobody ever sees half of one."""
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=f".{self.path.name}.", dir=folder) as scratch, translate_errors(self):
                draft = SqliteFile(Path(scratch, "draft"))
                draft.create_empty()
                draft._create_tables()
                try:
                    os.link(draft.path, self.path)
                except FileExistsError:
                    return  # another process was faster: its store is as good as ours
                sync(folder)
        except OSError as error:
            raise self._unusable(error) from error

    def _create_tables(self) -> None:
        """Make the tables, all of them in the file and nothing in its -wal, which will not be linked."""
        engine = self.engine()
        try:
            with engine.execution_options(writes=True).begin() as connection:
                create_tables(connection)
            # Closing does the same, but says nothing when it fails.
            with engine.connect() as connection:
                busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
            if busy:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        finally:
            engine.dispose()

    def _refuse_orphaned_log(self) -> None:
        """A -wal without its database would be replayed into the new one."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.exists() and not self.path.exists():
            raise self.refused(
                f"is missing, but its log {log} is there",
                f"put {self.path.name} back beside it; if it is gone for good, delete the log and run "
                "`penstock state recover FILE`, which rebuilds the store from what the sink holds",
            )

    def _foreign(self, connection: sqlite3.Connection) -> StoreRefused:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name LIMIT 4")
        shown = list_tables([name for (name,) in listed])
        what = f"with the tables {shown}" if shown else "without tables"
        return self.refused(
            f"is a SQLite database of another program, {what}",
            "name another file for the store; penstock creates it",
        )

    def _unusable(self, error: OSError) -> StoreRefused:
        if error.errno in DISK_FULL_ERRORS:
            return self._full()
        reason = (error.strerror or one_line(error)).lower()
        if error.errno in FORBIDDEN_ERRORS:
            return self._forbidden(reason)
        return self.refused(f"cannot be opened or created: {reason}", "correct the path of the store")

    def _full(self) -> StoreRefused:
        return self.refused(
            "cannot be written: its disk is full",
            "free some space, then run again",
            safe=NOTHING_LOST,
        )

    def _forbidden(self, reason: str) -> StoreRefused:
        return self.refused(
            f"cannot be read and written: {reason}",
            "give this user read and write permission on the file and on its folder",
        )


def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later could fail half-way; one that only reads needs no BEGIN.
    options = connection.get_execution_options()
    if not options.get("writes"):
        return
    report, first = options.get("report_wait"), location.WAIT_REPORT_SECONDS
    if report is None or first >= location.LOCK_WAIT_SECONDS:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return
    try:
        _set_lock_wait(connection, first)
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        report()
        _set_lock_wait(connection, location.LOCK_WAIT_SECONDS - first)
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        _set_lock_wait(connection, location.LOCK_WAIT_SECONDS)


def _set_lock_wait(connection: Connection, seconds: float) -> None:
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
