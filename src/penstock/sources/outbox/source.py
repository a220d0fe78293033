"""The outbox source: the methods of the port, carried out by the other modules of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from psycopg import sql

from penstock.core.content import Content
from penstock.core.documents import Document, parse
from penstock.core.marks import Mark, Position
from penstock.core.ops import FEED_COLUMNS
from penstock.core.slices import Kind, Slice
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.server_checks import RequiredState, explain_hidden_facts
from penstock.links.postgres.transactions import Identity
from penstock.ports import Budget, Context, Planned, Reading, Remaining, Remark, StreamInfo
from penstock.sources.outbox import marks
from penstock.sources.outbox.applying import Resolved, plan_triggers, resolve
from penstock.sources.outbox.comparing import RefusedComparison
from penstock.sources.outbox.failures import no_outbox
from penstock.sources.outbox.load.declared import Load, loads_of, remaining_loads
from penstock.sources.outbox.load.dumps import Hold
from penstock.sources.outbox.load.planning import check_readable, estimate_left, explain_loads, plan_load
from penstock.sources.outbox.load.reading import LoadReader, load_of, load_parts
from penstock.sources.outbox.load.requests import read_requests, with_requests
from penstock.sources.outbox.load.states import LoadState
from penstock.sources.outbox.marks import OutboxMark, describe_load
from penstock.sources.outbox.options import Options, StreamOptions
from penstock.sources.outbox.reader import OutboxReader
from penstock.sources.outbox.registry import Registry, find_gone, watched_since
from penstock.sources.outbox.server import OutboxState, Server
from penstock.sources.outbox.triggers import Change
from penstock.sources.outbox.windows import Window, make_parts, window_of

PACKAGE = "penstock.sources.outbox"
#: bytes of a document, where nothing is known yet
DOCUMENT_BYTES = 400.0
#: bytes that are worth a part of their own
PART_BYTES = 4 << 20
PARTS_PER_WORKER = 2
#: documents that are counted for an estimate
COUNTED_ROWS = 100_000


class OutboxSource(RefusedComparison):
    """Streams of one outbox. See `penstock.ports.Source` for the obligations of each method."""

    def __init__(self, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self._options = options
        self._streams = dict(streams)
        self._context = context
        self._server = Server(options, context)
        self._resolved: Resolved | None = None
        #: what `apply` would do to the triggers
        self._changes: tuple[Change, ...] = ()
        #: by stream, its first loads
        self._loads: dict[str, tuple[Load, ...]] = {}

    # ------------------------------------------------------------ the database

    def connect(self) -> None:
        _ = self._server.session
        self._resolved = None
        self._loads = {}

    def close(self) -> None:
        self._server.close()

    @property
    def _registry(self) -> Registry:
        keep = self._options.keep_hours * 3600
        return Registry(self._server.writing, self._options.outbox_schema, self._context.pipeline, keep)

    # ------------------------------------------------------------ the streams

    def catalog(self) -> Sequence[StreamInfo]:
        return [
            StreamInfo(name=name, kind=Kind.ROWS, primary_key=("id",), order=("id",), in_order=True)
            for name in self._streams
        ]

    def content(self, stream: str) -> Content:
        if stream not in self._streams:
            raise StreamRefused(
                "the pipeline file does not have this stream", next_step="list it under `streams`", stream=stream
            )
        resolved = self._resolve()
        for problem in resolved.problems:
            if problem.stream == stream:
                raise problem
        entity = resolved.entities[stream]
        tables = {str(table) for table, _ in entity.feeds}
        for change in self._changes:
            if not change.table and change.what == "create":
                raise no_outbox(self._options.outbox_schema, stream)
            if change.table in tables:
                raise _outdated(stream, [each for each in self._changes if each.table in tables])
        check_readable(self._loads_of(stream), self._server.session.user, stream)
        identity = self._server.session.identity
        return Content(
            columns=FEED_COLUMNS,
            key=("id",),
            identity={
                "system": identity.system,
                "oid": identity.oid,
                "database": identity.database,
                "outbox": self._options.outbox_schema,
                "stream": stream,
            },
            entities=entity.layout.document(),
        )

    def _resolve(self) -> Resolved:
        if self._resolved is None:
            session = self._server.session
            resolved = resolve(session, self._options, self._streams)
            self._changes = plan_triggers(session, self._options, self._context.pipeline, resolved).changes
            self._resolved = resolved
        return self._resolved

    def _loads_of(self, stream: str) -> tuple[Load, ...]:
        """The first loads of a stream, as the file declares them."""
        if not self._streams[stream].first_load:
            return ()
        if stream not in self._loads:
            asked = read_requests(self._server, self._context.pipeline)
            self._loads[stream] = with_requests(stream, self._declared_loads(stream), asked)
        return self._loads[stream]

    def _declared_loads(self, stream: str) -> tuple[Load, ...]:
        """The same, before requests."""
        resolved, since = self._resolve(), watched_since(self._server, self._context.pipeline)
        known = {table.name: table for table in resolved.tables}
        return loads_of(resolved.entities[stream], known, since)

    def accept(self, stream: str, last: Position, content: Content) -> None:
        if last.mark is None:
            return
        mark = OutboxMark.of(last.mark)
        was, now = _identity(Content.parse(last.content)), self._server.session.identity
        if not now.same(was):
            raise StreamRefused(
                f"the mark was made in {was}, and now {now} answers",
                next_step="point `url` back at the first one, or give the pipeline another name",
                stream=stream,
            )
        self._server.check_outbox(stream, mark, self._server.read_state(stream))

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        mark = OutboxMark.of(last.mark) if last and last.mark else None
        said = self._server.check_mark(stream, mark) if mark else None
        lines = [
            describe_load(state) for _, state in remaining_loads(mark.loads if mark else (), self._loads_of(stream))
        ]
        return [*([said] if said else []), *self._registry.register(stream, last), *lines]

    # ------------------------------------------------------------ planning

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        state = self._server.read_state(stream)
        # A request that was committed before the snapshot counts.
        self._loads.pop(stream, None)
        hold = self._hold(stream, OutboxMark.of(after).loads if after is not None else ())
        held: Document = {} if hold is None else {"held": True, "low": hold.low}
        if hold is not None:
            read = OutboxMark.of(after).read if after is not None else marks.NOTHING
            state = replace(state, snapshot=hold.snapshot or read, writer=None)
        return {
            "snapshot": state.snapshot,
            "last": state.last,
            "writer": state.writer,
            "token": state.token,
            "lsn": state.lsn,
            "loads": self._declared(stream) if hold is None or not hold.waits else None,
            **held,
        }

    def _hold(self, stream: str, states: Sequence[LoadState]) -> Hold | None:
        """What a dump allows to be read: the files that are named come before those that are still to be made."""
        left = [load.hold for load, _ in remaining_loads(states, self._loads_of(stream)) if load.dump and load.hold]
        waiting = [load.hold for load in self._loads_of(stream) if load.hold and load.hold.waits]
        return min(left or waiting, key=lambda each: each.order, default=None)

    def _declared(self, stream: str) -> Document:
        """What is to be loaded: by its name, the hashes of each load."""
        return {each.name: [each.identity, each.fields, each.wanted] for each in self._loads_of(stream)}

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        state = _state(ceiling)
        at = OutboxMark.of(after) if after is not None else OutboxMark(state.token)
        if after is not None:
            self._server.check_mark(stream, at)
            self._server.check_outbox(stream, at, state)
        if ceiling.get("held"):
            self._check_hold(stream, at, ceiling)
        bound = None if state.writer is None else (state.writer, state.last)
        snapshot, bound = (at.window, at.bound) if at.window is not None else (state.snapshot, bound)
        window = Window(snapshot, at.read, max(at.low, at.id if at.window else 0))
        most = _most_rows(budget)
        parts = max(1, min(max(1, budget.workers) * PARTS_PER_WORKER, int(most * _row_bytes(budget) / PART_BYTES)))
        step = max(1, -(-most // parts))
        # One more than the slice takes: whether the window has more.
        query = load_statement(PACKAGE, "window").format(
            outbox=self._outbox,
            window=window.condition(stream),
            most=sql.Literal(most + 1),
            full=sql.Literal(most),
            step=sql.Literal(step),
        )
        found = {int(n): int(id_) for id_, n in self._server.session.rows(query, stream=stream)}
        if not found and at.window is None:
            return self._plan_load(stream, at, at.after(snapshot, bound), ceiling, budget)
        rows = min(max(found, default=0), most)
        upto = (
            at.after(snapshot, bound) if rows in (0, max(found, default=0)) else at.within(snapshot, bound, found[most])
        )
        if not budget.look:
            self._server.wait_until_durable(state.lsn)
        server = self._server.session.refresh_server()
        cuts = [id_ for n, id_ in found.items() if n < rows and n % step == 0]
        return Planned(
            replace(upto, timeline=server.timeline, lsn=server.lsn).mark(), plan={"cuts": cuts}, rows=rows, exact=True
        )

    def _check_hold(self, stream: str, at: OutboxMark, ceiling: Document) -> None:
        """StreamRefused if the stream has read what a dump may not show, or documents since then were deleted."""
        query = sql.SQL("SELECT coalesce(max(low), 0) FROM {} WHERE stream = {}").format(
            sql.Identifier(self._options.outbox_schema, "floors"), sql.Literal(stream)
        )
        [(floor,)] = self._server.session.rows(query, stream=stream)
        known: Any = ceiling
        if marks.sees_all(known["snapshot"], at.window or at.read) and (known["low"] is None or floor <= known["low"]):
            return
        raise StreamRefused(
            "the files of a dump are older than what the stream has read, or than documents that were deleted: changes "
            "made in between would be missing",
            safe=UNTOUCHED,
            next_step=f"`penstock loads start FILE --stream {stream}` reads the tables themselves; with --await-files, "
            "the stream waits for a new dump",
            stream=stream,
        )

    def _plan_load(
        self, stream: str, at: OutboxMark, now: OutboxMark, ceiling: Document, budget: Budget
    ) -> Planned | None:
        """The next slice of the first loads. All documents that the ceiling sees have been read before."""
        loads = self._loads_of(stream)
        # With another declaration, triggers may have been changed after the ceiling was taken: documents that they
        # wrote before would come after the rows.
        if not loads or ceiling.get("loads") != self._declared(stream):
            return None
        found = plan_load(self._server.session.rows, at.loads, at.load_slices, loads, budget, _row_bytes(budget))
        if found is None:
            return None
        server = self._server.session.refresh_server()
        if not budget.look:
            # Planning has seen more than the ceiling: a table that is empty is not read.
            self._server.wait_until_durable(server.lsn)
        upto = replace(now, loads=found.states, load_slices=at.load_slices + 1)
        return Planned(replace(upto, timeline=server.timeline, lsn=server.lsn).mark(), plan=found.plan, rows=found.rows)

    @property
    def _outbox(self) -> sql.Identifier:
        return sql.Identifier(self._options.outbox_schema, "outbox")

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        state = _state(ceiling)
        at = OutboxMark.of(after) if after is not None else OutboxMark(state.token)
        left = Window(state.snapshot, at.read, at.low).condition(stream)
        if at.window is not None:
            done = Window(at.window, at.read, at.low, at.id).condition(stream)
            left = sql.SQL("{} AND NOT ({})").format(left, done)
        query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} AS o WHERE {} LIMIT {}) AS counted").format(
            self._outbox, left, sql.Literal(COUNTED_ROWS)
        )
        [(rows,)] = self._server.session.rows(query, stream=stream)
        loads = [estimate_left(self._server.session.rows, *each) for each in self._left_to_load(stream, at)]
        exact = rows < COUNTED_ROWS and not loads
        waiting = self._waiting(stream) if ceiling.get("held") else None
        return Remaining(
            int(rows) + sum(loads),
            exact=exact,
            warning=waiting or self._warning() or find_gone(self._server, self._context.pipeline, stream),
        )

    def _left_to_load(self, stream: str, at: OutboxMark) -> tuple[tuple[Load, LoadState], ...]:
        return remaining_loads(at.loads, self._loads_of(stream))

    def _waiting(self, stream: str) -> str | None:
        names = ", ".join(each.name for each in self._loads_of(stream) if each.hold is not None and each.hold.waits)
        if not names:
            return None
        return (
            f"the stream waits for a dump of {names}; changes are kept in the outbox meanwhile. Name its files with "
            "`penstock loads start FILE --from`, or end the wait with `penstock loads drop FILE`"
        )

    def _warning(self) -> str | None:
        blocker = self._server.find_blocker()
        if blocker is None or blocker[0] < self._options.warn_after:
            return None
        seconds, who = blocker
        return (
            f"{who} has had a transaction open for {seconds:,.0f} s: its documents are delivered after it commits, "
            "and no later document is deleted from the outbox before"
        )

    # ------------------------------------------------------------ reading

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        session = self._server.session
        content = Content.parse(slice_.content)
        was = _identity(content)
        if not session.identity.same(was):
            raise StreamRefused(
                f"slice {slice_.number} reads {was}, and now {session.identity} answers",
                next_step="point `url` back at the first one",
                stream=slice_.stream,
            )
        assert slice_.upto is not None
        upto = OutboxMark.of(slice_.upto)
        self._server.check_mark(slice_.stream, upto)
        self._server.check_outbox(slice_.stream, upto, self._server.read_state(slice_.stream))
        shared: dict[str, Any] = {
            "target": session.target.for_reading(),
            "pipeline": slice_.pipeline,
            "stream": slice_.stream,
            "required": RequiredState(was, session.server.timeline, upto.lsn),
            "visible": session.visible,
            "statement_timeout": self._options.statement_timeout,
        }
        load = load_of(slice_)
        if load is not None:
            yield Reading(LoadReader(**shared, tables=tuple(load["tables"])), load_parts(slice_, load))
            return
        window, schema = window_of(slice_), str(content.identity["outbox"])
        reader = OutboxReader(**shared, outbox_schema=schema, window=window)
        yield Reading(reader, make_parts(window, parse(slice_.plan)))

    def check_open_slice(self, slice_: Slice) -> None:
        with self.reading(slice_):
            pass

    def advanced(self, stream: str, position: Position) -> None:
        self._registry.advance(stream, position)

    # ------------------------------------------------------------ for people

    def describe(self, mark: Mark | None) -> str:
        return marks.describe(mark)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        said = [
            Remark(
                "guarantee",
                "every change that commits is delivered once, however late; changes of one entity come "
                "in the order in which they were made",
            ),
        ]
        if self._streams[stream].first_load:
            said += explain_loads(self._server.session.rows, self._loads_of(stream))
        else:
            said.append(Remark("gap", "rows that existed before the triggers are delivered when they change next"))
        said += [
            Remark(
                "gap",
                "rows of a join table that outlive their entity are not joined to one that is created later "
                "under the same key",
            )
        ] * bool(self._streams[stream].multi_value)
        return [*said, *explain_hidden_facts(self._server.session.visible)]


def _outdated(stream: str, changes: Sequence[Change]) -> StreamRefused:
    more = f" (and {len(changes) - 3} more)" if len(changes) > 3 else ""
    several = "; ".join(map(str, changes[:3]))
    return StreamRefused(
        f"the triggers in the database are not those of the pipeline file: {several}{more}. Changes may be missing in "
        "the outbox",
        safe=UNTOUCHED,
        next_step="`penstock triggers plan FILE` shows the difference, `penstock triggers apply FILE` removes it",
        stream=stream,
    )


def _identity(content: Content) -> Identity:
    document = content.identity
    system = document.get("system")
    return Identity(None if system is None else str(system), str(document.get("oid")), str(document.get("database")))


def _state(ceiling: Document) -> OutboxState:
    known: Any = ceiling
    return OutboxState(known["token"], known["last"], known["writer"], known["snapshot"], known["lsn"])


def _row_bytes(budget: Budget) -> float:
    return budget.row_bytes or DOCUMENT_BYTES


def _most_rows(budget: Budget) -> int:
    most = max(1, int(budget.bytes / _row_bytes(budget)))
    return min(most, budget.rows) if budget.rows is not None else most
