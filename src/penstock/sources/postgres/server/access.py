"""The servers of a source: the one that is asked and planned at, and the one that rows are read from."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.marks import Mark
from penstock.core.slices import Slice
from penstock.errors import StreamRefused
from penstock.links.postgres.connection import Identity, Session, Target, VisibleFacts
from penstock.links.postgres.targets import connection_target
from penstock.ports import Context
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.options import Options
from penstock.sources.postgres.server.servers import Made, Needs, follows


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where a slice's rows are read."""

    target: Target
    #: what the server can be asked for
    tells: VisibleFacts
    #: what it must have
    needs: Needs


class Access:
    """Connects when it is first needed."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._context = context
        self._open: Session | None = None
        self._replica: VisibleFacts | None = None

    @property
    def session(self) -> Session:
        if self._open is None:
            primary = connection_target(self._options, self._context, self._options.url, key="url", side="source")
            self._open = Session(primary, statement_timeout=self._options.statement_timeout)
        return self._open

    def connect(self) -> None:
        _ = self.session

    def close(self) -> None:
        session, self._open = self._open, None
        if session is not None:
            session.close()

    def follows(self, stream: str, mark: Mark) -> str | None:
        """Whether the server still has what was read up to a mark; see `servers.follows`."""
        return follows(self.session, stream, Made.mark(mark), allowed=self._options.timeline)

    def outlet(self, slice_: Slice) -> Outlet:
        """Where the rows of a slice are read; StreamRefused if they may not be there any more."""
        session, made = self.session, Made.slice(slice_)
        follows(session, slice_.stream, made, allowed=self._options.timeline)
        timeline, lsn = made.timeline, made.lsn
        if timeline and session.timeline and timeline != session.timeline:
            # What was planned is on the new timeline, and so is everything up to where it is now.
            timeline, lsn = session.timeline, session.lsn
        identity = TableContent.parse(slice_.content).identity
        needs = Needs(identity, timeline, lsn, self._options.replica_wait)
        if self._options.replica is None:
            return Outlet(session.target.for_reading(), session.tells, needs)
        replica = connection_target(self._options, self._context, self._options.replica, key="replica", side="source")
        if self._replica is None:
            self._replica = self._met(replica, slice_.stream)
        return Outlet(replica.for_reading(), self._replica, needs)

    def _met(self, replica: Target, stream: str) -> VisibleFacts:
        """What the replica tells; StreamRefused if it is one of another database."""
        session = Session(replica)
        session.close()
        if not session.identity.same(self.session.identity):
            raise StreamRefused(
                f"`replica` leads to {_named(session.identity)}, and `url` to {_named(self.session.identity)}",
                next_step="point `replica` at a replica of the server at `url`, or leave it out",
                stream=stream,
            )
        return session.tells


def _named(identity: Identity) -> str:
    return f"database {identity.database} (oid {identity.oid}) of cluster {identity.system or 'unknown'}"
