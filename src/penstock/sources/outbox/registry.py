"""Consumers of the outbox, and its floor: documents are deleted only once every consumer has read them.

A registration is committed before the consumer's first snapshot. It carries the number of the slice, so that the late
call of a run that was replaced never raises it.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.core.marks import Position
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.write_connection import Connection, WriteConnection
from penstock.sources.outbox.failures import explained
from penstock.sources.outbox.marks import OutboxMark
from penstock.sources.outbox.server import Server

PACKAGE = "penstock.sources.outbox"
#: documents that one transaction deletes
PRUNE_ROWS = 5000
#: beyond `keep_hours`: a consumer that has not read for so long may be gone
GONE_SECONDS = 86_400.0
#: transactions of one call
PRUNE_BATCHES = 20


class Registry:
    """The registrations of one pipeline."""

    def __init__(self, connection: WriteConnection, schema: str, pipeline: str, keep_seconds: float) -> None:
        self._connection = connection
        self._schema = schema
        self._pipeline = pipeline
        self._keep_seconds = keep_seconds

    def register(self, stream: str, last: Position | None) -> Sequence[str]:
        """Register a stream at its mark; StreamRefused if documents after the mark were deleted."""
        number = last.number if last else 0
        mark = OutboxMark.of(last.mark) if last and last.mark else None
        with (
            explained(self._connection.target.where, "the stream cannot be registered beside the outbox", stream),
            self._connection.transaction() as transaction,
        ):
            floor = self._lock_floor(transaction, stream)
            if mark is not None and mark.low < floor:
                raise below_floor(stream, mark, floor)
            low = floor if mark is None else mark.low
            created = self._save(transaction, stream, number, low)
        if created and mark is None and floor:
            return [f"documents up to {floor} were read by others and deleted: the stream begins with what is kept"]
        return []

    def advance(self, stream: str, position: Position) -> None:
        """Raise the registration to a position, unless a later one is registered; then delete what all have read."""
        with explained(self._connection.target.where, "the registration beside the outbox cannot be raised", stream):
            with self._connection.transaction() as transaction:
                floor = self._lock_floor(transaction, stream)
                low = OutboxMark.of(position.mark).low if position.mark else floor
                query = sql.SQL(
                    "UPDATE {} SET number = {number}, low = {}, updated_at = clock_timestamp() "
                    "WHERE pipeline = {} AND stream = {} AND number < {number}"
                )
                chosen = map(sql.Literal, (low, self._pipeline, stream))
                transaction.execute(query.format(self._name("consumers"), *chosen, number=sql.Literal(position.number)))
            self._prune(stream)

    def _prune(self, stream: str) -> None:
        for _ in range(PRUNE_BATCHES):
            with self._connection.transaction() as transaction:
                floor = self._lock_floor(transaction, stream)
                statement = load_statement(PACKAGE, "prune").format(
                    outbox=self._name("outbox"),
                    consumers=self._name("consumers"),
                    floors=self._name("floors"),
                    stream=sql.Literal(stream),
                    floor=sql.Literal(floor),
                    seconds=sql.Literal(self._keep_seconds),
                    most=sql.Literal(PRUNE_ROWS),
                )
                row = transaction.execute(statement).fetchone()
            if row is None or row[0] < PRUNE_ROWS:
                return

    def _lock_floor(self, transaction: Connection, stream: str) -> int:
        """The highest deleted id of a stream; nobody moves it before this transaction ends."""
        floors = self._name("floors")
        of = sql.Literal(stream)
        select = sql.SQL("SELECT low FROM {} WHERE stream = {} FOR UPDATE").format(floors, of)
        row = transaction.execute(select).fetchone()
        if row is None:
            insert = sql.SQL("INSERT INTO {} (stream, low) VALUES ({}, 0) ON CONFLICT DO NOTHING")
            transaction.execute(insert.format(floors, of))
            row = transaction.execute(select).fetchone()
        assert row is not None
        return int(row[0])

    def _save(self, transaction: Connection, stream: str, number: int, low: int) -> bool:
        """Whether the stream was not registered before."""
        statement = load_statement(PACKAGE, "register").format(
            consumers=self._name("consumers"),
            pipeline=sql.Literal(self._pipeline),
            stream=sql.Literal(stream),
            number=sql.Literal(number),
            low=sql.Literal(low),
        )
        row = transaction.execute(statement).fetchone()
        return row is not None and bool(row[0])

    def _name(self, table: str) -> sql.Identifier:
        return sql.Identifier(self._schema, table)


def watched_since(server: Server, pipeline: str) -> dict[str, str]:
    """By table: since when the pipeline's triggers have written its changes without a gap."""
    query = sql.SQL("SELECT relation, relation_oid::text || ' ' || applied_at::text FROM {} WHERE pipeline = {}")
    name = sql.Identifier(server.options.outbox_schema, "triggers")
    rows = server.session.rows(query.format(name, sql.Literal(pipeline)))
    return {str(relation): str(since) for relation, since in rows}


def find_gone(server: Server, pipeline: str, stream: str) -> str | None:
    """Another consumer that has not read for long, for people: documents that it has not read stay."""
    schema = server.options.outbox_schema
    query = load_statement(PACKAGE, "slowest").format(
        consumers=sql.Identifier(schema, "consumers"),
        outbox=sql.Identifier(schema, "outbox"),
        stream=sql.Literal(stream),
        pipeline=sql.Literal(pipeline),
        seconds=sql.Literal(server.options.keep_hours * 3600 + GONE_SECONDS),
    )
    for name, seconds in server.session.rows(query, stream=stream):
        return (
            f"pipeline '{name}' has not read documents that are {seconds / 86_400:,.1f} days old: the outbox keeps "
            f"them and all later ones. If it is gone, `penstock triggers drop FILE --of {name}` removes its "
            "registration"
        )
    return None


def below_floor(stream: str, mark: OutboxMark, floor: int) -> StreamRefused:
    return StreamRefused(
        f"the stream has certainly read the documents up to {mark.low} only, and those up to {floor} were deleted: "
        "its registration was dropped, or the store was put back from an older copy",
        safe=UNTOUCHED,
        next_step=f"documents in between may be missing; `penstock state reset FILE --stream {stream}` starts from "
        "what is kept",
        stream=stream,
    )
