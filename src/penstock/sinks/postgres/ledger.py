"""The ledger: the last slice of each stream, updated in the transaction that writes the slice's rows.

It also records the table that the rows went into, by name and oid. A stream whose table has another name or oid stops:
the earlier slices are missing in the other table, and nobody would notice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from penstock.core.content import OtherFormat, check_format
from penstock.core.outcome import Outcome
from penstock.core.slices import Slice, read_slice, slice_document
from penstock.errors import StreamRefused, StreamStopped
from penstock.links.postgres.literals import TableName, load_statement, quote, to_text
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.options import StreamConfig

#: for pg_advisory_xact_lock: one process at a time creates tables
CREATE_LOCK_ID = 7_365_226_101_338
#: SQLSTATEs for a missing schema and a missing table
MISSING_STATES = ("3F000", "42P01")
#: what an error says is safe
UNCHANGED = "Nothing was changed: neither the mark nor the table."


@dataclass(frozen=True, slots=True)
class Binding:
    """The table that a stream's rows went into, as the ledger records it."""

    #: its name, quoted for SQL
    target: str
    oid: str
    #: the present name of the table with that oid; None: it is gone
    now: TableName | None
    #: a full refresh of this stream has replaced its rows
    refreshed: bool

    @property
    def table(self) -> TableName:
        return TableName.read(self.target, "")


def find_oid(connection: Connection, table: TableName) -> str | None:
    """The oid of a table; None: there is no such table."""
    row = connection.execute(
        sql.SQL("SELECT to_regclass({})::oid::text").format(sql.Literal(to_text(table.sql)))
    ).fetchone()
    return row[0] if row else None


def is_bound(config: StreamConfig, binding: Binding, oid: str | None) -> bool:
    """Whether the rows that the ledger records are in the stream's table, which has this oid."""
    accepted = config.options.accept_table
    if oid is not None and accepted is not None and oid == str(accepted):
        return True
    return (binding.target, binding.oid) == (to_text(config.table.sql), oid)


def explain_difference(config: StreamConfig, binding: Binding, oid: str | None) -> tuple[str, str]:
    """How the table differs from the one that the ledger records, and what to do."""
    table, now = config.table, binding.now
    recover = f"penstock state recover FILE --stream {config.info.name}"
    again = f"to deliver everything from the beginning into {table}: {recover}"
    accept = (
        f"if {table} holds everything that was delivered (it was renamed, or restored from a backup), set "
        f"`accept_table: {oid}` on the stream"
    )
    if binding.target != to_text(table.sql):
        absent = "" if oid else ", which does not exist"
        steps = [f"set `into: {binding.table}` on the stream to continue there", *([accept] if oid else []), again]
        what = f"the rows of this stream went into {binding.table}, and the stream names {table} now{absent}"
        return what, "; ".join(steps)
    if oid is None and now is None:
        return f"the table {table} is gone", f"restore it; or {again}"
    elsewhere = f"the table that the rows of this stream went into is called {now} now"
    if oid is None and now is not None:
        back = f"rename it back: ALTER TABLE {to_text(now.sql)} RENAME TO {quote(table.name)}"
        if now.schema != table.schema:
            back = f"move it back: ALTER TABLE {to_text(now.sql)} SET SCHEMA {quote(table.schema)}"
        accept = f"set `into: {now}` and `accept_table: {binding.oid}` on the stream"
        return f"the table {table} was renamed: {elsewhere}", f"{back}; or {accept}; or {again}"
    was = elsewhere if now else f"the one that the rows of this stream went into (oid {binding.oid}) is gone"
    return f"the table {table} is another one than before: {was}, and {table} has oid {oid}", f"{accept}; {again}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A stream's row of the ledger."""

    slice: Slice
    #: the stored id; it differs from the slice's own if somebody has altered the row
    id: str
    #: the table that its rows went into; None: its first slice is being committed
    binding: Binding | None
    rows: int
    bytes: int
    outcome: Outcome | None
    #: the id of the newest slice in `slices`
    newest: str | None

    @property
    def is_intact(self) -> bool:
        """Whether nobody has altered it."""
        return self.id == self.slice.id == self.newest


