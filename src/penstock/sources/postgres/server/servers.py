"""Which server answers and how far it is, held against what a plan or a mark says, before rows are read.

Rows that were seen when a slice was planned may be missing elsewhere: on a replica that lags, on another server behind
the same address, on one that was restored, on one that took over without having received everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from psycopg import sql

from penstock.core.documents import Document, parse
from penstock.core.marks import Mark
from penstock.core.slices import Slice
from penstock.errors import PenstockError, StreamFailed, StreamRefused
from penstock.links.postgres.connection import Identity, ServerState, Session, VisibleFacts
from penstock.links.postgres.failures import connection_lost
from penstock.ports import Planned, Remark
from penstock.sources.postgres.marks import along_the_cursor, noted

_DOUBT = "Rows that were read may not be there any more, and others may have taken their place"

#: seconds between two looks at a server that is behind, at first and at most
PAUSE, LONGEST_PAUSE = 0.05, 1.0


def place(lsn: str) -> int:
    """A position in the log as a number of bytes."""
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a server must be, and have, before a slice's rows are read from it."""

    identity: Identity
    #: the one that the slice was planned on; None: unknown
    timeline: int | None = None
    #: where the server was that planned; None: unknown
    lsn: str | None = None
    #: seconds to wait for a standby
    wait: float = 0.0

    def met(self, ask: Callable[[], ServerState], leave: Callable[[], None], *, where: str) -> None:
        """Return once the server has all that was planned; an error if it never will, or not in time.

        `ask` begins a transaction, and `leave` ends it: what is held in it could keep a standby from replaying.
        """
        deadline, pause = time.monotonic() + self.wait, PAUSE
        while (missing := self._missing(server := ask(), where)) is not None:
            leave()
            if time.monotonic() >= deadline:
                raise self._late(server, missing, where)
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _missing(self, server: ServerState, where: str) -> int | None:
        """Bytes that a standby has yet to replay, 0 if it is not known how many; None: it has everything."""
        if not server.identity.same(self.identity):
            raise connection_lost(where, "another database answers there now")
        behind = self._behind(server)
        if not server.standby:
            if self._elsewhere(server):
                raise self._moved(server, where)
            if behind:
                raise self._gone_back(server, behind, where)
            return None
        if self._elsewhere(server) > 0:
            raise self._moved(server, where)
        # One that does not show its receiver says the timeline before for a while after it has come to the next.
        unknown = self.lsn is not None and server.lsn is None
        return behind if behind or unknown or self._elsewhere(server) else None

    def _elsewhere(self, server: ServerState) -> int:
        """How many timelines later the server is, 0 if it is not known to be on another."""
        return server.timeline - self.timeline if server.timeline and self.timeline else 0

    def _behind(self, server: ServerState) -> int:
        if self.lsn is None or server.lsn is None:
            return 0
        return max(0, place(self.lsn) - place(server.lsn))

    def _moved(self, server: ServerState, where: str) -> PenstockError:
        return connection_lost(
            where, f"it was on timeline {self.timeline} and is on timeline {server.timeline} (a failover?)"
        )

    def _late(self, server: ServerState, missing: int, where: str) -> StreamFailed:
        how = (
            f"{missing} bytes behind {self.lsn}"
            if missing
            else f"on timeline {server.timeline} and not {self.timeline}"
        )
        return StreamFailed(
            f"the replica at {where} has not replayed what was planned: it is at {server.lsn}, {how}, after "
            f"{self.wait:g} s",
            next_step="see why it lags (pg_stat_replication at the primary, pg_is_wal_replay_paused() here), raise "
            "`replica_wait`, or leave `replica` out; the next run finishes this slice",
        )

    def _gone_back(self, server: ServerState, behind: int, where: str) -> StreamFailed:
        return StreamFailed(
            f"the server at {where} is behind what was planned: it is at {server.lsn}, {behind} bytes before "
            f"{self.lsn} (restored from an older copy? taken over without having received everything?)",
            next_step="point `url` at the server that has everything, then run again",
        )


def placed(planned: Planned, server: ServerState) -> Planned:
    """A plan, and its mark, with the place in the server's log where it was made."""
    there: Document = {"timeline": server.timeline, "lsn": server.lsn}
    return replace(planned, upto=noted(planned.upto, **there), plan={**planned.plan, **there})


