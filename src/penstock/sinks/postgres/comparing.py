"""A stream's table as a comparison sees it: its current rows by key, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import sql

from penstock.core.types import Decimal, List, Plain, Type
from penstock.links.postgres.literals import join_identifiers
from penstock.links.postgres.row_digests import KeyPart, TableRows, canonical_text
from penstock.links.postgres.types import without_modifier
from penstock.links.postgres.write_connection import Connection
from penstock.ports import ComparedColumn, ComparedColumns, SinkComparison, not_comparable
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.options import StreamConfig
from penstock.sinks.postgres.target import Target, TargetColumn, holds_more

RunQuery = Callable[[sql.Composed], Sequence[tuple[Any, ...]]]

_WHOLE = frozenset({"smallint", "integer", "bigint"})
#: the types of a column in which a value prints as it was delivered
_ALIKE: Mapping[Type, frozenset[str]] = {
    **dict.fromkeys((Plain.INT8, Plain.INT16, Plain.INT32, Plain.INT64, Plain.UINT8, Plain.UINT16), _WHOLE),
    Plain.BOOL: frozenset({"boolean"}),
    Plain.FLOAT32: frozenset({"real"}),
    Plain.FLOAT64: frozenset({"double precision"}),
    Plain.BINARY: frozenset({"bytea"}),
    Plain.DATE: frozenset({"date"}),
    Plain.TIME: frozenset({"time without time zone"}),
    Plain.TIMESTAMP: frozenset({"timestamp without time zone"}),
    Plain.TIMESTAMPTZ: frozenset({"timestamp with time zone"}),
}


def compare(config: StreamConfig, target: Target | None, columns: ComparedColumns, run: RunQuery) -> SinkComparison:
    """The table's side of a comparison; NotComparable if the stream cannot be compared."""
    if config.is_state:
        raise not_comparable(config.info.name, "its rows in the sink are entities, and those of the source are ops")
    if target is None:
        raise not_comparable(config.info.name, f"there is no table {config.table} yet", "penstock run FILE")
    key = tuple(column.name for column in columns.key)
    if config.key and set(config.key) != set(columns.identifying):
        raise not_comparable(
            config.info.name,
            f"its key in the sink is {', '.join(config.key)}, and the source's primary key is "
            f"{', '.join(columns.identifying)}",
        )
    parts = [_key_part(config, target, column) for column in columns.key]
    skipped, kept = dict(columns.skipped), []
    for column in columns.values:
        why = _explain_difference(config, target.column(column.name), column)
        if why:
            skipped[column.name] = why
        else:
            kept.append(column)
    values = [_text(column) for column in kept]
    marker = config.deleted_at
    return SinkComparison(
        rows=TableRows(
            run=run,
            relation=_relation(config, target, key),
            condition=sql.SQL("{} IS NULL").format(sql.Identifier("t", marker)) if marker else sql.SQL("true"),
            key=parts,
            values=values,
            indexed=target.has_index_on(key),
        ),
        columns=replace(columns, values=tuple(kept), skipped=skipped),
        appends=not config.key,
        keeps_deleted=config.options.deletes == "ignore",
    )


def _relation(config: StreamConfig, target: Target, key: Sequence[str]) -> sql.Composed:
    """The table; if every version of a row stays, its newest version by the stream's cursor."""
    if config.key:
        return sql.SQL("{} AS t").format(config.table.sql)
    cursor = config.info.version or (config.info.order[0] if config.info.order else None)
    if cursor is None or target.column(cursor) is None:
        raise not_comparable(
            config.info.name,
            "it is appended, and no column of the table says which row is the newest",
            "set a `key` on it",
        )
    return sql.SQL("(SELECT DISTINCT ON ({0}) * FROM {1} ORDER BY {0}, {2} DESC NULLS LAST) AS t").format(
        join_identifiers(key), config.table.sql, sql.Identifier(cursor)
    )


def _key_part(config: StreamConfig, target: Target, column: ComparedColumn) -> KeyPart:
    held = target.column(column.name)
    why = _explain_difference(config, held, column)
    part = KeyPart.of(sql.Identifier("t", column.name), column.type, held.free) if held else None
    if why or part is None:
        raise not_comparable(config.info.name, f"of its key column {column.name}: {why}")
    return part


def _text(column: ComparedColumn) -> sql.Composed:
    text = canonical_text(sql.Identifier("t", column.name), column.type)
    assert text is not None
    return text


def _explain_difference(config: StreamConfig, held: TargetColumn | None, column: ComparedColumn) -> str | None:
    """Why the table's column is not compared; None: it prints values as they were delivered."""
    if held is None:
        return "the table does not have it"
    if column.name in config.options.volatile:
        return "it is `volatile`"
    return None if _prints_alike(held, column) else f"it is {held.type} in the table"


def _prints_alike(held: TargetColumn, column: ComparedColumn) -> bool:
    if isinstance(column.type, Decimal):
        return held.free == "numeric"
    if column.type in _ALIKE:
        return held.free in _ALIKE[column.type]
    is_text = column.type in (Plain.STRING, Plain.JSON)
    if is_text and held.free in ("text", "character varying"):
        return True
    # A modifier may print a value differently: 1.5 is 1.50 in a numeric(9,2).
    same = column.origin is not None and held.free == without_modifier(column.origin) and not held.limited
    return (is_text or isinstance(column.type, List)) and (same or held.type == column.origin)


def select_quarantined(
    config: StreamConfig, table: sql.Identifier, pipeline: str, columns: Sequence[ComparedColumn], target: Target
) -> sql.Composed:
    """The keys of a stream's rows in quarantine, as SQL."""
    texts = []
    for column in columns:
        held = target.column(column.name)
        type_ = sql.SQL(held.free if held else "text")
        value = sql.SQL("(q.key ->> {})::{}").format(sql.Literal(column.name), type_)
        texts.append(canonical_text(value, column.type) or value)
    return sql.SQL("SELECT DISTINCT {} FROM {} q WHERE q.pipeline = {} AND q.stream = {}").format(
        sql.SQL(", ").join(texts), table, sql.Literal(pipeline), sql.Literal(config.info.name)
    )


def explain_foreign_rows(connection: Connection, ledger: Ledger, config: StreamConfig) -> str | None:
    """Why a row of the table may be someone else's; None: this stream has brought every row."""
    others = ledger.list_others(connection, config.info.name, config.table)
    if others:
        return f"{others[0]} fills the table {config.table} too"
    if holds_more(connection, config.table, ledger.count_own(connection, config.info.name)):
        return f"the table {config.table} has more rows than this stream has brought"
    return None