class Ledger:
    """The ledger of one pipeline, in one schema."""

    def __init__(self, schema: str, pipeline: str) -> None:
        self.schema = schema
        self.pipeline = pipeline

    def create(self, connection: Connection) -> None:
        """Create the schema and the tables if they do not exist. An existing schema needs no right to create one."""
        if self.exists(connection):
            return
        self.lock_creation(connection)
        row = connection.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", [self.schema]).fetchone()
        if row is None:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))
        connection.execute(self._statement("create_tables"))

    def exists(self, connection: Connection) -> bool:
        """Whether all of its tables exist."""
        last = sql.Literal(f"{to_text(sql.Identifier(self.schema))}.quarantine")
        row = connection.execute(sql.SQL("SELECT to_regclass({}) IS NOT NULL").format(last)).fetchone()
        return bool(row and row[0])

    def lock_creation(self, connection: Connection) -> None:
        """Keep other penstock processes from creating tables until this transaction ends."""
        connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [CREATE_LOCK_ID])

    def read(self, connection: Connection, stream: str) -> Entry | None:
        """A stream's entry; None: it has none, or there is no ledger."""
        query = self._statement("read_entry", pipeline=sql.Literal(self.pipeline), stream=sql.Literal(stream))
        try:
            row = connection.cursor(row_factory=namedtuple_row).execute(query).fetchone()
        except psycopg.errors.UndefinedColumn as error:
            raise self._other_version("a column is missing") from error
        except psycopg.Error as error:
            if error.sqlstate in MISSING_STATES:
                return None
            raise
        return self._parse(row) if row else None

    def read_intact(self, connection: Connection, config: StreamConfig) -> Entry | None:
        """A stream's entry; StreamStopped if it was altered, or if the stream names another table than before."""
        entry = self.read(connection, config.info.name)
        if entry is None:
            return None
        if not entry.is_intact:
            raise StreamStopped(
                f"the ledger in {self.schema} was altered: it differs from what penstock wrote",
                next_step=f"restore it, or begin again: penstock state recover FILE --stream {config.info.name}",
                safe=UNCHANGED,
            )
        oid = find_oid(connection, config.table)
        if entry.binding is not None and not is_bound(config, entry.binding, oid):
            what, step = explain_difference(config, entry.binding, oid)
            held = f"the ledger says that it holds slice {entry.slice.number}"
            raise StreamStopped(f"{what}; {held}", next_step=step, safe=UNCHANGED)
        return entry

    def count_created(self, connection: Connection, stream: str) -> int:
        """The number of rows that a stream has inserted into its table."""
        query = sql.SQL(
            "SELECT coalesce(sum((outcome ->> 'created')::bigint), 0)::bigint FROM {}.slices "
            "WHERE (pipeline, stream) = (%s, %s)"
        ).format(sql.Identifier(self.schema))
        row = connection.execute(query, [self.pipeline, stream]).fetchone()
        return int(row[0]) if row else 0

    def count_own(self, connection: Connection, stream: str) -> int:
        """The number of rows that a stream has inserted into its table and has not deleted again, if all are there."""
        query = sql.SQL(
            "SELECT coalesce(sum((outcome ->> 'created')::bigint - coalesce((outcome ->> 'deleted')::bigint, 0)), 0)"
            "::bigint FROM {}.slices WHERE (pipeline, stream) = (%s, %s)"
        ).format(sql.Identifier(self.schema))
        row = connection.execute(query, [self.pipeline, stream]).fetchone()
        return int(row[0]) if row else 0

    def list_others(self, connection: Connection, stream: str, table: TableName) -> list[str]:
        """The other streams whose rows went into the same table, each as `pipeline/stream`."""
        query = sql.SQL(
            "SELECT pipeline || '/' || stream FROM {}.ledger WHERE (target = %s OR table_oid = to_regclass(%s)) "
            "AND (pipeline, stream) <> (%s, %s) ORDER BY 1"
        ).format(sql.Identifier(self.schema))
        target = to_text(table.sql)
        return [name for (name,) in connection.execute(query, [target, target, self.pipeline, stream]).fetchall()]

    def move(self, connection: Connection, slice_: Slice, *, target: str, rows: int, bytes_: int) -> bool:
        """Advance from the slice before to this one; False, and nothing is written, if it is not at that slice.

        Waits for another transaction that changes the entry, and then sees what that one has left.
        """
        values = slice_document(slice_) | {
            "pipeline": self.pipeline,
            "kind": slice_.kind.value,
            "id": slice_.id,
            "target": target,
            "rows": rows,
            "bytes": bytes_,
        }
        name = "move_entry" if slice_.previous else "begin_entry"
        return connection.execute(self._statement(name), values).rowcount == 1

    def note(self, connection: Connection, slice_: Slice, attempt: str, outcome: Outcome, *, target: str) -> None:
        """Record the outcome of the slice's rows and their table, and add the slice to `slices`."""
        values = {
            "pipeline": self.pipeline,
            "stream": slice_.stream,
            "attempt": attempt,
            "target": target,
            "outcome": Jsonb(outcome.document()),
        }
        connection.execute(self._statement("note_outcome"), values)

    def forget(self, connection: Connection, stream: str) -> Sequence[int]:
        """Let a stream begin again; returns the numbers of the slices that were removed, last first."""
        for table in ("ledger", "slices"):
            query = sql.SQL("DELETE FROM {}.{} WHERE pipeline = %s AND stream = %s RETURNING number").format(
                sql.Identifier(self.schema), sql.Identifier(table)
            )
            removed = connection.execute(query, [self.pipeline, stream]).fetchall()
        return sorted((number for (number,) in removed), reverse=True)

    def _statement(self, name: str, **more: sql.Composable) -> sql.Composed:
        return load_statement(__package__, name).format(schema=sql.Identifier(self.schema), **more)

    def _other_version(self, why: str) -> StreamRefused:
        return StreamRefused(
            f"the ledger in {self.schema} was written by another version of penstock: {why}",
            next_step="use that version; or name another `own_schema` of the sink and another table with `into` of "
            "the stream, and the stream begins again there",
            safe=UNCHANGED,
        )

    def _parse(self, row: Any) -> Entry:
        try:
            check_format(row.slice["content"])
        except OtherFormat as error:
            raise self._other_version(f"slice {row.slice['number']}: {error}") from error
        slice_ = read_slice({**row.slice, "pipeline": self.pipeline})
        outcome = Outcome.read(json.loads(row.outcome)) if row.outcome is not None else None
        binding = None
        if row.oid is not None:
            binding = Binding(row.target, row.oid, TableName(*row.now) if row.now else None, row.refreshed)
        return Entry(slice_, row.id, binding, row.rows, row.bytes, outcome, row.newest)
