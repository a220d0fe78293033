"""The postgres source: what the engine asks, answered by the other modules of this room."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.core.documents import Document, canonical, parse
from penstock.core.marks import Mark, Position
from penstock.core.ranges import Range, cut, tiles
from penstock.core.slices import Kind, Part, Slice
from penstock.errors import InputError, StreamFailed, StreamRefused
from penstock.links.postgres.connection import Session, Target
from penstock.links.postgres.literals import TableName
from penstock.ports import Budget, Context, Left, Offered, Planned, Reading, Remark, StreamInfo
from penstock.sources.postgres import catalog, marks, plan, refresh
from penstock.sources.postgres.catalog import Found, Table
from penstock.sources.postgres.content import Content
from penstock.sources.postgres.marks import KeysetMark, RefreshMark
from penstock.sources.postgres.options import Options, StreamOptions
from penstock.sources.postgres.reader import PostgresReader
from penstock.sources.postgres.validate import key_names, table_name, validate


class PostgresSource:
    """Tables of one database. See `Source` in ports.py for what each method owes."""

    def __init__(self, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self._options = options
        self._streams = dict(streams)
        self._context = context
        self._open: Session | None = None

    # ------------------------------------------------------------ reaching the database

    def connect(self) -> None:
        if self._open is None:
            self._open = Session(self._target(), statement_timeout=self._options.statement_timeout)

    def close(self) -> None:
        session, self._open = self._open, None
        if session is not None:
            session.close()

    @property
    def _session(self) -> Session:
        if self._open is None:
            self.connect()
        assert self._open is not None
        return self._open

    def _target(self) -> Target:
        options, said = self._options, self._options.model_fields_set
        url = options.url.get_secret_value()
        # What the URL says goes before our defaults, but not before what the user said here.
        return Target.of(
            url,
            application_name=None if _says(url, "application_name", said) else options.application_name,
            connect_timeout=None if _says(url, "connect_timeout", said) else options.connect_timeout,
        )

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
        from difflib import get_close_matches

        known = catalog.schemas(self._session)
        if schema in known:
            return
        near = get_close_matches(schema, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(
            f"there is no schema {schema} in database {self._session.identity.database}{hint}",
            next_step=f"set `schema: {near[0]}`" if near else "correct `schema` of the source",
            pipeline=self._context.pipeline,
        )

    def _options_of(self, stream: str) -> StreamOptions:
        return self._streams.get(stream) or StreamOptions()

    def offers(self) -> Sequence[Offered]:
        from penstock.sources.postgres.proposals import offers

        found = offers(self._session, self._options.default_schema)
        if not found:
            self._check_schema(self._options.default_schema)
        return found

    def explain(self, stream: str, content: Document) -> Sequence[Remark]:
        from penstock.sources.postgres.explain import remarks

        return remarks(self._session, stream, Content.read(content))

    # ------------------------------------------------------------ planning

    def content(self, stream: str) -> Document:
        return validate(self._session, stream, self._options_of(stream), self._options.default_schema).document()

    def accept(self, stream: str, last: Position, content: Document) -> None:
        marks.accept(self._session, stream, last, Content.read(content))

    def settle(self, stream: str, content: Document, last: Position | None) -> Sequence[str]:
        return ()

    def reached(self, stream: str, last: Position) -> None:
        return None

    def ceiling(self, stream: str, content: Document, run: str, after: Mark | None = None) -> Document | None:
        read = Content.read(content)
        if read.mode == "refresh":
            return {"run": run}
        key = plan.highest(self._session, stream, read)
        return {"key": list(key)} if key else None

    def plan(
        self, stream: str, content: Document, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        read = Content.read(content)
        if read.mode == "keyset":
            return plan.next_slice(self._session, stream, read, after, _key(ceiling), budget)
        upto = RefreshMark(str(ceiling["run"])).mark()
        if after == upto:
            return None
        table = catalog.describe(self._session, read.table, (), stream=stream)
        return Planned(
            upto=upto, kind=Kind.REFRESH, plan={"workers": budget.workers}, rows=table.rows if table else None
        )

    def left(self, stream: str, content: Document, after: Mark | None, ceiling: Document) -> Left:
        from penstock.sources.postgres import remaining

        read = Content.read(content)
        if read.mode == "keyset":
            return remaining.of_range(self._session, stream, read, Range(_mark_key(after), _key(ceiling)))
        if after == RefreshMark(str(ceiling["run"])).mark():
            return Left(0, exact=True)
        return remaining.of_table(self._session, stream, read)

    def rewound(self, stream: str, content: Document, last: Position | None, to: str) -> Mark | None:
        raise StreamRefused(
            f"it cannot be rewound to {to!r}: a mark of a postgres stream is the key of a row, not a number or a time",
            next_step=f"run `penstock state reset FILE --stream {stream}` to read the table from the beginning",
            stream=stream,
        )

    def describe(self, mark: Mark | None) -> str:
        return marks.describe(mark)

    # ------------------------------------------------------------ reading

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        content = Content.read(parse(slice_.content))
        table = self._unchanged(slice_.stream, content)
        if content.mode == "keyset":
            yield Reading(self._reader(slice_, None), _key_parts(slice_))
            return
        with refresh.snapshot(self._session.target, content, table, stream=slice_.stream) as name:
            # Its size is asked after the snapshot was taken, so that no row of it lies beyond.
            table = self._unchanged(slice_.stream, content)
            parts = refresh.parts(table, parse(slice_.plan), version=self._session.version)
            yield Reading(self._reader(slice_, name), parts)

    def _reader(self, slice_: Slice, snapshot: str | None) -> PostgresReader:
        target = self._session.target
        return PostgresReader(
            conninfo=target.conninfo,
            where=target.where,
            pipeline=slice_.pipeline,
            stream=slice_.stream,
            content=slice_.content,
            snapshot=snapshot,
            statement_timeout=self._options.statement_timeout,
        )

    def _unchanged(self, stream: str, content: Content) -> Table:
        """The slice's table as it is now; StreamRefused if it cannot give any more what the slice says."""

        def refuse(what: str, back: str) -> StreamRefused:
            return StreamRefused(
                f"a slice is open that was planned otherwise: {what}",
                next_step=f"{back}, so that the slice can be finished",
                stream=stream,
            )

        if not self._session.identity.same(content.identity):
            was, is_ = content.identity, self._session.identity
            raise refuse(
                f"it reads database {was.database} (oid {was.oid}, cluster {was.system}), and now "
                f"{is_.database} (oid {is_.oid}, cluster {is_.system}) answers",
                "point `url` back at the first one",
            )
        table = catalog.describe(self._session, content.table, (), stream=stream)
        if table is None:
            raise refuse(f"it reads table {content.table}, which is gone", "bring the table back")
        wanted = [(column.name, column.type) for column in content.columns]
        wanted += [(column.column, column.type) for column in content.key]
        for name, type_ in wanted:
            column = table.column(name)
            if column is None:
                raise refuse(f"it reads {name} of {content.table}, which is gone", "bring the column back")
            if column.type != type_:
                raise refuse(
                    f"{name} of {content.table} was {type_} and is {column.type} now",
                    "change the column back",
                )
        return table


