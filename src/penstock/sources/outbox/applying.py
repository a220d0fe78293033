"""Carries out what `penstock triggers` was asked for: reads the database, applies or drops in one transaction."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import psycopg
from psycopg import sql

from penstock.core.retry import Backoff, Retry
from penstock.errors import StreamRefused, problems_of, refuse_all
from penstock.links.pause import pause
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.write_connection import Connection, WriteConnection
from penstock.sources.outbox.failures import explained
from penstock.sources.outbox.feeds import Entity, FedTable, tables_of
from penstock.sources.outbox.options import Options, StreamOptions
from penstock.sources.outbox.resolving import Resolver
from penstock.sources.outbox.triggers import (
    PACKAGE,
    Change,
    Comparison,
    Existing,
    compare,
    drop_unused,
    is_watched,
    read_existing,
)

#: for pg_advisory_xact_lock: one process at a time changes triggers
APPLY_LOCK_ID = 7_365_226_101_345
#: of an outbox
TABLES = ("outbox", "identity", "consumers", "floors", "triggers", "loads")
#: of an apply that was ended by the server because of a deadlock with writers; it goes on for `lock_timeout` at least
DEADLOCKS = Retry(10, Backoff(0.1, 2.0))


@dataclass(frozen=True)
class Resolved:
    """A pipeline's streams and tables, resolved against the database."""

    #: by stream, those without problems
    entities: Mapping[str, Entity]
    tables: Sequence[FedTable]
    problems: tuple[StreamRefused, ...] = ()

    def require_all(self) -> None:
        """StreamRefused with every problem of every stream."""
        refuse_all(self.problems)


def resolve(session: Session, options: Options, streams: Mapping[str, StreamOptions]) -> Resolved:
    """Resolve every stream."""
    resolver = Resolver(session, options.default_schema)
    entities: dict[str, Entity] = {}
    problems: list[StreamRefused] = []
    for name, each in streams.items():

        def resolve_one(name: str = name, each: StreamOptions = each) -> None:
            entities[name] = resolver.entity(name, each)

        problems += problems_of([resolve_one])
    return Resolved(entities, tables_of(entities, resolver.known), tuple(problems))


def plan_triggers(session: Session, options: Options, pipeline: str, resolved: Resolved) -> Comparison:
    """What `apply` would do now."""
    existing = read_existing(session.rows, options.outbox_schema)
    return compare(pipeline, resolved.tables, existing, options.outbox_schema)


def apply_triggers(
    connection: WriteConnection, options: Options, pipeline: str, resolved: Resolved
) -> tuple[Change, ...]:
    """Make the database's triggers those of the file, all or none; returns what was done.

    Writers lock several tables in an order of their own: an apply that they are in a deadlock with begins again.
    """
    with explained(connection.target.where, "the triggers cannot be applied"):
        begun = time.monotonic()
        for attempt in count(1):
            try:
                with connection.transaction() as transaction:
                    return _apply(transaction, options.outbox_schema, pipeline, resolved)
            except psycopg.errors.DeadlockDetected:
                if DEADLOCKS.is_last(attempt) and time.monotonic() - begun > options.lock_timeout:
                    raise
                pause(DEADLOCKS.backoff, attempt)
    raise AssertionError("each try returns, raises, or is followed by another one")


def _apply(transaction: Connection, schema: str, pipeline: str, resolved: Resolved) -> tuple[Change, ...]:
    _lock(transaction)
    existing = _read(transaction, schema)
    comparison = compare(pipeline, resolved.tables, existing, schema)
    for table in resolved.tables if comparison.changes else ():
        for relation in (table.name, *table.children):
            lock = sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(relation.sql)
            transaction.execute(lock)
    _execute(transaction, comparison.changes)
    watched = [each for each in resolved.tables if is_watched(pipeline, each, existing, comparison)]
    _own(transaction, schema, pipeline, resolved.tables, watched, comparison)
    _tell_others(transaction, schema, pipeline, resolved.tables, existing, comparison)
    return comparison.changes


