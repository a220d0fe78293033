"""The postgres sink: rows put aside by COPY, and one transaction that moves the ledger, merges and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import psycopg
from psycopg import sql

from penstock.core.documents import Document, parse
from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, InputError, StreamStopped
from penstock.links.postgres.literals import TableName
from penstock.links.postgres.targets import target as target_of
from penstock.links.postgres.writing import Writing
from penstock.ports import Context, Held, Remark, StreamInfo, Writer
from penstock.sinks.postgres import staging
from penstock.sinks.postgres.checks import Checks
from penstock.sinks.postgres.failures import RETRIED, failed
from penstock.sinks.postgres.landing import Landing
from penstock.sinks.postgres.ledger import Entry, Ledger
from penstock.sinks.postgres.merging import Rules
from penstock.sinks.postgres.options import Options, StreamOptions
from penstock.sinks.postgres.staging import Staging
from penstock.sinks.postgres.target import describe
from penstock.sinks.postgres.writer import PostgresWriter

#: how often a commit is tried that another transaction was in the way of
TRIES = 5


class PostgresSink:
    """Slices as transactions on Postgres tables."""

    def __init__(self, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self.options = options
        self.streams = streams
        self.context = context
        self.pipeline = context.pipeline
        self.ledger = Ledger(options.own_schema, context.pipeline)
        self._infos: dict[str, StreamInfo] = {}

    # ------------------------------------------------------------ names and options

    @cached_property
    def writing(self) -> Writing:
        where = target_of(self.options, self.context, self.options.url, key="url", side="sink")
        return Writing(where, statement_timeout=self.options.statement_timeout, lock_timeout=self.options.lock_timeout)

    def stream_options(self, stream: str) -> StreamOptions:
        return self.streams.get(stream) or StreamOptions()

    def table(self, stream: str) -> TableName:
        return TableName.read(self.stream_options(stream).into or stream, self.options.default_schema)

    def rules(self, stream: StreamInfo) -> Rules:
        """How the stream's rows meet those of the table; without a key they are added."""
        options = self.stream_options(stream.name)
        key = () if options.mode == "append" else options.key or stream.primary_key
        return Rules(
            key=key,
            newer_than=options.newer_than,
            guard=options.guard,
            volatile=options.volatile,
            deletes=options.deletes,
            deleted_at=options.deleted_at,
        )

    def info(self, stream: str) -> StreamInfo:
        return self._infos.get(stream) or StreamInfo(stream, Kind.ROWS)

    # ------------------------------------------------------------ before anything moves

    def connect(self) -> None:
        self._must_be_apart(self.streams)
        with self._asking("the database"), self.writing.transaction(read_only=True):
            return

    def expect(self, streams: Sequence[StreamInfo]) -> None:
        self._infos = {info.name: info for info in streams}
        self._must_be_apart(self._infos)

    def _must_be_apart(self, streams: Iterable[str]) -> None:
        twice = [name for name, times in Counter(map(self.table, streams)).items() if times > 1]
        if twice:
            raise InputError(
                f"two streams would land in one table {twice[0]}",
                next_step="give one of them another `into`",
                pipeline=self.pipeline,
            )

    def check(self, stream: StreamInfo, content: Document) -> None:
        table = self.table(stream.name)
        with self._asking(str(table), stream.name), self.writing.transaction(read_only=True) as connection:
            found = describe(connection, table)
        Checks(
            pipeline=self.pipeline,
            stream=stream,
            table=table,
            options=self.stream_options(stream.name),
            rules=self.rules(stream),
            content=content,
            target=found,
        ).run()

    def explain(self, stream: StreamInfo, content: Document) -> Sequence[Remark]:
        from penstock.sinks.postgres.explain import remarks

        return remarks(str(self.table(stream.name)), stream, self.rules(stream), self.stream_options(stream.name))

    def held(self, stream: str) -> Held | None:
        with self._asking("the ledger", stream), self.writing.transaction(read_only=True) as connection:
            entry = self.ledger.read(connection, stream)
        if entry is None:
            return None
        self._must_be_whole(stream, entry)
        return Held(entry.slice.position, entry.rows, entry.bytes, entry.outcome)

    def _must_be_whole(self, stream: str, entry: Entry) -> None:
        what = None
        if not entry.whole:
            what = f"the ledger in {self.options.own_schema} was altered: it does not say what penstock has written"
        elif not entry.there:
            what = f"the table {entry.target} is gone, and the ledger says that it holds slice {entry.slice.number}"
        if what:
            raise StreamStopped(
                what,
                next_step=f"put back what was there, or begin anew: penstock state recover FILE --stream {stream}",
                pipeline=self.pipeline,
                stream=stream,
            )

    # ------------------------------------------------------------ one slice

    def writer(self, slice_: Slice, attempt: str) -> Writer:
        aside = Staging.of(self.options.own_schema, self.pipeline, slice_.stream, slice_.number, attempt)
        columns = Checks.put_aside(parse(slice_.content), pipeline=self.pipeline, stream=slice_.stream)
        with self._asking(aside.name, slice_.stream), self.writing.transaction() as connection:
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
        table = self.table(slice_.stream)
        landing = Landing(
            pipeline=self.pipeline,
            ledger=self.ledger,
            slice=slice_,
            attempt=attempt,
            table=table,
            rules=self.rules(self.info(slice_.stream)),
            create=self.stream_options(slice_.stream).create,
            staging=Staging.of(self.options.own_schema, self.pipeline, slice_.stream, slice_.number, attempt),
            receipts=receipts,
            probe=self.context.probe,
        )
        for tried in range(1, TRIES + 1):
            try:
                with self.writing.transaction() as connection:
                    self.ledger.make(connection)
                    entry = self.ledger.read(connection, slice_.stream)
                    if entry is not None:
                        self._must_be_whole(slice_.stream, entry)
                    landing.prepare(connection)
                self.context.probe.at("postgres.prepared", number=slice_.number)
                with self.writing.transaction() as connection:
                    outcome = landing.land(connection)
                    self.context.probe.at("postgres.merged", number=slice_.number)
                break
            except psycopg.Error as error:
                if error.sqlstate in RETRIED and tried < TRIES:
                    continue
                raise self._uncommitted(error, slice_, table) from error
        self.context.probe.at("postgres.landed", number=slice_.number)
        return outcome

    def _uncommitted(self, error: psycopg.Error, slice_: Slice, table: TableName) -> Exception:
        if error.sqlstate is None or self.writing.lost:
            # The server may have committed, and its answer was lost.
            return CommitUnclear(
                f"slice {slice_.number}: the connection was lost while it was committed",
                next_step="ask the sink which slice it holds",
                pipeline=self.pipeline,
                stream=slice_.stream,
            )
        where = self.writing.target.where
        return failed(error, where=where, table=str(table), pipeline=self.pipeline, stream=slice_.stream)

    # ------------------------------------------------------------ afterwards

    def sweep(self, stream: str, held: Position) -> None:
        """Drop the tables of attempts at slices that the ledger has."""
        schema = self.options.own_schema
        like = f"s\\_{staging.tag_of(self.pipeline, stream)}\\_%"
        query = sql.SQL(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = {} AND c.relname LIKE {}"
        ).format(sql.Literal(schema), sql.Literal(like))
        with self._asking("what was put aside", stream):
            with self.writing.transaction(read_only=True) as connection:
                names = [name for (name,) in connection.execute(query).fetchall()]
            for name in staging.left(schema, names, self.pipeline, stream, held.number):
                with self.writing.transaction() as connection:
                    staging.drop(connection, name)

    def recover(self, stream: str) -> Sequence[str]:
        with self._asking("the ledger", stream), self.writing.transaction(read_only=True) as connection:
            entry = self.ledger.read(connection, stream)
        if entry is None or (entry.whole and entry.there):
            return []
        with self._asking("the ledger", stream), self.writing.transaction() as connection:
            numbers = self.ledger.forget(connection, stream)
        return [f"slice {number} was withdrawn from the ledger" for number in numbers]

    def close(self) -> None:
        if "writing" in self.__dict__:
            self.writing.close()

    # ------------------------------------------------------------ errors

    @contextmanager
    def _asking(self, what: str, stream: str = "") -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            where = self.writing.target.where
            raise failed(error, where=where, table=what, pipeline=self.pipeline, stream=stream) from error