def _key_parts(slice_: Slice) -> list[Part]:
    """The parts of a keyset slice, from its own bounds and cuts alone."""
    whole = Range(*(_mark_key(mark) for mark in (slice_.after, slice_.upto)))
    pieces = cut(whole, plan.cuts_of(parse(slice_.plan)))
    if whole.upto is None or not tiles(pieces, whole):
        raise StreamFailed(
            f"the parts of slice {slice_.number} do not cover it",
            next_step="report this defect",
            stream=slice_.stream,
        )
    return [
        Part(index, canonical({"after": _list(piece.after), "upto": _list(piece.upto)}))
        for index, piece in enumerate(pieces)
    ]


def _mark_key(mark: Mark | None) -> tuple[str, ...] | None:
    if mark is None:
        return None
    ours = marks.read(mark)
    if not isinstance(ours, KeysetMark):
        raise ValueError(f"not the mark of a keyset: {mark.text}")
    return ours.key


def _key(ceiling: Document) -> tuple[str, ...]:
    return tuple(json.loads(canonical(ceiling))["key"])


def _list(key: tuple[str, ...] | None) -> list[str] | None:
    return None if key is None else list(key)


def _says(url: str, parameter: str, said_here: set[str]) -> bool:
    return parameter not in said_here and f"{parameter}=" in url.partition("?")[2]
