"""What could be read from a schema: sizes and changes by statistics, and what keeps a column up to date. Asks only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName, load_statement
from penstock.sources.postgres.catalog import ROOM
from penstock.sources.postgres.horizon.triggers import Trigger, keeper

#: relkind in words
KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}
_CLOCK = re.compile(r"\b(now\s*\(|(transaction|statement|clock)_timestamp\s*\(|current_timestamp|localtimestamp)", re.I)


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, partitioned table, view, materialized view or foreign table, as the statistics have it."""

    name: TableName
    #: relkind: r, p, v, m or f
    kind: str
    #: a materialized view that was never filled is not
    populated: bool
    partitions: int
    #: None: never counted
    rows: int | None
    #: of the heap and its large values; None: it has none of its own
    bytes: int | None
    #: rows changed since the statistics began
    inserted: int
    updated: int
    deleted: int
    #: what fills a column in that an INSERT leaves out, as SQL
    defaults: Mapping[str, str]
    #: columns that a sequence of their own numbers
    numbered: frozenset[str]
    #: those of them that are declared AS IDENTITY
    identities: frozenset[str]
    triggers: tuple[Trigger, ...]

    def keeper(self, column: str) -> Trigger | None:
        """The trigger that sets a column to the time of each update."""
        return keeper(self.triggers, column)

    def born(self, column: str) -> bool:
        """Whether a column's default is the time."""
        return bool(_CLOCK.search(self.defaults.get(column, "")))


def relations(session: Session, schema: str, name: str | None = None) -> Sequence[Relation]:
    """Those of a schema, or the one of that name."""
    query = load_statement(ROOM, "relations").format(schema=sql.Literal(schema), name=sql.Literal(name))
    return [_read(schema, row[0]) for row in session.rows(query, table="the catalog")]


def _read(schema: str, said: Mapping[str, object]) -> Relation:
    columns, triggers = said["columns"], said["triggers"]
    assert isinstance(columns, dict)
    assert isinstance(triggers, list)
    counted = {
        field: said[field] for field in ("populated", "partitions", "rows", "bytes", "inserted", "updated", "deleted")
    }
    return Relation(
        name=TableName(schema, str(said["name"])),
        kind=str(said["kind"]),
        **counted,  # type: ignore[arg-type]  # numbers, as the statement makes them
        defaults={name: about["default"] for name, about in columns.items() if about["default"]},
        numbered=frozenset(
            name for name, about in columns.items() if about["identity"] or "nextval(" in (about["default"] or "")
        ),
        identities=frozenset(name for name, about in columns.items() if about["identity"]),
        triggers=tuple(Trigger(**each) for each in triggers),
    )
