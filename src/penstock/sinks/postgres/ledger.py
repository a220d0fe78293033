"""The ledger: the last slice of each stream, moved in the transaction that brings its rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from penstock.core.content import OtherFormat, check_format
from penstock.core.marks import Mark
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Slice
from penstock.errors import StreamRefused, StreamStopped
from penstock.links.postgres.literals import TableName, load_statement, to_text
from penstock.sinks.postgres.binding import Binding, Named

ROOM = "penstock.sinks.postgres"
#: for pg_advisory_xact_lock: one process at a time makes the tables
MAKING = 7_365_226_101_338
#: no such schema, no such table
NOT_THERE = ("3F000", "42P01")


@dataclass(frozen=True, slots=True)
class Entry:
    """A stream's row of the ledger."""

    slice: Slice
    #: the id that is written there; that of the slice, unless someone has altered the row
    id: str
    #: the table that its rows went into; None: its first slice is being committed
    binding: Binding | None
    rows: int
    bytes: int
    outcome: Outcome | None
    #: the id of the newest slice in `slices`
    newest: str | None

    @property
    def whole(self) -> bool:
        """Whether nobody has altered it."""
        return self.id == self.slice.id == self.newest


class Ledger:
    """The ledger of one pipeline, in one schema."""

    def __init__(self, schema: str, pipeline: str) -> None:
        self.schema = schema
        self.pipeline = pipeline

    def make(self, connection: psycopg.Connection[Any]) -> None:
        """Make schema and tables where they are not there. A role that may not make schemas can be given one."""
        if self.is_there(connection):
            return
        self.alone(connection)
        found = connection.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", [self.schema])
        if found.fetchone() is None:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))
        connection.execute(self._said("ledger"))

    def is_there(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether all of it has been made."""
        newest = sql.Literal(f"{to_text(sql.Identifier(self.schema))}.quarantine")
        found = connection.execute(sql.SQL("SELECT to_regclass({}) IS NOT NULL").format(newest)).fetchone()
        return bool(found and found[0])

    def alone(self, connection: psycopg.Connection[Any]) -> None:
        """Nobody else of ours makes anything until this transaction ends."""
        connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [MAKING])

    def read(self, connection: psycopg.Connection[Any], stream: str) -> Entry | None:
        """A stream's entry; None: it has none, or there is no ledger at all."""
        try:
            row = connection.execute(
                self._said("held", pipeline=sql.Literal(self.pipeline), stream=sql.Literal(stream))
            ).fetchone()
        except psycopg.Error as error:
            if error.sqlstate in NOT_THERE:
                return None
            raise
        return self._entry(stream, row) if row else None

    def whole(self, connection: psycopg.Connection[Any], stream: str, named: Named) -> Entry | None:
        """A stream's entry; StreamStopped if it was altered, or its table is not the one that the stream names."""
        entry = self.read(connection, stream)
        if entry is None:
            return None
        found = self._altered(entry, stream)
        if found is None and entry.binding is not None:
            found = named.difference(entry.binding, named.oid(connection), stream)
        if found:
            what, step = found
            raise StreamStopped(
                f"{what}; the ledger says that it holds slice {entry.slice.number}" if entry.whole else what,
                next_step=step,
                safe="Nothing was changed: neither the mark nor the table.",
                pipeline=self.pipeline,
                stream=stream,
            )
        return entry

    def _altered(self, entry: Entry, stream: str) -> tuple[str, str] | None:
        if entry.whole:
            return None
        return (
            f"the ledger in {self.schema} was altered: it does not say what penstock has written",
            f"put back what was there, or begin anew: penstock state recover FILE --stream {stream}",
        )

    def created(self, connection: psycopg.Connection[Any], stream: str) -> int:
        """How many rows a stream has added to its table."""
        query = sql.SQL(
            "SELECT coalesce(sum((outcome ->> 'created')::bigint), 0)::bigint FROM {}.slices "
            "WHERE (pipeline, stream) = (%s, %s)"
        ).format(sql.Identifier(self.schema))
        row = connection.execute(query, [self.pipeline, stream]).fetchone()
        return int(row[0]) if row else 0

    def others(self, connection: psycopg.Connection[Any], stream: str, target: str) -> list[tuple[str, str]]:
        """Pipelines and streams, apart from this one, whose rows went into the same table."""
        query = sql.SQL(
            "SELECT pipeline, stream FROM {}.ledger WHERE (target = %s OR table_oid = to_regclass(%s)) "
            "AND (pipeline, stream) <> (%s, %s) ORDER BY 1, 2"
        ).format(sql.Identifier(self.schema))
        return connection.execute(query, [target, target, self.pipeline, stream]).fetchall()

    def move(
        self,
        connection: psycopg.Connection[Any],
        slice_: Slice,
        *,
        target: str,
        rows: int,
        bytes_: int,
    ) -> bool:
        """From the slice before it to this one; False, and nothing is written, if it is not there.

        Waits for whoever is at it, and then sees what they have left.
        """
        values = {
            "pipeline": self.pipeline,
            "stream": slice_.stream,
            "target": target,
            "number": slice_.number,
            "id": slice_.id,
            "previous": slice_.previous,
            "kind": slice_.kind.value,
            "after": slice_.after.text if slice_.after else None,
            "upto": slice_.upto.text if slice_.upto else None,
            "content": slice_.content,
            "rows": rows,
            "bytes": bytes_,
        }
        name = "moved" if slice_.previous else "begun"
        return connection.execute(self._said(name), values).rowcount == 1

    def busy(self, connection: psycopg.Connection[Any]) -> str:
        """Who else is at the ledger, for people; empty if that cannot be told."""
        ledger = sql.Literal(to_text(sql.Identifier(self.schema, "ledger")))
        found = connection.execute(load_statement(ROOM, "busy").format(ledger=ledger)).fetchall()
        if len(found) != 1:
            return ""
        pid, state, seconds = found[0]
        return f" (process {pid} of the server, {state or 'at work'} for {seconds} s)"

    def note(
        self, connection: psycopg.Connection[Any], slice_: Slice, attempt: str, outcome: Outcome, *, target: str
    ) -> None:
        """What became of the slice's rows, and which table they went into; its entry among all slices."""
        values = {
            "pipeline": self.pipeline,
            "stream": slice_.stream,
            "attempt": attempt,
            "target": target,
            "outcome": Jsonb(outcome.document()),
        }
        connection.execute(self._said("noted"), values)

    def forget(self, connection: psycopg.Connection[Any], stream: str) -> Sequence[int]:
        """Let a stream begin anew; the numbers of the slices that were forgotten, last first."""
        values = {"pipeline": self.pipeline, "stream": stream}
        for table in ("ledger", "slices"):
            gone = connection.execute(
                sql.SQL(
                    "DELETE FROM {}.{} WHERE pipeline = %(pipeline)s AND stream = %(stream)s RETURNING number"
                ).format(sql.Identifier(self.schema), sql.Identifier(table)),
                values,
            ).fetchall()
        return sorted((number for (number,) in gone), reverse=True)

    def _said(self, name: str, **more: sql.Composable) -> sql.Composed:
        return load_statement(ROOM, name).format(schema=sql.Identifier(self.schema), **more)

    def _entry(self, stream: str, row: tuple[Any, ...]) -> Entry:
        (
            target,
            oid,
            now,
            refreshed,
            number,
            id_,
            previous,
            kind,
            after,
            upto,
            content,
            rows,
            bytes_,
            outcome,
            newest,
        ) = row
        slice_ = Slice(
            pipeline=self.pipeline,
            stream=stream,
            number=number,
            after=Mark(after) if after is not None else None,
            upto=Mark(upto) if upto is not None else None,
            content=content,
            previous=previous,
            kind=Kind(kind),
        )
        try:
            check_format(content)
        except OtherFormat as error:
            raise StreamRefused(
                f"the ledger in {self.schema} was written by another version of penstock: slice {number}: {error}",
                next_step="use that version; or name another `own_schema` of the sink and another table with `into` of "
                "the stream, and the stream begins again there",
                safe="Nothing was changed: neither the mark nor the table.",
                pipeline=self.pipeline,
                stream=stream,
            ) from error
        counts = Outcome.read(json.loads(outcome)) if outcome is not None else None
        binding = Binding(target, oid, TableName(*now) if now else None, refreshed) if oid is not None else None
        return Entry(slice_, id_, binding, rows, bytes_, counts, newest)
