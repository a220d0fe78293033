"""The postgres sink: rows put aside by COPY, and one transaction that moves the ledger, merges and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import psycopg

from penstock.core.content import Content
from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, InputError, PenstockError
from penstock.links.postgres.failures import is_connection_error
from penstock.links.postgres.literals import TableName, to_text
from penstock.links.postgres.targets import connection_target
from penstock.links.postgres.write_connection import WriteConnection
from penstock.ports import Context, DiscoveredStream, Held, Quarantined, Remark, StreamInfo, Writer
from penstock.sinks.postgres import staging
from penstock.sinks.postgres.archive import archive
from penstock.sinks.postgres.binding import Named
from penstock.sinks.postgres.blocking import blocker
from penstock.sinks.postgres.checks import Checks
from penstock.sinks.postgres.committing import Committing
from penstock.sinks.postgres.creating import Making
from penstock.sinks.postgres.failures import LOCK_TIMEOUT, bad_row, failed, locked
from penstock.sinks.postgres.filling import Unfit
from penstock.sinks.postgres.landing import Landing
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.merging import Rules
from penstock.sinks.postgres.options import Options, StreamOptions
from penstock.sinks.postgres.own_source import reads_itself
from penstock.sinks.postgres.quarantine import Quarantine
from penstock.sinks.postgres.replaying import Replaying
from penstock.sinks.postgres.rights import must_be_allowed
from penstock.sinks.postgres.staging import Staging
from penstock.sinks.postgres.target import describe, holds_more, may_create_in, references
from penstock.sinks.postgres.writer import PostgresWriter


class PostgresSink:
    """Slices as transactions on Postgres tables."""

    def __init__(self, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self.options = options
        self.streams = streams
        self.context = context
        self.pipeline = context.pipeline
        self.ledger = Ledger(options.own_schema, context.pipeline)
        self.quarantine = Quarantine(options.own_schema, context.pipeline)
        self._infos: dict[str, StreamInfo] = {}
        #: for a stream, those that its table refers to
        self._ahead: dict[str, set[str]] = {}

    # ------------------------------------------------------------ names and options

    @cached_property
    def writing(self) -> WriteConnection:
        where = connection_target(self.options, self.context, self.options.url, key="url", side="sink")
        return WriteConnection(
            where, statement_timeout=self.options.statement_timeout, lock_timeout=self.options.lock_timeout
        )

    def stream_options(self, stream: str) -> StreamOptions:
        return self.streams.get(stream) or StreamOptions()

    def table(self, stream: str) -> TableName:
        return TableName.read(self.stream_options(stream).into or stream, self.options.default_schema)

    def named(self, stream: str) -> Named:
        return Named(self.table(stream), self.stream_options(stream).accept_table)

    def rules(self, stream: StreamInfo) -> Rules:
        """How the stream's rows meet those of the table; without a key they are added."""
        options = self.stream_options(stream.name)
        key = () if options.mode == "append" else options.key or stream.primary_key
        return Rules(
            key=key,
            newer_than=options.newer_than or stream.newest_by(key),
            guard=options.guard,
            volatile=options.volatile,
            deletes=options.deletes,
            deleted_at=options.deleted_at,
        )

    def keeps_one_row(self, stream: StreamInfo) -> bool:
        return bool(self.rules(stream).key)

    def propose(self, streams: Sequence[DiscoveredStream]) -> Sequence[Mapping[str, Any]]:
        return [
            {"newer_than": stream.options["cursor"]} if "cursor" in stream.options and stream.primary_key else {}
            for stream in streams
        ]

    def info(self, stream: str) -> StreamInfo:
        return self._infos.get(stream) or StreamInfo(stream, Kind.ROWS)

    # ------------------------------------------------------------ before anything moves

    def connect(self) -> None:
        self._must_be_apart(self.streams)
        with self._asking("the database"), self.writing.transaction(read_only=True):
            return

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        self._infos = {info.name: info for info in streams}
        self._must_be_apart(self._infos)
        with self._asking("the role's rights"), self.writing.transaction(read_only=True) as connection:
            must_be_allowed(connection, self.options.own_schema, pipeline=self.pipeline)
        if len(streams) < 2:
            return {}
        streams_of = {self.table(info.name): info.name for info in streams}
        with self._asking("the foreign keys"), self.writing.transaction(read_only=True) as connection:
            pairs = references(connection, list(streams_of))
        for child, parent in pairs:
            self._ahead.setdefault(streams_of[child], set()).add(streams_of[parent])
        return self._ahead

    def _must_be_apart(self, streams: Iterable[str]) -> None:
        twice = [name for name, times in Counter(map(self.table, streams)).items() if times > 1]
        if twice:
            raise InputError(
                f"two streams would land in one table {twice[0]}",
                next_step="give one of them another `into`",
                pipeline=self.pipeline,
            )

    def check(self, stream: StreamInfo, content: Content) -> None:
        table = self.table(stream.name)
        with self._asking(str(table), stream.name), self.writing.transaction(read_only=True) as connection:
            found = describe(connection, table)
            may_create = may_create_in(connection, table.schema) if found is None else True
            known = self.ledger.is_there(connection)
            entry = self.ledger.whole(connection, stream.name, self.named(stream.name)) if known else None
            others = self.ledger.others(connection, stream.name, to_text(table.sql)) if known else ()
            before = Content.parse(entry.slice.content) if entry else None
            making = Making(self.pipeline, stream.name, table, content, before, self.rules(stream).key)
            wider = making.wider(connection, found) if found else []
            whole = stream.kind is Kind.REFRESH
            itself = found is not None and reads_itself(connection, content, found.oid, whole=whole)
            replaces = whole and not (entry and entry.binding and entry.binding.refreshed)
            ours = self.ledger.created(connection, stream.name) if entry and replaces else 0
            readable = found is not None and found.kind in ("r", "p") and found.may_select
            holds = replaces and readable and holds_more(connection, table, ours)
            role = connection.info.user
        Checks(
            pipeline=self.pipeline,
            stream=stream,
            table=table,
            options=self.stream_options(stream.name),
            rules=self.rules(stream),
            content=content,
            target=found,
            may_create=may_create,
            others=others,
            wider=wider,
            role=role,
            itself=itself,
            holds_others=holds,
        ).run()

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        from penstock.shaping.sink_remarks import explain_stale_rows
        from penstock.sinks.postgres.explain import remarks

        options, ahead = self.stream_options(stream.name), self._ahead.get(stream.name, ())
        rules = self.rules(stream)
        said = remarks(str(self.table(stream.name)), stream, rules, options, ahead)
        stay = explain_stale_rows(content) if rules.key and stream.kind is Kind.ROWS else ()
        return [*said, *stay, *self._what_was_there(stream)]

    def _what_was_there(self, stream: StreamInfo) -> Sequence[Remark]:
        """What the table holds that is not this stream's, before its first slice; `check` has refused the rest."""
        from penstock.sinks.postgres.explain import beside

        table = self.table(stream.name)
        with self._asking(str(table), stream.name), self.writing.transaction(read_only=True) as connection:
            known = self.ledger.is_there(connection)
            others = self.ledger.others(connection, stream.name, to_text(table.sql)) if known else ()
            if known and self.ledger.read(connection, stream.name) is not None:
                return beside(table, stream, self.rules(stream), others, holds=False)
            found = describe(connection, table)
            readable = found is not None and found.kind in ("r", "p") and found.may_select
            holds = readable and holds_more(connection, table, 0)
            return beside(table, stream, self.rules(stream), others, holds=holds)

    def held(self, stream: str) -> Held | None:
        with self._asking("the ledger", stream), self.writing.transaction(read_only=True) as connection:
            entry = self.ledger.whole(connection, stream, self.named(stream))
        if entry is None:
            return None
        return Held(entry.slice.position, entry.rows, entry.bytes, entry.outcome)

    # ------------------------------------------------------------ one slice

    def writer(self, slice_: Slice, attempt: str) -> Writer:
        aside = Staging.of(self.options.own_schema, self.pipeline, slice_.stream, slice_.number, attempt)
        columns = Checks.put_aside(Content.parse(slice_.content), pipeline=self.pipeline, stream=slice_.stream)
        ledger = f"the ledger in {self.options.own_schema}"
        with self._asking(ledger, slice_.stream), self.writing.transaction() as connection:
            self.ledger.make(connection)
            connection.execute(aside.made(columns))
        return PostgresWriter(
            pipeline=self.pipeline,
            stream=slice_.stream,
            target=self.writing.target,
            staging=aside,
            probe=self.context.probe,
        )

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome:
        table, info = self.table(slice_.stream), self.info(slice_.stream)
        landing = Landing(
            pipeline=self.pipeline,
            ledger=self.ledger,
            slice=slice_,
            attempt=attempt,
            named=self.named(slice_.stream),
            rules=self.rules(info),
            replace_existing=self.stream_options(slice_.stream).replace_existing,
            create=self.stream_options(slice_.stream).create,
            triggers=self.stream_options(slice_.stream).triggers,
            staging=Staging.of(self.options.own_schema, self.pipeline, slice_.stream, slice_.number, attempt),
            receipts=receipts,
            quarantine=self.quarantine,
            names=self.rules(info).key or info.primary_key,
            probe=self.context.probe,
        )
        quarantines = self.stream_options(slice_.stream).bad_rows == "quarantine"
        try:
            return Committing(self.writing, landing, quarantines, self.context.probe).commit()
        except psycopg.Error as error:
            raise self._uncommitted(error, slice_, table) from error

    def _uncommitted(self, error: psycopg.Error, slice_: Slice, table: TableName) -> Exception:
        if self.writing.lost or is_connection_error(error):
            # The server may have committed, and its answer was lost.
            return CommitUnclear(
                f"slice {slice_.number}: the connection was lost while it was committed",
                next_step="ask the sink which slice it holds",
                pipeline=self.pipeline,
                stream=slice_.stream,
            )
        where = self.writing.target.where
        if error.sqlstate == LOCK_TIMEOUT:
            return self._locked(str(table), slice_.stream)
        return failed(error, where=where, table=str(table), pipeline=self.pipeline, stream=slice_.stream)

    # ------------------------------------------------------------ afterwards

    def sweep(self, stream: str, held: Position) -> None:
        self.sweep_all({stream: held})

    def sweep_all(self, held: Mapping[str, Position]) -> None:
        """Drop the tables of attempts at slices that the ledger has, unless someone still writes to them."""
        schema = self.options.own_schema
        with self._asking("what was staged"):
            with self.writing.transaction(read_only=True) as connection:
                names = staging.names(connection, schema)
            for stream, position in held.items() if names else ():
                for name in staging.left(schema, names, self.pipeline, stream, position.number):
                    with self.writing.transaction() as connection:
                        staging.drop(connection, name)

    # ------------------------------------------------------------ the quarantine

    def quarantined(self, streams: Sequence[str], *, limit: int) -> tuple[Mapping[str, int], Sequence[Quarantined]]:
        with self._asking("the quarantine"):
            with self.writing.transaction(read_only=True) as connection:
                counts = self.quarantine.count(connection, streams)
            if not counts:
                return {}, []
            with self.writing.transaction(read_only=True) as connection:
                return counts, self.quarantine.rows(connection, streams, limit=limit)

    def replay(self, stream: str, ids: Sequence[int], *, overwrite: bool) -> Outcome:
        table, info = self.table(stream), self.info(stream)
        rules = self.rules(info)
        try:
            with self._asking(str(table), stream), self.writing.transaction() as connection:
                self.ledger.whole(connection, stream, self.named(stream))
                return Replaying(
                    connection=connection,
                    quarantine=self.quarantine,
                    pipeline=self.pipeline,
                    stream=stream,
                    table=table,
                    rules=rules,
                    triggers=self.stream_options(stream).triggers,
                    names=rules.key or info.primary_key,
                    overwrite=overwrite,
                ).replay(ids)
        except Unfit as error:
            raise bad_row(error, None, table=str(table), pipeline=self.pipeline, stream=stream) from error

    def drop(self, streams: Sequence[str], ids: Sequence[int]) -> int:
        with self._asking("the quarantine"), self.writing.transaction() as connection:
            return self.quarantine.drop(connection, streams, ids)

    # ------------------------------------------------------------ the end

    def recover(self, stream: str) -> Sequence[str]:
        named = self.named(stream)
        with self._asking("the ledger", stream), self.writing.transaction(read_only=True) as connection:
            entry = self.ledger.read(connection, stream)
            if entry is None or entry.binding is None:
                return []
            if entry.whole and named.is_of(entry.binding, named.oid(connection)):
                return []
        with self._asking("the ledger", stream), self.writing.transaction() as connection:
            numbers = self.ledger.forget(connection, stream)
        lines = [f"slice {number} was withdrawn from the ledger" for number in numbers]
        left = entry.binding.now
        return [*lines, f"the rows of slices up to {numbers[0]} stay in {left}"] if left and numbers else lines

    def archive(self, stream: str, label: str) -> Sequence[str]:
        with self._asking(str(self.table(stream)), stream), self.writing.transaction() as connection:
            return archive(connection, self.ledger, stream, label)

    def close(self) -> None:
        if "writing" in self.__dict__:
            self.writing.close()

    # ------------------------------------------------------------ errors

    @contextmanager
    def _asking(self, what: str, stream: str = "") -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate == LOCK_TIMEOUT:
                raise self._locked(what, stream) from error
            where = self.writing.target.where
            raise failed(error, where=where, table=what, pipeline=self.pipeline, stream=stream) from error

    def _locked(self, what: str, stream: str) -> PenstockError:
        """A lock was not given in time: say who holds it."""
        tables = [TableName(self.options.own_schema, "ledger"), *([self.table(stream)] if stream else [])]
        with self._asking("the server's locks", stream), self.writing.transaction(read_only=True) as connection:
            by = blocker(connection, tables)
        return locked(what, self.writing.lock_timeout, by, pipeline=self.pipeline, stream=stream)
