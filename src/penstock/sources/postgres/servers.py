"""The servers of a source: the one that plans, and the one that rows are read from."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.documents import parse
from penstock.core.marks import Mark
from penstock.core.slices import Slice
from penstock.errors import StreamRefused
from penstock.links.postgres.connection import ServerState, Session, Target, VisibleFacts
from penstock.links.postgres.server_checks import LogPosition, RequiredState, check_history
from penstock.links.postgres.targets import connection_target
from penstock.ports import Context
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.marks import keyset_mark, update_keyset
from penstock.sources.postgres.options import Options


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """The server from which a slice's rows are read."""

    target: Target
    #: what the server can be asked for
    visible: VisibleFacts
    #: what it must have replayed
    required: RequiredState


class Servers:
    """The server at `url`, and the one at `replica` if there is one. Connects on first use."""

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._context = context
        self._session: Session | None = None
        self._visible_on_replica: VisibleFacts | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            primary = connection_target(self._options, self._context, self._options.url, key="url", side="source")
            self._session = Session(primary, statement_timeout=self._options.statement_timeout)
        return self._session

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def check_mark(self, stream: str, mark: Mark) -> str | None:
        """Check that the server still has what was read up to a mark; see `check_history`."""
        return check_history(self.session, stream, _position_of_mark(stream, mark), allowed=self._options.timeline)

    def require_mark(self, stream: str, content: Content, mark: Mark) -> None:
        """Wait until the server at `url` has everything up to a mark; an error if it never will, or not in time."""
        self.check_mark(stream, mark)
        made, identity = keyset_mark(mark), TableContent.read(content).identity
        timeline = made.timeline if made and made.timeline == self.session.server.timeline else None
        required = RequiredState(identity, timeline, made.lsn if made else None, self._options.replica_wait)
        required.wait_for(self.session.refresh_server, lambda: None, where=self.session.target.where)

    def read_target(self, slice_: Slice) -> ReadTarget:
        """The server for a slice's rows; StreamRefused if they may be gone there."""
        session, made = self.session, _position_of_slice(slice_)
        check_history(session, slice_.stream, made, allowed=self._options.timeline)
        timeline, lsn, now = made.timeline, made.lsn, session.server
        if timeline and now.timeline and timeline != now.timeline:
            # The new timeline has what was planned, and everything up to the current position.
            timeline, lsn = now.timeline, now.lsn
        identity = TableContent.parse(slice_.content).identity
        required = RequiredState(identity, timeline, lsn, self._options.replica_wait)
        if self._options.replica is None:
            return ReadTarget(session.target.for_reading(), session.visible, required)
        replica = connection_target(self._options, self._context, self._options.replica, key="replica", side="source")
        if self._visible_on_replica is None:
            self._visible_on_replica = self._check_replica(replica, slice_.stream)
        return ReadTarget(replica.for_reading(), self._visible_on_replica, required)

    def _check_replica(self, replica: Target, stream: str) -> VisibleFacts:
        """The facts that the replica shows; StreamRefused if it replicates another database."""
        session = Session(replica)
        session.close()
        if not session.identity.same(self.session.identity):
            raise StreamRefused(
                f"`replica` leads to {session.identity}, and `url` to {self.session.identity}",
                next_step="point `replica` at a replica of the server at `url`, or remove it",
                stream=stream,
            )
        return session.visible


def mark_on_server(to: Mark | None, at: Mark | None, server: ServerState) -> Mark | None:
    """A mark that a user rewinds to, as made on this server; unchanged if it is the current mark `at`."""
    before = keyset_mark(at)
    if to is None or (to == at and before is not None and before.timeline == server.timeline):
        return to
    return update_keyset(to, timeline=server.timeline, lsn=server.lsn)


def _position_of_mark(stream: str, mark: Mark) -> LogPosition:
    made = keyset_mark(mark)
    return LogPosition("the mark", made.timeline if made else None, made.lsn if made else None, _rewind_command(stream))


def _position_of_slice(slice_: Slice) -> LogPosition:
    plan = parse(slice_.plan)
    # An open slice has to be dropped before its stream can be rewound.
    recover = f"drop the open slice with `penstock state recover FILE --stream {slice_.stream}`, then "
    remedy = recover + _rewind_command(slice_.stream)
    return LogPosition(f"slice {slice_.number}", plan.get("timeline"), plan.get("lsn"), remedy)


def _rewind_command(stream: str) -> str:
    return f"run `penstock rewind FILE --stream {stream} --to VALUE` with a cursor value from before it happened"
