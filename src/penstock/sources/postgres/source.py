"""The postgres source: the methods of the port, carried out by the other modules of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.core.content import Content
from penstock.core.documents import Document, parse
from penstock.core.marks import Mark, Position
from penstock.core.names import did_you_mean, nearest
from penstock.core.ranges import Key, Range
from penstock.core.slices import Kind, Slice
from penstock.errors import InputError, StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName
from penstock.links.postgres.server_checks import explain_hidden_facts
from penstock.links.postgres.tables import Table
from penstock.ports import (
    Budget,
    ComparedColumns,
    ComparedRows,
    Context,
    DiscoveredStream,
    Planned,
    Reading,
    Remaining,
    Remark,
    StreamInfo,
)
from penstock.sources.postgres import comparing, keyset, listing, marks, refresh, table_checks
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.horizon import horizons
from penstock.sources.postgres.load import loading
from penstock.sources.postgres.marks import KeysetMark, LoadMark, RefreshMark, TableIdentity
from penstock.sources.postgres.open_slice import CurrentSlice, adapt_slice, check_same_table, open_slice_error
from penstock.sources.postgres.options import Options, StreamOptions
from penstock.sources.postgres.reader import PostgresReader
from penstock.sources.postgres.servers import Servers, mark_on_server
from penstock.sources.postgres.stream import TableStream
from penstock.sources.postgres.validate import TableChecks, key_names, table_name, validate


class PostgresSource:
    """Tables of one database. See `penstock.ports.Source` for the obligations of each method."""

    def __init__(self, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self._options = options
        self._streams = dict(streams)
        self._context = context
        self._servers = Servers(options, context)
        self._horizons = horizons.Horizons()
        #: each stream's table when it was last validated
        self._identities: dict[str, TableIdentity] = {}

    # ------------------------------------------------------------ the database

    def connect(self) -> None:
        _ = self._session

    def close(self) -> None:
        self._servers.close()

    @property
    def _session(self) -> Session:
        return self._servers.session

    def _stream(self, stream: str, content: Content | TableContent) -> TableStream:
        """A stream with everything that planning and reading it needs."""
        read = content if isinstance(content, TableContent) else TableContent.read(content)
        options = self._options_of(stream)
        horizon = options.horizon or self._options.horizon
        return TableStream(self._session, stream, read, options, horizon, self._options.connections)

    # ------------------------------------------------------------ the streams

    def catalog(self) -> Sequence[StreamInfo]:
        schema = self._options.default_schema if self._discovers() else None
        named = {stream: self._table_of(stream) for stream in self._streams}
        tables = listing.list_tables(self._session, schema, [name for name in named.values() if name])
        found: dict[TableName | None, listing.ListedTable] = {table.name: table for table in tables}
        if schema is not None and not any(table.discovered for table in tables):
            self._check_schema(schema)
        infos = [self._info(stream, options, found.get(named[stream])) for stream, options in self._streams.items()]
        for table in tables:
            listed = table.name in named.values()
            if table.discovered and not listed and not listing.is_excluded(table.name, self._options.exclude):
                infos.append(self._info(self._discovered_name(table.name), StreamOptions(), table))
        return infos

    def _table_of(self, stream: str) -> TableName | None:
        """The table of a configured stream; None if its name is invalid, which `content` refuses."""
        try:
            return table_name(stream, self._streams[stream], self._options.default_schema)
        except StreamRefused:
            return None

    def _discovers(self) -> bool:
        return not self._streams if self._options.discover is None else self._options.discover

    def _discovered_name(self, name: TableName) -> str:
        # With its schema if the bare name would be parsed differently, or is the name of a configured stream.
        alone = "." not in name.name and '"' not in name.name
        return name.name if alone and name.name not in self._streams else str(name)

    def _info(self, stream: str, options: StreamOptions, table: listing.ListedTable | None) -> StreamInfo:
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
            finds_deletes=options.find_deletes == "compare",
            delete_search_rows=options.find_deletes_rows,
        )

    def _check_schema(self, schema: str) -> None:
        known = listing.list_schemas(self._session)
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
        from penstock.sources.postgres.proposals import discover

        streams = discover(self._session, self._options.default_schema)
        if not streams:
            self._check_schema(self._options.default_schema)
        schema = self._options.default_schema
        read = {table_name(stream, options, schema): stream for stream, options in self._streams.items()}
        return [
            replace(each, read_by=read.get(TableName.read(each.options.get("table") or each.name, schema)))
            if self._streams
            else replace(each, read_by=each.name)
            for each in streams
        ]

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        from penstock.sources.postgres.explain import explain

        return [*explain(self._stream(stream, content)), *explain_hidden_facts(self._session.visible)]

    # ------------------------------------------------------------ planning

    def content(self, stream: str) -> Content:
        options = self._options_of(stream)
        content, table = validate(self._session, stream, options, self._options.default_schema)
        self._identities[stream] = TableIdentity.of(table)
        if content.mode == "keyset":
            loading.check_method(self._stream(stream, content))
        return content.content()

    def accept(self, stream: str, last: Position, content: Content) -> None:
        marks.accept(self._session, stream, last, TableContent.read(content))

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        message = self._servers.check_mark(stream, last.mark) if last and last.mark else None
        return (message,) if message else ()

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        of = self._stream(stream, content)
        if of.content.mode == "refresh":
            return {"run": run}
        ceiling = self._horizons.ceiling(of, run, after)
        if ceiling is None or after is None:
            return ceiling
        return horizons.add_warnings(ceiling, table_checks.find_warnings(of, after, self._identity(of)))

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        of = self._stream(stream, content)
        keyed = of.content.mode == "keyset"
        # Before planning: a table that is replaced from here on is not the one of the next mark.
        identity = self._identity(of) if keyed else None
        # Not in `accept`: a stream that must not continue from its mark can still be rewound.
        if after:
            self._servers.check_mark(stream, after)
        if keyed:
            self._check_same_table(of, after, horizons.highest_key(ceiling))
        planned = (
            loading.plan_slice(of, after, ceiling, budget) if keyed else self._plan_refresh(of, after, ceiling, budget)
        )
        if planned is None:
            return None
        upto = planned.upto
        if identity:
            upto = marks.update_keyset(upto, table=identity)
            upto = upto if budget.look else self._add_ties(of, after, upto, ceiling)
        # Asked last: at this position the server has all that was seen for the ceiling and the plan.
        server = self._session.refresh_server()
        position: Document = {"timeline": server.timeline, "lsn": server.lsn}
        return replace(planned, upto=marks.update_keyset(upto, **position), plan={**planned.plan, **position})

    def _plan_refresh(
        self, stream: TableStream, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        upto = RefreshMark(str(ceiling["run"])).mark()
        if after == upto:
            return None
        table = stream.describe()
        rows = table.rows if table and stream.content.where is None else None
        # One more connection holds the snapshot for the parts.
        connections = self._options.connections
        parts = keyset.parts_for(budget.workers, max(1, connections - 1) if connections else None)
        return Planned(upto=upto, kind=Kind.REFRESH, plan={"parts": parts}, rows=rows)

    def _add_ties(self, stream: TableStream, after: Mark | None, upto: Mark, ceiling: Document) -> Mark:
        """Add the number of rows with the mark's cursor value, if one with a lower tiebreaker could come later."""
        mark, before = marks.read(upto), marks.keyset_mark(after)
        proof: Any = ceiling.get("proof")
        cheap = stream.options.index == "required"
        if not isinstance(mark, KeysetMark) or mark.key is None or not cheap or (proof and proof["proven"]):
            return upto
        if before and before.key == mark.key:
            return marks.update_keyset(upto, ties=before.ties)
        return marks.update_keyset(upto, ties=table_checks.count_ties(stream, mark.key))

    def _check_same_table(self, stream: TableStream, after: Mark | None, reach: Key | None) -> None:
        """StreamRefused if the mark was made in another table, or the table's sequence was restarted."""
        mark, continues = marks.keyset_mark(after), stream.options.continues
        was, reach = (mark.table, reach or mark.key) if mark else (None, reach)

        def find_doubt() -> table_checks.Doubt | None:
            return table_checks.find_doubt(was, reach, stream.content, self._identity(stream), continues)

        if find_doubt() is None:
            return
        # The identity from the validation may be older than the ceiling.
        del self._identities[stream.name]
        doubt = find_doubt()
        if doubt:
            raise table_checks.doubt_error(stream.name, doubt, self._identity(stream))

    def _identity(self, stream: TableStream) -> TableIdentity:
        """The table that a stream reads; StreamRefused if it was dropped."""
        if stream.name not in self._identities:
            table = stream.describe(stream.content.key_names)
            if table is None:
                raise listing.missing_table_error(self._session, stream.name, stream.content.table)
            self._identities[stream.name] = TableIdentity.of(table)
        return self._identities[stream.name]

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        from penstock.sources.postgres.remaining import add_held_back, estimate_range, estimate_table

        of = self._stream(stream, content)
        if of.content.mode == "refresh":
            done = after == RefreshMark(str(ceiling["run"])).mark()
            return Remaining(0, exact=True) if done else estimate_table(of)
        mark = marks.read(after) if after else None
        if isinstance(mark, LoadMark):
            left = loading.estimate_remaining(of, mark, ceiling)
        else:
            key, at = horizons.highest_key(ceiling), marks.require_keyset(after, stream=stream)
            whole = Range(at.key if at else None, key)
            left = Remaining(0, exact=True) if key is None else estimate_range(of, whole)
        return add_held_back(of, left, ceiling)

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        from penstock.sources.postgres.rewind import find_mark

        at, of = last.mark if last else None, self._stream(stream, content)
        mark, identity = find_mark(of, at, to), self._identity(of)
        before = marks.keyset_mark(mark)
        if mark and before:
            moved = mark != at
            if moved or table_checks.find_doubt(before.table, None, of.content, identity, None):
                # The user names a position in the current table.
                mark = marks.update_keyset(mark, table=identity, ties=None)
        return mark_on_server(mark, at, self._session.server)

    def mark_behind(self, stream: str, content: Content, key: Sequence[str]) -> Mark:
        from penstock.sources.postgres.continuing import find_key

        of = self._stream(stream, content)
        ceiling = self.ceiling(stream, content, "")
        found = find_key(of, key, ceiling)
        assert ceiling is not None
        planned = self.plan(stream, content, None, ceiling, Budget(1, look=True))
        assert planned is not None
        return self._add_ties(of, None, marks.update_keyset(planned.upto, key=found), ceiling)

    def describe(self, mark: Mark | None) -> str:
        return marks.describe(mark)

    # ------------------------------------------------------------ comparing

    def compared_columns(self, stream: str, content: Content) -> ComparedColumns:
        return comparing.choose_columns(self._stream(stream, content))

    def compared_rows(
        self, stream: str, content: Content, mark: Mark, columns: ComparedColumns, *, above: bool = False
    ) -> ComparedRows:
        # A server that lags behind the mark, or has lost what was read, would seem to miss rows.
        self._servers.require_mark(stream, content, mark)
        return comparing.open_rows(self._stream(stream, content), mark, columns, above=above)

    def plan_repair(
        self, stream: str, content: Content, mark: Mark, keys: Sequence[Key], deletes: Sequence[Key]
    ) -> Document:
        of = self._stream(stream, content)
        comparing.require_mark(of, mark)
        server = self._session.refresh_server()
        plan = comparing.plan_repair(keys, deletes, of.content.primary_key)
        return {**plan, "timeline": server.timeline, "lsn": server.lsn}

    # ------------------------------------------------------------ reading

    def check_open_slice(self, slice_: Slice) -> None:
        current = self._adapt(slice_)
        content = TableContent.parse(current.slice.content)
        if content.mode == "keyset" and slice_.kind is not Kind.REPAIR:
            loading.make_parts(self._stream(slice_.stream, content), current.slice)

    def _adapt(self, slice_: Slice) -> CurrentSlice:
        """The slice in terms of its table as it is now; StreamRefused if it cannot be read any more."""
        current = adapt_slice(slice_, self._describe_for(slice_))
        content = TableContent.parse(current.slice.content)
        checks = TableChecks(slice_.stream, self._options_of(slice_.stream), current.table, self._session)
        checks.check_schema_privilege()
        names = (*(column.name for column in content.columns), *content.key_names)
        checks.require_select(checks.find_columns(names))
        return current

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        current = self._adapt(slice_)
        if slice_.kind is Kind.REPAIR:
            changes = Content.parse(slice_.content).changes
            parts = comparing.make_parts(slice_, parse(slice_.plan), changes=changes)
            yield current.fit(Reading(self._reader(current.slice, None), parts))
            return
        with self._reading(current.slice, current.table) as reading:
            yield current.fit(reading)

    @contextmanager
    def _reading(self, slice_: Slice, table: Table) -> Iterator[Reading]:
        content, plan, version = TableContent.parse(slice_.content), parse(slice_.plan), self._session.version
        if content.mode == "keyset":
            parts = loading.make_parts(self._stream(slice_.stream, content), slice_)
            yield Reading(self._reader(slice_, None), parts)
        elif plan.get("parts") == 1:
            # One statement sees one snapshot anyway.
            yield Reading(self._reader(slice_, None), refresh.make_parts(table, plan, version=version))
        else:
            source = self._servers.read_target(slice_)
            with refresh.export_snapshot(source, content, table, stream=slice_.stream) as snapshot:
                # Its size is asked after the snapshot was taken, so that no row of it lies beyond.
                parts = refresh.make_parts(self._describe_for(slice_), plan, version=version)
                yield Reading(self._reader(slice_, snapshot), parts)

    def _reader(self, slice_: Slice, snapshot: str | None) -> PostgresReader:
        source = self._servers.read_target(slice_)
        return PostgresReader(
            target=source.target,
            pipeline=slice_.pipeline,
            stream=slice_.stream,
            content=slice_.content,
            required=source.required,
            visible=source.visible,
            snapshot=snapshot,
            statement_timeout=self._options.statement_timeout,
        )

    def _describe_for(self, slice_: Slice) -> Table:
        """The slice's table as it is now; StreamRefused if it is another one."""
        stream = self._stream(slice_.stream, TableContent.parse(slice_.content))
        was, now = stream.content.identity, self._session.identity
        if not now.same(was):
            raise open_slice_error(
                stream.name, f"it reads {was}, and now {now} answers", "point `url` back at the first one"
            )
        table = stream.describe()
        if table is None:
            what = f"it reads table {stream.content.table}, which was dropped"
            raise open_slice_error(stream.name, what, "restore the table")
        token = TableIdentity.of(table).token
        check_same_table(slice_, stream.content, table, token, stream.options.continues)
        return table
