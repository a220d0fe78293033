"""The postgres sink: rows are staged by COPY, and one transaction advances the ledger, merges and counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.content import Content
from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.ranges import Key
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, InputError, PenstockError, StreamRefused
from penstock.links.postgres.failures import is_connection_error
from penstock.links.postgres.literals import TableName, load_statement, quote
from penstock.links.postgres.targets import connection_target
from penstock.links.postgres.write_connection import Connection, WriteConnection
from penstock.ports import (
    ComparedColumns,
    Context,
    DiscoveredStream,
    Held,
    Quarantined,
    Remark,
    SinkComparison,
    StreamInfo,
    Writer,
)
from penstock.shaping.comparing import check_delete_search
from penstock.sinks.postgres import comparing, staging
from penstock.sinks.postgres.check import check_stream
from penstock.sinks.postgres.columns import staged_columns
from penstock.sinks.postgres.commit import SliceCommit
from penstock.sinks.postgres.failures import LOCK_TIMEOUT, explain_bad_row, explain_failure, explain_lock_timeout
from penstock.sinks.postgres.ledger import Ledger, find_oid, is_bound
from penstock.sinks.postgres.merge import UnfitValue
from penstock.sinks.postgres.options import MAX_NAME_BYTES, Options, StreamConfig, StreamOptions
from penstock.sinks.postgres.quarantine import Quarantine
from penstock.sinks.postgres.staging import Staging
from penstock.sinks.postgres.state.check import check_state, require_layout
from penstock.sinks.postgres.state.commit import StateCommit
from penstock.sinks.postgres.state.tables import StateTables
from penstock.sinks.postgres.target import describe, references
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
        #: for each stream, the streams that its table refers to
        self._parents: dict[str, set[str]] = {}

    # ------------------------------------------------------------ names and options

    @cached_property
    def writing(self) -> WriteConnection:
        where = connection_target(self.options, self.context, self.options.url, key="url", side="sink")
        return WriteConnection(
            where, statement_timeout=self.options.statement_timeout, lock_timeout=self.options.lock_timeout
        )

    def table(self, stream: str) -> TableName:
        return self.config(stream).table

    def config(self, stream: StreamInfo | str) -> StreamConfig:
        if isinstance(stream, str):
            stream = self._infos.get(stream) or StreamInfo(stream, Kind.ROWS)
        options = self.streams.get(stream.name) or StreamOptions()
        return StreamConfig(stream, options, TableName.read(options.into or stream.name, self.options.default_schema))

    def keeps_one_row(self, stream: StreamInfo) -> bool:
        config = self.config(stream)
        return config.is_state or bool(config.key)

    def propose(self, streams: Sequence[DiscoveredStream]) -> Sequence[Mapping[str, Any]]:
        return [
            {"newer_than": stream.options["cursor"]} if "cursor" in stream.options and stream.primary_key else {}
            for stream in streams
        ]

    # ------------------------------------------------------------ before anything moves

    def connect(self) -> None:
        self._check_separate(self.streams)
        with self._reading("the database"):
            return

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        self._infos = {info.name: info for info in streams}
        self._check_separate(self._infos)
        with self._reading("the role's rights") as connection:
            self._check_rights(connection)
        if len(streams) < 2:
            return {}
        streams_of = {self.table(info.name): info.name for info in streams}
        with self._reading("the foreign keys") as connection:
            for child, parent in references(connection, list(streams_of)):
                self._parents.setdefault(streams_of[child], set()).add(streams_of[parent])
        return self._parents

    def _check_separate(self, streams: Iterable[str]) -> None:
        shared = [name for name, times in Counter(map(self.table, streams)).items() if times > 1]
        if shared:
            raise InputError(
                f"two streams would land in one table {shared[0]}",
                next_step="give one of them another `into`",
                pipeline=self.pipeline,
            )

    def _check_rights(self, connection: Connection) -> None:
        """InputError with the GRANT to run if the role lacks a right on the schema of the ledger and of staging."""
        schema, where = self.options.own_schema, "where the sink keeps its ledger and stages rows"
        row = connection.execute(load_statement(__package__, "rights").format(schema=sql.Literal(schema))).fetchone()
        assert row
        role, database, may_create_schema, exists, may_use, may_create, missing = row
        to, at = quote(role), quote(schema)
        if not exists:
            if not may_create_schema:
                raise InputError(
                    f"the role {role} may not create the schema {schema} in database {database}, {where}",
                    next_step=f"run as the database's owner: GRANT CREATE ON DATABASE {quote(database)} TO {to};",
                )
            return
        rights = [name for name, is_granted in (("USAGE", may_use), ("CREATE", may_create)) if not is_granted]
        grants = [f"GRANT {', '.join(rights)} ON SCHEMA {at} TO {to};"] if rights else []
        grants += [f"GRANT {', '.join(rights)} ON {at}.{table} TO {to};" for table, rights in sorted(missing.items())]
        if grants:
            raise InputError(
                f"the role {role} may not write in the schema {schema} of database {database}, {where}",
                next_step=f"run as the schema's owner: {' '.join(grants)}",
            )

    def check(self, stream: StreamInfo, content: Content) -> None:
        config = self.config(stream)
        check = check_state if config.is_state else check_stream
        with self._reading(str(config.table), stream.name) as connection:
            check(connection, self.ledger, config, content)

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        from penstock.shaping.sink_remarks import explain_stale_rows
        from penstock.sinks.postgres.explain import explain_existing, explain_stream

        config = self.config(stream)
        if config.is_state:
            from penstock.sinks.postgres.state.explain import explain_state

            with self._reading(str(config.table), stream.name) as connection:
                return list(explain_state(config, require_layout(content), describe(connection, config.table)))
        remarks = list(explain_stream(config, self._parents.get(stream.name, ())))
        if config.key and stream.kind is Kind.ROWS:
            remarks += explain_stale_rows(content)
        with self._reading(str(config.table), stream.name) as connection:
            return [*remarks, *explain_existing(connection, self.ledger, config)]

    def held(self, stream: str) -> Held | None:
        with self._reading("the ledger", stream) as connection:
            entry = self.ledger.read_intact(connection, self.config(stream))
        return Held(entry.slice.position, entry.rows, entry.bytes, entry.outcome) if entry else None

    # ------------------------------------------------------------ one slice

    def _staging(self, slice_: Slice, attempt: str) -> Staging:
        return Staging.of(self.options.own_schema, self.pipeline, slice_.stream, slice_.number, attempt)

    def writer(self, slice_: Slice, attempt: str) -> Writer:
        table = self._staging(slice_, attempt)
        with self._changing(f"the ledger in {self.options.own_schema}", slice_.stream) as connection:
            columns = staged_columns(Content.parse(slice_.content))
            self.ledger.create(connection)
            table.create(connection, columns)
        return PostgresWriter(self.pipeline, slice_.stream, self.writing.target, table, self.context.probe)

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome:
        config = self.config(slice_.stream)
        make = StateCommit if config.is_state else SliceCommit
        commit = make(
            writing=self.writing,
            ledger=self.ledger,
            quarantine=self.quarantine,
            config=config,
            staging=self._staging(slice_, attempt),
            slice=slice_,
            receipts=receipts,
            context=self.context,
        )
        with self._explaining(str(commit.table), slice_.stream):
            try:
                return commit.run()
            except psycopg.Error as error:
                if self.writing.lost or is_connection_error(error):
                    # The server may have committed, and its answer was lost.
                    raise CommitUnclear(
                        f"slice {slice_.number}: the connection was lost during the commit",
                        next_step="ask the sink which slice it holds",
                    ) from error
                raise

    def sweep(self, stream: str, held: Position) -> None:
        self.sweep_all({stream: held})

    def sweep_all(self, held: Mapping[str, Position]) -> None:
        """Drop the staging tables of slices that the ledger holds, unless an attempt still writes to them."""
        schema = self.options.own_schema
        with self._reading("the staging tables") as connection:
            names = staging.list_tables(connection, schema)
        for stream, position in held.items() if names else ():
            for name in staging.select_tables(names, self.pipeline, stream, position.number):
                with self._changing("the staging tables") as connection:
                    staging.drop(connection, sql.Identifier(schema, name))

    # ------------------------------------------------------------ the quarantine

    def quarantined(self, streams: Sequence[str], *, limit: int) -> tuple[Mapping[str, int], Sequence[Quarantined]]:
        with self._reading("the quarantine") as connection:
            counts = self.quarantine.count(connection, streams)
            return counts, self.quarantine.list_rows(connection, streams, limit=limit) if counts else []

    def replay(self, stream: str, ids: Sequence[int], *, overwrite: bool) -> Outcome:
        config = self.config(stream)
        with self._changing(str(config.table), stream) as connection:
            self.ledger.read_intact(connection, config)
            return self.quarantine.replay(connection, config, ids, overwrite=overwrite)

    def drop(self, streams: Sequence[str], ids: Sequence[int]) -> int:
        with self._changing("the quarantine") as connection:
            return self.quarantine.drop(connection, streams, ids)

    # ------------------------------------------------------------ comparing

    def compare(self, stream: StreamInfo, columns: ComparedColumns) -> SinkComparison:
        config = self.config(stream)

        def run(query: sql.Composed) -> Sequence[tuple[Any, ...]]:
            with self._reading(str(config.table), stream.name) as connection:
                return connection.execute(query).fetchall()

        with self._reading(str(config.table), stream.name) as connection:
            target = describe(connection, config.table)
        return comparing.compare(config, target, columns, run)

    def check_delete_search(self, stream: StreamInfo) -> None:
        config = self.config(stream)
        check_delete_search(stream, config.key, config.options.deletes)

    def find_quarantined(self, stream: StreamInfo, columns: ComparedColumns, keys: Sequence[Key]) -> Collection[Key]:
        config = self.config(stream)
        with self._reading("the quarantine", stream.name) as connection:
            target = describe(connection, config.table)
            if target is None or set(config.shown_key) != set(columns.identifying):
                return ()
            places = [place for place, column in enumerate(columns.key) if column.name in columns.identifying]
            shown = [columns.key[place] for place in places]
            query = comparing.select_quarantined(config, self.quarantine.table, self.pipeline, shown, target)
            found = {tuple(row) for row in self.quarantine.query(connection, query)}
            return [key for key in keys if tuple(key[place] for place in places) in found]

    def explain_foreign_rows(self, stream: StreamInfo) -> str | None:
        with self._reading("the ledger", stream.name) as connection:
            return comparing.explain_foreign_rows(connection, self.ledger, self.config(stream))

    # ------------------------------------------------------------ the operator's commands

    def recover(self, stream: str) -> Sequence[str]:
        config = self.config(stream)
        with self._reading("the ledger", stream) as connection:
            entry = self.ledger.read(connection, stream)
            if entry is None or entry.binding is None:
                return []
            if entry.is_intact and is_bound(config, entry.binding, find_oid(connection, config.table)):
                return []
        with self._changing("the ledger", stream) as connection:
            numbers = self._forget(connection, stream)
        lines = [f"slice {number} was withdrawn from the ledger" for number in numbers]
        table = entry.binding.now
        return [*lines, f"the rows of slices up to {numbers[0]} stay in {table}"] if table and numbers else lines

    def archive(self, stream: str, label: str) -> Sequence[str]:
        """Rename the table that the stream's rows went into, and remove its slices, in one transaction."""
        with self._changing(str(self.table(stream)), stream) as connection:
            entry = self.ledger.read(connection, stream)
            if entry is None:
                return []
            table = entry.binding.now if entry.binding else None
            if table is None:
                self._forget(connection, stream)
                return ["the table that its rows went into is gone"]
            if others := self.ledger.list_others(connection, stream, table):
                raise StreamRefused(
                    f"the table {table} cannot be renamed: {others[0]} fills it too",
                    next_step="name another table for this stream with `into`",
                )
            new = TableName(table.schema, name_archive(table.name, label))
            connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(table.sql, sql.Identifier(new.name)))
            self._forget(connection, stream)
        return [f"the table {table} is {new} now, with all its rows; views and foreign keys on it stay with it"]

    def _forget(self, connection: Connection, stream: str) -> Sequence[int]:
        """Let a stream begin again; returns the numbers of its slices, last first."""
        StateTables(self.options.own_schema, self.pipeline, stream).forget(connection)
        return self.ledger.forget(connection, stream)

    def close(self) -> None:
        if "writing" in self.__dict__:
            self.writing.close()

    # ------------------------------------------------------------ transactions and errors

    @contextmanager
    def _reading(self, what: str, stream: str = "") -> Iterator[Connection]:
        with self._explaining(what, stream), self.writing.transaction(read_only=True) as connection:
            yield connection

    @contextmanager
    def _changing(self, what: str, stream: str = "") -> Iterator[Connection]:
        with self._explaining(what, stream), self.writing.transaction() as connection:
            yield connection

    @contextmanager
    def _explaining(self, what: str, stream: str = "") -> Iterator[None]:
        """Raise errors of the server as penstock's own, and name the pipeline and the stream in them."""
        try:
            try:
                yield
            except UnfitValue as error:
                raise explain_bad_row(what, str(error)) from error
            except psycopg.Error as error:
                if error.sqlstate != LOCK_TIMEOUT:
                    raise explain_failure(error, where=self.writing.target.where, table=what) from error
                tables = [TableName(self.options.own_schema, "ledger"), *([self.table(stream)] if stream else [])]
                with self._reading("the server's locks", stream) as connection:
                    timeout = explain_lock_timeout(connection, what, self.writing.lock_timeout, tables)
                raise timeout from error
        except PenstockError as error:
            error.at(pipeline=self.pipeline, stream=stream or None)
            raise


def name_archive(table: str, label: str) -> str:
    """The name of a table that was moved away; cut between characters if it would be too long."""
    ending = f"_before_{label.lower()}"
    stem = table.encode()[: MAX_NAME_BYTES - len(ending)].decode(errors="ignore")
    return f"{stem}{ending}"
