"""The postgres source: what the engine asks, answered by the other modules of this room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.core.content import Content
from penstock.core.documents import Document, parse
from penstock.core.marks import Mark, Position
from penstock.core.names import did_you_mean, nearest
from penstock.core.ranges import Key
from penstock.core.slices import Kind, Slice
from penstock.errors import InputError, StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName
from penstock.ports import Budget, Context, DiscoveredStream, Planned, Reading, Remaining, Remark, StreamInfo
from penstock.sources.postgres import catalog, keyset, marks, missed, refresh
from penstock.sources.postgres.altered import as_now, refused
from penstock.sources.postgres.catalog import Found, Table
from penstock.sources.postgres.content import TableContent, names
from penstock.sources.postgres.horizon import horizons
from penstock.sources.postgres.horizon.horizons import Horizons
from penstock.sources.postgres.identity import TableIdentity
from penstock.sources.postgres.load import loading
from penstock.sources.postgres.load.pieces import Stream
from penstock.sources.postgres.marks import KeysetMark, LoadMark, RefreshMark
from penstock.sources.postgres.options import Horizon, Options, StreamOptions
from penstock.sources.postgres.plan import parts_for
from penstock.sources.postgres.reader import PostgresReader
from penstock.sources.postgres.replaced import check_open, doubt, stopped
from penstock.sources.postgres.server import servers
from penstock.sources.postgres.server.access import Access
from penstock.sources.postgres.validate import key_names, missing_table, table_name, validate_table


class PostgresSource:
    """Tables of one database. See `Source` in ports.py for what each method owes."""

    def __init__(self, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self._options = options
        self._streams = dict(streams)
        self._context = context
        self._access = Access(options, context)
        self._horizons = Horizons(self._horizon)
        #: as each stream's table was when it was last validated
        self._identities: dict[str, TableIdentity] = {}

    # ------------------------------------------------------------ reaching the database

    def connect(self) -> None:
        self._access.connect()

    def close(self) -> None:
        self._access.close()

    @property
    def _session(self) -> Session:
        return self._access.session

    # ------------------------------------------------------------ the streams

    def catalog(self) -> Sequence[StreamInfo]:
        schema = self._options.default_schema if self._discovers() else None
        named = {stream: self._table_of(stream) for stream in self._streams}
        tables = catalog.tables(self._session, schema, [name for name in named.values() if name])
        found: dict[TableName | None, Found] = {table.name: table for table in tables}
        if schema is not None and not any(table.discovered for table in tables):
            self._check_schema(schema)
        infos = [self._info(stream, options, found.get(named[stream])) for stream, options in self._streams.items()]
        for table in tables:
            listed = table.name in named.values()
            if table.discovered and not listed and not catalog.excluded(table.name, self._options.exclude):
                infos.append(self._info(self._discovered_name(table.name), StreamOptions(), table))
        return infos

    def _table_of(self, stream: str) -> TableName | None:
        """The table of a configured stream; None if it names none, which `content` will refuse."""
        try:
            return table_name(stream, self._streams[stream], self._options.default_schema)
        except StreamRefused:
            return None

    def _discovers(self) -> bool:
        return not self._streams if self._options.discover is None else self._options.discover

    def _discovered_name(self, name: TableName) -> str:
        # With its schema where the bare name would be read otherwise, or is the name of a configured stream.
        alone = "." not in name.name and '"' not in name.name
        return name.name if alone and name.name not in self._streams else str(name)

    def _info(self, stream: str, options: StreamOptions, table: Found | None) -> StreamInfo:
        key = table.primary_key if table else ()
        skipped = None
        if stream not in self._streams and not key:
            skipped = "it has no primary key; list it under `streams` to read it whole in every run"
        return StreamInfo(
            name=stream,
            kind=Kind.ROWS if options.cursor else Kind.REFRESH,
            primary_key=key,
            order=key_names(options),
            skipped=skipped,
            accept_drop=options.accept_drop,
        )

    def _check_schema(self, schema: str) -> None:
        known = catalog.schemas(self._session)
        if schema in known:
            return
        near = nearest(schema, known)
        raise InputError(
            f"there is no schema {schema} in database {self._session.identity.database}{did_you_mean(schema, known)}",
            next_step=f"set `schema: {near}`" if near else "correct `schema` of the source",
            pipeline=self._context.pipeline,
        )

    def _options_of(self, stream: str) -> StreamOptions:
        return self._streams.get(stream) or StreamOptions()

    def discover(self) -> Sequence[DiscoveredStream]:
        from penstock.sources.postgres.offer.proposals import offers

        found = offers(self._session, self._options.default_schema)
        if not found:
            self._check_schema(self._options.default_schema)
        schema = self._options.default_schema
        read = {table_name(stream, options, schema): stream for stream, options in self._streams.items()}
        return [
            replace(each, read_by=read.get(TableName.read(each.options.get("table") or each.name, schema)))
            if self._streams
            else replace(each, read_by=each.name)
            for each in found
        ]

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        from penstock.sources.postgres.offer.explain import remarks

        said = remarks(self._session, stream, TableContent.read(content), self._horizon(stream))
        return [*said, *servers.remarks(self._session.tells)]

    # ------------------------------------------------------------ planning

    def content(self, stream: str) -> Content:
        options = self._options_of(stream)
        content, self._identities[stream] = validate_table(self._session, stream, options, self._options.default_schema)
        if content.mode == "keyset":
            loading.check(self._keyset(stream, content))
        return content.content()

    def accept(self, stream: str, last: Position, content: Content) -> None:
        marks.accept(self._session, stream, last, TableContent.read(content))

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        said = self._access.follows(stream, last.mark) if last and last.mark else None
        return (said,) if said else ()

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        read = TableContent.read(content)
        if read.mode == "refresh":
            return {"run": run}
        found = self._horizons.ceiling(self._session, stream, read, run, after)
        if found is None or after is None:
            return found
        return horizons.with_warnings(
            found, missed.warnings(self._keyset(stream, read), after, self._identity(stream, read))
        )

    def _horizon(self, stream: str) -> Horizon:
        return self._options_of(stream).horizon or self._options.horizon

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        read = TableContent.read(content)
        # Known before anything is planned: a table that is replaced from here on is not the one of the next mark.
        identity = self._identity(stream, read) if read.mode == "keyset" else None
        # Not with `accept`: a stream that must not go on from its mark can still be rewound.
        if after:
            self._access.follows(stream, after)
        if identity:
            self._same_table(stream, read, after, horizons.key(ceiling))
        planned = self._planned(stream, content, after, ceiling, budget)
        if planned is None:
            return None
        if identity:
            upto = marks.noted(planned.upto, table=identity)
            planned = replace(
                planned, upto=upto if budget.look else self._with_ties(stream, read, after, upto, ceiling)
            )
        # Looked at last: where the server is now, it has all that was seen for the ceiling and the plan.
        return servers.placed(planned, self._session.look())

    def _with_ties(self, stream: str, content: TableContent, after: Mark | None, upto: Mark, ceiling: Document) -> Mark:
        """A mark with how many rows share its cursor value, where one with a lower tiebreaker could come later."""
        mark, before = marks.read(upto), marks.along_the_cursor(after)
        proof: Any = ceiling.get("proof")
        cheap = self._options_of(stream).index == "required"
        if not isinstance(mark, KeysetMark) or mark.key is None or not cheap or (proof and proof["proven"]):
            return upto
        if before and before.key == mark.key:
            return marks.noted(upto, ties=before.ties)
        return marks.noted(upto, ties=missed.ties(self._session, stream, content, mark.key))

    def _same_table(self, stream: str, content: TableContent, after: Mark | None, reach: Key | None) -> None:
        """StreamRefused if the table is not the one that the mark was made in, or its sequence was restarted."""
        mark, continues = marks.along_the_cursor(after), self._options_of(stream).continues
        was, reach = (mark.table, reach or mark.key) if mark else (None, reach)
        if doubt(was, reach, content, self._identity(stream, content), continues) is None:
            return
        # What was seen when the stream was validated may be older than the ceiling.
        del self._identities[stream]
        now = self._identity(stream, content)
        found = doubt(was, reach, content, now, continues)
        if found:
            raise stopped(stream, found, now)

    def _identity(self, stream: str, content: TableContent) -> TableIdentity:
        """Which table a stream reads; StreamRefused if it is gone."""
        if stream not in self._identities:
            table = catalog.describe(self._session, content.table, names(content.key), stream=stream)
            if table is None:
                raise missing_table(self._session, stream, content.table)
            self._identities[stream] = table.identity
        return self._identities[stream]

    def _planned(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        read = TableContent.read(content)
        if read.mode == "keyset":
            return loading.next_slice(self._keyset(stream, read), after, ceiling, budget)
        upto = RefreshMark(str(ceiling["run"])).mark()
        if after == upto:
            return None
        table = catalog.describe(self._session, read.table, (), stream=stream)
        rows = table.rows if table and read.where is None else None
        # One more holds the snapshot that they join.
        connections = self._options.connections
        parts = parts_for(budget.workers, max(1, connections - 1) if connections else None)
        return Planned(upto=upto, kind=Kind.REFRESH, plan={"parts": parts}, rows=rows)

    def _keyset(self, stream: str, content: TableContent) -> Stream:
        """A keyset stream, for those who plan and read it."""
        first_load = self._options_of(stream).first_load
        waits = self._horizon(stream).method != "off"
        skips = self._options_of(stream).hidden_partitions == "skip"
        return Stream(self._session, stream, content, first_load, self._options.connections, waits, skips)

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        from penstock.sources.postgres import remaining

        read = TableContent.read(content)
        if read.mode == "keyset":
            mark = marks.read(after) if after else None
            if isinstance(mark, LoadMark):
                left = loading.left(self._keyset(stream, read), mark, ceiling)
            else:
                left = remaining.of_keyset(self._session, stream, read, keyset.read(after, stream=stream), ceiling)
            return remaining.with_held_back(self._session, stream, read, left, ceiling)
        if after == RefreshMark(str(ceiling["run"])).mark():
            return Remaining(0, exact=True)
        return remaining.of_table(self._session, stream, read)

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        from penstock.sources.postgres.rewinding import place

        at, read = last.mark if last else None, TableContent.read(content)
        found, identity = place(self._session, stream, read, at, to), self._identity(stream, read)
        before = marks.along_the_cursor(found)
        if found and before and (found != at or doubt(before.table, None, read, identity, None)):
            # A place that a user names in the table as it is now.
            found = marks.noted(found, table=identity, ties=None)
        return servers.led(found, at, self._session.server)

    def describe(self, mark: Mark | None) -> str:
        return marks.describe(mark)

    # ------------------------------------------------------------ reading

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        now = as_now(slice_, self._table(slice_))
        with self._reading(now.slice, now.table) as reading:
            yield now.fitted(reading)

    @contextmanager
    def _reading(self, slice_: Slice, table: Table) -> Iterator[Reading]:
        content = TableContent.parse(slice_.content)
        if content.mode == "keyset":
            yield Reading(self._reader(slice_, None), loading.parts(self._keyset(slice_.stream, content), slice_))
            return
        if parse(slice_.plan).get("parts") == 1:
            # One statement sees one snapshot as it is.
            parts = refresh.parts(table, parse(slice_.plan), version=self._session.version)
            yield Reading(self._reader(slice_, None), parts)
            return
        with refresh.snapshot(self._access.outlet(slice_), content, table, stream=slice_.stream) as name:
            # Its size is asked after the snapshot was taken, so that no row of it lies beyond.
            table = self._table(slice_)
            parts = refresh.parts(table, parse(slice_.plan), version=self._session.version)
            yield Reading(self._reader(slice_, name), parts)

    def _reader(self, slice_: Slice, snapshot: str | None) -> PostgresReader:
        outlet = self._access.outlet(slice_)
        return PostgresReader(
            target=outlet.target,
            pipeline=slice_.pipeline,
            stream=slice_.stream,
            content=slice_.content,
            needs=outlet.needs,
            tells=outlet.tells,
            snapshot=snapshot,
            statement_timeout=self._options.statement_timeout,
        )

    def _table(self, slice_: Slice) -> Table:
        """The slice's table as it is now; StreamRefused if it is another one."""
        content, stream = TableContent.parse(slice_.content), slice_.stream
        if not self._session.identity.same(content.identity):
            was, is_ = content.identity, self._session.identity
            raise refused(
                stream,
                f"it reads database {was.database} (oid {was.oid}, cluster {was.system}), and now "
                f"{is_.database} (oid {is_.oid}, cluster {is_.system}) answers",
                "point `url` back at the first one",
            )
        table = catalog.describe(self._session, content.table, (), stream=stream)
        if table is None:
            raise refused(stream, f"it reads table {content.table}, which is gone", "bring the table back")
        check_open(slice_, content, table.identity, self._options_of(stream).continues)
        return table