def drop_triggers(
    connection: WriteConnection, options: Options, pipeline: str, tables: Collection[str] | None = None
) -> tuple[Change, ...]:
    """Release a pipeline's triggers, and drop those that no other pipeline uses; the outbox goes with the last one.

    `tables`: only those on these tables. Then the pipeline stays registered, and the outbox stays.
    """
    schema = options.outbox_schema
    with (
        explained(connection.target.where, "the triggers cannot be dropped"),
        connection.transaction() as transaction,
    ):
        _lock(transaction)
        existing = _read(transaction, schema)
        if not existing.outbox:
            return ()
        left = [row for row in existing.owners if row[0] != pipeline or (tables is not None and row[1] not in tables)]
        changes = list(drop_unused(existing, {name for *_, name in left}, schema))
        chosen = sql.SQL("true") if tables is None else sql.SQL("relation = ANY ({})").format(sql.Literal(list(tables)))
        own = sql.SQL("DELETE FROM {} WHERE pipeline = {} AND {}")
        names = (
            ["triggers"] if tables is not None else ["triggers", "consumers", *(["loads"] if existing.whole else [])]
        )
        for name in names:
            transaction.execute(own.format(sql.Identifier(schema, name), sql.Literal(pipeline), chosen))
        if tables is None and not left and not _has_consumers(transaction, schema):
            dropped = [sql.Identifier(schema, name) for name in TABLES]
            drop = sql.SQL("DROP TABLE IF EXISTS {}; DROP FUNCTION {}()").format(
                sql.SQL(", ").join(dropped), sql.Identifier(schema, "refuse_truncate")
            )
            changes.append(Change("drop", f"outbox in schema {schema}", "no pipeline uses it", (drop,)))
        _execute(transaction, changes)
    return tuple(changes)


def _lock(transaction: Connection) -> None:
    transaction.execute("SELECT pg_advisory_xact_lock(%s)", (APPLY_LOCK_ID,))


def _read(transaction: Connection, schema: str) -> Existing:
    return read_existing(lambda query: transaction.execute(query).fetchall(), schema)


def _has_consumers(transaction: Connection, schema: str) -> bool:
    query = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(schema, "consumers"))
    row = transaction.execute(query).fetchone()
    return row is not None and bool(row[0])


def _execute(transaction: Connection, changes: Sequence[Change]) -> None:
    for change in changes:
        for statement in change.statements:
            transaction.execute(statement)


def _own(
    transaction: Connection,
    schema: str,
    pipeline: str,
    tables: Sequence[FedTable],
    watched: Sequence[FedTable],
    comparison: Comparison,
) -> None:
    """Record which functions the pipeline uses; `applied_at` stays for tables that were watched without a gap."""
    # Literals, because the name of a schema may have a %, which the driver takes for one of its own signs.
    owners, own = sql.Identifier(schema, "triggers"), sql.Literal(pipeline)
    rows = {(pipeline, str(each.name), each.oid, comparison.functions[each.name].name): each for each in tables}
    select = sql.SQL("SELECT pipeline, relation, relation_oid::text, function FROM {} WHERE pipeline = {}")
    before = {tuple(row) for row in transaction.execute(select.format(owners, own))}
    for row in before - rows.keys():
        delete = sql.SQL("DELETE FROM {} WHERE pipeline = {} AND relation = {}")
        if row[1] not in {str(each.name) for each in watched}:
            transaction.execute(delete.format(owners, own, sql.Literal(row[1])))
    upsert = load_statement(PACKAGE, "own")
    for row, table in rows.items():
        if row not in before or table not in watched:
            values = sql.SQL(", ").join(map(sql.Literal, row))
            kept = sql.Literal(table in watched)
            transaction.execute(upsert.format(owners=owners, values=values, watched=kept))


def _tell_others(
    transaction: Connection,
    schema: str,
    pipeline: str,
    tables: Sequence[FedTable],
    existing: Existing,
    comparison: Comparison,
) -> None:
    """Let other pipelines know of a gap in what the triggers of a table have written, which this one has closed."""
    update = sql.SQL("UPDATE {} SET applied_at = clock_timestamp() WHERE pipeline = {} AND relation = {}")
    for table in tables:
        for owner in sorted({owner for owner, name, *_ in existing.owners if name == str(table.name)} - {pipeline}):
            if not is_watched(owner, table, existing, comparison):
                chosen = map(sql.Literal, (owner, str(table.name)))
                transaction.execute(update.format(sql.Identifier(schema, "triggers"), *chosen))