def remarks(tells: VisibleFacts) -> Iterator[Remark]:
    """What is not known of a server that withholds something."""
    if not (tells.timeline and tells.lsn):
        yield Remark(
            "gap",
            "a failover, a restore and a replica that lags are not noticed: the server does not tell the role its "
            "timeline or its place in the log",
        )
    if not tells.system:
        yield Remark(
            "gap",
            "another server at the same address is told apart by the database's oid and name alone: this one does not "
            "tell the role its system identifier",
        )


def led(to: Mark | None, at: Mark | None, server: ServerState) -> Mark | None:
    """A mark that a user goes back to, as made on this server; `at` itself if that is where it is."""
    if to is None or (to == at and Made.mark(at).timeline == server.timeline):
        return to
    return noted(to, timeline=server.timeline, lsn=server.lsn)


def follows(session: Session, stream: str, made: Made, *, allowed: int | None) -> str | None:
    """Whether the server still has what was read up to a place of its log; StreamRefused if that is not known.

    `allowed` is the timeline that the operator vouches for. Returns what to tell a user if the server has come to
    another timeline, and is known to have lost nothing on the way.
    """
    server, timeline, lsn = session.server, made.timeline, made.lsn
    if timeline is None or server.timeline is None or timeline == server.timeline:
        if not server.standby and lsn and server.lsn and place(server.lsn) < place(lsn):
            raise made.restored(server, stream)
        return None
    if allowed == server.timeline:
        return None
    left = _left_at(session, timeline, server.timeline)
    if lsn is None or left is None or place(lsn) > place(left):
        raise made.failed_over(server, stream, left)
    return (
        f"the server has come from timeline {timeline} to {server.timeline}; it left {timeline} at {left}, and "
        f"{made.what} was made before that, at {lsn}: nothing that was read is lost"
    )


def _left_at(session: Session, timeline: int, now: int) -> str | None:
    """Where in its log the server left a timeline; None if it will not tell, or never was on it."""
    name = sql.Literal(f"pg_wal/{now:08X}.history")
    told = session.told(sql.SQL("SELECT pg_read_file({})").format(name))
    lines = [line.split() for line in told[0][0].splitlines()] if told else []
    return next((line[1] for line in lines if line[:1] == [str(timeline)]), None)


@dataclass(frozen=True, slots=True)
class Made:
    """Something that was made at a place of a server's log: a mark, or a slice that is still open."""

    what: str
    timeline: int | None
    lsn: str | None
    #: an open slice has to be let go of before its stream can be rewound
    open: bool = False

    @classmethod
    def mark(cls, mark: Mark) -> Made:
        ours = along_the_cursor(mark)
        return cls("the mark", *((ours.timeline, ours.lsn) if ours else (None, None)))

    @classmethod
    def slice(cls, slice_: Slice) -> Made:
        plan = parse(slice_.plan)
        return cls(f"slice {slice_.number}", plan.get("timeline"), plan.get("lsn"), open=True)

    def restored(self, server: ServerState, stream: str) -> StreamRefused:
        return StreamRefused(
            f"the server is at {server.lsn} of its log, before {self.lsn} where {self.what} was made: it was restored "
            f"from an older copy, or lost its last moments in a crash. {_DOUBT}",
            next_step=f"{self._back(stream)}; if nothing that was read is missing, run again once the server has "
            "written on",
            stream=stream,
        )

    def failed_over(self, server: ServerState, stream: str, left: str | None) -> StreamRefused:
        known = f" It left timeline {self.timeline} at {left}, and {self.what} was made at {self.lsn}." if left else ""
        return StreamRefused(
            f"the server is on timeline {server.timeline}, and {self.what} was made on timeline {self.timeline}: a "
            f"failover or a restore came between.{known} {_DOUBT}",
            next_step=f"{self._back(stream)}; or set `timeline: {server.timeline}` on the source, as your word that "
            "nothing was lost",
            stream=stream,
        )

    def _back(self, stream: str) -> str:
        first = (
            f"let go of the open slice by `penstock state recover FILE --stream {stream}`, then " if self.open else ""
        )
        rewind = f"run `penstock rewind FILE --stream {stream} --to VALUE`"
        return f"{first}{rewind} with a cursor value from before it happened"
