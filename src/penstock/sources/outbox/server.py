"""The server of an outbox: one session that reads, one connection that writes, and what the outbox is at present."""

from __future__ import annotations

import time
from dataclasses import dataclass

from psycopg import sql

from penstock.core.retry import Backoff
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.links.pause import pause
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import load_statement, to_text
from penstock.links.postgres.server_checks import LogPosition, check_history, log_bytes
from penstock.links.postgres.targets import connection_target
from penstock.links.postgres.write_connection import WriteConnection
from penstock.ports import Context
from penstock.sources.outbox.failures import no_outbox
from penstock.sources.outbox.marks import OutboxMark, newest_ended
from penstock.sources.outbox.options import Options

PACKAGE = "penstock.sources.outbox"
#: the first version with 64-bit transaction numbers
OLDEST_VERSION = 13
#: between two looks at how far the server's log is on disk
_FLUSH_BACKOFF = Backoff(first_seconds=0.01, longest_seconds=0.1, jitter=0.0)


@dataclass(frozen=True, slots=True)
class OutboxState:
    """The outbox at one time."""

    token: str
    #: the last id that was given before the snapshot was taken
    last: int
    #: the highest of the transactions that may still commit ids up to that one, 0 if there is none; None: not known
    writer: int | None
    snapshot: str
    #: the server's position after the snapshot was taken
    lsn: str | None


class Server:
    """Connects on first use."""

    def __init__(self, options: Options, context: Context) -> None:
        self.options = options
        self._context = context
        self._session: Session | None = None
        self._writing: WriteConnection | None = None
        #: up to where the log is known to be on disk
        self._durable = 0

    @property
    def session(self) -> Session:
        if self._session is None:
            target = connection_target(self.options, self._context, self.options.url, key="url", side="source")
            self._session = Session(target, statement_timeout=self.options.statement_timeout)
            self._check_server(self._session)
        return self._session

    def _check_server(self, session: Session) -> None:
        why = None
        if session.version < OLDEST_VERSION:
            why, step = f"version {session.version}; an outbox needs {OLDEST_VERSION} or later", "upgrade the server"
        elif session.server.standby:
            why, step = "a standby, where nothing can be registered or deleted", "point `url` at the primary"
        if why:
            raise StreamRefused(
                f"the server at {session.target.where} is {why}",
                safe=UNTOUCHED,
                next_step=step,
                pipeline=self._context.pipeline,
            )

    @property
    def writing(self) -> WriteConnection:
        if self._writing is None:
            self._writing = WriteConnection(
                self.session.target,
                statement_timeout=self.options.statement_timeout,
                lock_timeout=self.options.lock_timeout,
            )
        return self._writing

    def close(self) -> None:
        for each in (self._session, self._writing):
            if each is not None:
                each.close()
        self._session = self._writing = None

    def read_state(self, stream: str | None = None) -> OutboxState:
        """The outbox as it is now; StreamRefused if there is none."""
        schema = self.options.outbox_schema
        there = sql.SQL("SELECT to_regclass({})::oid::text").format(
            sql.Literal(to_text(sql.Identifier(schema, "identity")))
        )
        if self.session.rows(there)[0][0] is None:
            raise no_outbox(schema, stream)
        # The last id first, then the transactions that may have taken one of those, then what is visible.
        outbox = sql.Literal(to_text(sql.Identifier(schema, "outbox")))
        [(token, last)] = self.session.rows(
            sql.SQL(
                "SELECT token, coalesce(pg_sequence_last_value(pg_get_serial_sequence({}, 'id')), 0) FROM {}"
            ).format(outbox, sql.Identifier(schema, "identity")),
            stream=stream,
        )
        writers = [row[0] for row in self.session.rows(load_statement(PACKAGE, "writers").format(name=outbox))]
        [(snapshot,)] = self.session.rows(sql.SQL("SELECT pg_current_snapshot()::text"))
        near = newest_ended(snapshot)
        writer = None if None in writers else max((_full_number(each, near) for each in writers), default=0)
        return OutboxState(token, int(last), writer, snapshot, self.session.refresh_server().lsn)

    def wait_until_durable(self, lsn: str | None) -> None:
        """Wait until the server has all that a snapshot saw on its disk.

        It may show what a crash can still undo (synchronous_commit = off), and give its transaction number again.
        Within three rounds of the WAL writer, every commit is on disk; the rest of the log may take longer.
        """
        if lsn is None or log_bytes(lsn) <= self._durable:
            return
        [(delay,)] = self.session.rows(sql.SQL("SELECT setting::int FROM pg_settings WHERE name = 'wal_writer_delay'"))
        deadline, looks = time.monotonic() + (3 * int(delay) + 100) / 1000, 0
        while (left := deadline - time.monotonic()) > 0:
            [(flushed,)] = self.session.rows(sql.SQL("SELECT pg_current_wal_flush_lsn()::text"))
            if log_bytes(flushed) >= log_bytes(lsn):
                break
            looks += 1
            pause(_FLUSH_BACKOFF, looks, at_most=left)
        self._durable = log_bytes(lsn)

    def check_mark(self, stream: str, mark: OutboxMark) -> str | None:
        """Check that the server still has what was read; see `check_history`."""
        remedy = f"`penstock state reset FILE --stream {stream}` starts from what the outbox has"
        made = LogPosition("the mark", mark.timeline, mark.lsn, remedy)
        return check_history(self.session, stream, made, allowed=self.options.timeline)

    def check_outbox(self, stream: str, mark: OutboxMark, state: OutboxState) -> None:
        """StreamRefused if the outbox is not the one of the mark, or gives ids a second time."""
        remedy = (
            f"`penstock state reset FILE --stream {stream}` starts from what this outbox has; what was written "
            "between the two is not in it"
        )
        if mark.token != state.token:
            raise StreamRefused(
                f"the outbox in schema {self.options.outbox_schema} is not the one that the stream was read from: it "
                "was dropped and created again",
                safe=UNTOUCHED,
                next_step=remedy,
                stream=stream,
            )
        reached = max(mark.low, mark.id)
        if state.last < reached:
            raise StreamRefused(
                f"the outbox has given ids up to {state.last}, and the stream was read up to {reached}: its sequence "
                "was restarted, or the database was restored",
                safe=UNTOUCHED,
                next_step=remedy,
                stream=stream,
            )

    def find_blocker(self) -> tuple[float, str] | None:
        """The transaction that has been open longest of those that wrote: its seconds, and a description."""
        outbox = to_text(sql.Identifier(self.options.outbox_schema, "outbox"))
        query = load_statement(PACKAGE, "blocker").format(name=sql.Literal(outbox))
        for who, owner, state, seconds, statement in self.session.rows(query):
            text = f", last statement: {' '.join(statement.split())}" if statement else ""
            return float(seconds), f"{who} (user {owner}, {state}){text}"
        return None


def _full_number(short: int, near: int) -> int:
    """A transaction's number of 64 bits, from its lower 32 and another one that is near."""
    number = (near >> 32 << 32) + short
    if number - near > 1 << 31:
        return number - (1 << 32)
    return number + (1 << 32) if near - number > 1 << 31 else number
