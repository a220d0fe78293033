"""The table of a stream in mode `state`: whether it is as the stream needs it, and how it is made so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.core.content import Column, Columns, Content
from penstock.core.ops import Layout
from penstock.links.postgres.literals import join_identifiers
from penstock.links.postgres.types import postgres_type
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.create import find_types, must_widen
from penstock.sinks.postgres.options import StreamConfig
from penstock.sinks.postgres.target import Target


@dataclass(frozen=True, slots=True)
class WantedColumn:
    """A column that the stream needs."""

    name: str
    #: as `format_type` spells it
    type: str
    #: the type in which a value of the declared type is sent exactly
    sent: str
    described: str
    #: the type that it needed for the last slice; None: it was not there, or the same
    before: str | None = None
    is_multi: bool = False


def list_wanted(connection: Connection, layout: Layout, before: Layout | None) -> list[WantedColumn]:
    """The columns of the key first."""
    old = _types(connection, before) if before else {}
    columns = [(column, False) for column in (*layout.key, *layout.scalars)]
    columns += [(column, True) for column in layout.multi]
    types = _types(connection, layout)
    return [
        WantedColumn(
            name=column.name,
            type=types[column.name],
            sent=_sent(column, is_multi),
            described=column.described + ("[]" if is_multi else ""),
            before=old.get(column.name),
            is_multi=is_multi,
        )
        for column, is_multi in columns
    ]


def _types(connection: Connection, layout: Layout) -> dict[str, str]:
    """The type of each column: the source's own if this database has it."""
    multi = {name: f"{type_}[]" for name, type_ in find_types(connection, _readable(layout.multi)).items()}
    return {**find_types(connection, _readable((*layout.key, *layout.scalars))), **multi}


def _readable(columns: Columns) -> Columns:
    return tuple(column for column in columns if postgres_type(column.type) is not None)


def _sent(column: Column, is_multi: bool) -> str:
    return (postgres_type(column.type) or "text") + ("[]" if is_multi else "")


def list_wider(wanted: Sequence[WantedColumn], target: Target | None) -> list[tuple[str, str]]:
    """The columns that became wider at the source and are narrower in the table, each with its new type."""
    if target is None:
        return []
    return [
        (column.name, column.type)
        for column in wanted
        if column.before not in (None, column.type) and must_widen(target, column.name, column.before, column.type)
    ]


def list_state_changes(
    config: StreamConfig, layout: Layout, wanted: Sequence[WantedColumn], target: Target | None, name: str
) -> Iterator[sql.Composed]:
    """The statements that make the table as the stream needs it. `name`: the stream's, for the table's comment."""
    table = config.table.sql
    missing = [column for column in wanted if target is None or target.column(column.name) is None]
    definitions = [
        sql.SQL("{} {}{}").format(
            sql.Identifier(column.name),
            sql.SQL(column.type),
            sql.SQL(" NOT NULL DEFAULT '{}'" if column.is_multi else ""),
        )
        for column in missing
    ]
    if target is None:
        key = sql.SQL("PRIMARY KEY ({})").format(join_identifiers(column.name for column in layout.key))
        parts = sql.SQL(", ").join([*definitions, key])
        yield sql.SQL("CREATE TABLE {} ({})").format(table, parts)
        yield sql.SQL("COMMENT ON TABLE {} IS {}").format(table, sql.Literal(f"penstock: {name}"))
        for fan_out in layout.fan_outs:
            yield sql.SQL("CREATE INDEX ON {} ({})").format(table, join_identifiers(fan_out.match))
    elif definitions:
        parts = sql.SQL(", ").join(sql.SQL("ADD COLUMN {}").format(each) for each in definitions)
        yield sql.SQL("ALTER TABLE {} {}").format(table, parts)
    for column, type_ in list_wider(wanted, target):
        widen = sql.SQL("ALTER TABLE {0} ALTER COLUMN {1} TYPE {2} USING {1}::{2}")
        yield widen.format(table, sql.Identifier(column), sql.SQL(type_))


def layout_of(content: Content) -> Layout | None:
    """The declared fields of a stream's entities; None: its rows are no documents of ops."""
    return Layout.of(content.entities) if content.entities is not None else None
