"""Checks that a server has all data that was planned or read, before rows are read from it.

Rows may be missing on a replica that lags, on another server behind the same address, on a restored server, and on one
that was promoted before it had received everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from psycopg import sql

from penstock.core.retry import Backoff
from penstock.errors import StreamFailed, StreamRefused
from penstock.links.pause import pause
from penstock.links.postgres.connection import Identity, ServerState, Session, VisibleFacts
from penstock.links.postgres.failures import connection_lost
from penstock.ports import Remark

_DOUBT = "Rows that were read may be gone, and others may have taken their place"
#: between two looks at a standby that is behind
_REPLAY_BACKOFF = Backoff(first_seconds=0.05, longest_seconds=1.0, jitter=0.0)


def log_bytes(lsn: str) -> int:
    """A position in the log as a number of bytes."""
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


@dataclass(frozen=True, slots=True)
class RequiredState:
    """The state that a server must have reached before a slice's rows are read from it."""

    identity: Identity
    #: the timeline that the slice was planned on; None: unknown
    timeline: int | None = None
    #: the position at which the slice was planned; None: unknown
    lsn: str | None = None
    #: seconds to wait for a standby
    wait: float = 0.0

    def wait_for(self, ask: Callable[[], ServerState], leave: Callable[[], None], *, where: str) -> None:
        """Return once the server has all that was planned; an error if it never will, or not in time.

        `ask` begins a transaction and `leave` ends it: an open one could keep a standby from replaying.
        """
        deadline, looks = time.monotonic() + self.wait, 0
        while (missing := self._missing_bytes(server := ask(), where)) is not None:
            leave()
            if time.monotonic() >= deadline:
                raise self._lag_error(server, missing, where)
            looks += 1
            pause(_REPLAY_BACKOFF, looks, at_most=deadline - time.monotonic())

    def _missing_bytes(self, server: ServerState, where: str) -> int | None:
        """Bytes that a standby has yet to replay, 0 if the number is unknown; None: it has everything."""
        if not server.identity.same(self.identity):
            raise connection_lost(where, "another database answers there now")
        later = server.timeline - self.timeline if server.timeline and self.timeline else 0
        if later > 0 or (later and not server.standby):
            raise connection_lost(where, f"it went from timeline {self.timeline} to {server.timeline} (a failover?)")
        behind = max(0, log_bytes(self.lsn) - log_bytes(server.lsn)) if self.lsn and server.lsn else 0
        if server.standby:
            # A standby that hides its receiver reports the previous timeline for a while after it has switched.
            unknown = self.lsn is not None and server.lsn is None
            return behind if behind or unknown or later else None
        if behind:
            raise StreamFailed(
                f"the server at {where} is behind what was planned: it is at {server.lsn}, {behind} bytes before "
                f"{self.lsn} (restored from an older copy? promoted before it had received everything?)",
                next_step="point `url` at the server that has everything, then run again",
            )
        return None

    def _lag_error(self, server: ServerState, missing: int, where: str) -> StreamFailed:
        how = (
            f"{missing} bytes behind {self.lsn}"
            if missing
            else f"on timeline {server.timeline} and not {self.timeline}"
        )
        return StreamFailed(
            f"the replica at {where} has not replayed what was planned: it is at {server.lsn}, {how}, after "
            f"{self.wait:g} s",
            next_step="find out why it lags (pg_stat_replication on the primary, pg_is_wal_replay_paused() here), "
            "raise `replica_wait`, or remove `replica`; the next run finishes this slice",
        )


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in a server's log at which something was made: a mark, or a slice that is still open."""

    #: its name in messages, such as `the mark`
    what: str
    timeline: int | None
    lsn: str | None
    #: what to do if the server may have lost data since
    remedy: str


def check_history(session: Session, stream: str, made: LogPosition, *, allowed: int | None) -> str | None:
    """Check that the server still has everything up to a position of its log; StreamRefused if that is uncertain.

    `allowed` is a timeline that the operator confirms. Returns a message if the server has switched to another
    timeline and provably lost nothing.
    """
    server, timeline, lsn = session.server, made.timeline, made.lsn
    if timeline is None or server.timeline is None or timeline == server.timeline:
        if not server.standby and lsn and server.lsn and log_bytes(server.lsn) < log_bytes(lsn):
            raise StreamRefused(
                f"the server is at {server.lsn} of its log, before {lsn} where {made.what} was made: it was restored "
                f"from an older copy, or lost its last transactions in a crash. {_DOUBT}",
                next_step=f"{made.remedy}; if nothing that was read is missing, run again once the server has written "
                "more",
                stream=stream,
            )
        return None
    if allowed == server.timeline:
        return None
    end = _end_of_timeline(session, timeline, server.timeline)
    if lsn is None or end is None or log_bytes(lsn) > log_bytes(end):
        known = f" It left timeline {timeline} at {end}, and {made.what} was made at {lsn}." if end else ""
        raise StreamRefused(
            f"the server is on timeline {server.timeline}, and {made.what} was made on timeline {timeline}: there was "
            f"a failover or a restore in between.{known} {_DOUBT}",
            next_step=f"{made.remedy}; or set `timeline: {server.timeline}` on the source to confirm that nothing was "
            "lost",
            stream=stream,
        )
    return (
        f"the server went from timeline {timeline} to {server.timeline}; it left {timeline} at {end}, and {made.what} "
        f"was made before that, at {lsn}: no data that was read is lost"
    )


def _end_of_timeline(session: Session, timeline: int, now: int) -> str | None:
    """The position at which the server left a timeline; None if it does not show it, or never was on it."""
    name = sql.Literal(f"pg_wal/{now:08X}.history")
    rows = session.rows_if_permitted(sql.SQL("SELECT pg_read_file({})").format(name))
    lines = [line.split() for line in rows[0][0].splitlines()] if rows else []
    return next((line[1] for line in lines if line[:1] == [str(timeline)]), None)


def explain_hidden_facts(visible: VisibleFacts) -> Iterator[Remark]:
    """Say which checks a server makes impossible that hides facts from the role."""
    if not (visible.timeline and visible.lsn):
        yield Remark(
            "gap",
            "a failover, a restore and a lagging replica are not noticed: the server does not show the role its "
            "timeline or its position in the log",
        )
    if not visible.system:
        yield Remark(
            "gap",
            "another server at the same address is recognized only by the database's oid and name: this server does "
            "not show the role its system identifier",
        )
