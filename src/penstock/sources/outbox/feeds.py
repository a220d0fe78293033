"""The tables of a stream, resolved against the database: every column has its form, every expression its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from psycopg import sql

from penstock.core.content import Column
from penstock.core.ops import FanOut, Layout
from penstock.links.postgres.literals import TableName
from penstock.sources.outbox.expressions import fill, placeholders
from penstock.sources.outbox.forms import Form


@dataclass(frozen=True, slots=True)
class FedField:
    """A field of the entity, and where its values come from."""

    name: str
    form: Form
    #: as `format_type` spells it
    origin: str
    #: SQL with placeholders
    expression: str
    #: of `values`: the column of the subquery; None: `expression` is of the row itself
    of_subquery: bool = False

    def of(self, row: str) -> sql.Composed:
        """Its value in a row variable, as SQL."""
        return sql.SQL("({})").format(fill_row(self.expression, row))


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column whose value stands for an entity, or for a value of a field."""

    column: str
    form: Form
    origin: str

    def of(self, row: str) -> sql.Composed:
        return column_of(row, self.column)


@dataclass(frozen=True, slots=True)
class DirectFeed:
    """A table of which each row belongs to one entity."""

    key: tuple[KeyPart, ...]
    fields: tuple[FedField, ...]
    creates: bool
    #: delete, clear or ignore
    on_delete: str


@dataclass(frozen=True, slots=True)
class MultiValueFeed:
    """A join table: each row is one value."""

    key: tuple[KeyPart, ...]
    field: str
    value: KeyPart
    #: SQL with placeholders; None: every row counts
    where: str | None


@dataclass(frozen=True, slots=True)
class FanOutFeed:
    """A table of which each row sets fields of the entities that match it."""

    #: (field of the entity, column of the table)
    match: tuple[tuple[str, KeyPart], ...]
    #: of the row itself
    fields: tuple[FedField, ...]
    #: of the subquery
    values: tuple[FedField, ...]
    #: SQL with placeholders; None: there is none
    subquery: str | None
    #: the columns that the subquery names
    reads: tuple[KeyPart, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in (*self.fields, *self.values))


Feed = DirectFeed | MultiValueFeed | FanOutFeed


@dataclass(frozen=True, slots=True)
class FedTable:
    """A table that triggers watch, and what its rows mean to each stream."""

    name: TableName
    oid: str
    #: its partitions; they take over its row triggers
    partitions: tuple[TableName, ...] = ()
    #: tables that inherit from it, whose rows are also its rows; each needs triggers of its own
    children: tuple[TableName, ...] = ()
    #: it inherits from another table
    inherits: bool = False
    #: the role may read its rows
    readable: bool = True
    #: (stream, feed), in the order of the file
    feeds: tuple[tuple[str, Feed], ...] = ()

    @property
    def alone(self) -> bool:
        """Whether TRUNCATE of it empties all of it, and nothing else."""
        return not self.partitions and not self.children and not self.inherits


@dataclass(frozen=True, slots=True)
class Entity:
    """A stream, resolved."""

    stream: str
    key: tuple[KeyPart, ...]
    #: (table, feed), in the order of the file
    feeds: tuple[tuple[TableName, Feed], ...]

    @property
    def layout(self) -> Layout:
        """The declared fields; ValueError if the declaration contradicts itself."""
        scalars: list[Column] = []
        multi: list[Column] = []
        fan_outs: list[FanOut] = []
        for table, feed in self.feeds:
            if isinstance(feed, MultiValueFeed):
                multi.append(Column(feed.field, feed.value.form.type, feed.value.origin))
                continue
            fields = feed.fields if isinstance(feed, DirectFeed) else (*feed.fields, *feed.values)
            scalars += [Column(each.name, each.form.type, each.origin) for each in fields]
            if isinstance(feed, FanOutFeed):
                fan_outs.append(FanOut(str(table), tuple(name for name, _ in feed.match), feed.names))
        key = tuple(Column(each.column, each.form.type, each.origin) for each in self.key)
        return Layout(key, tuple(scalars), tuple(multi), tuple(fan_outs))


def column_of(row: str, column: str) -> sql.Composed:
    """A column of a row variable, as SQL."""
    return sql.SQL("{}.{}").format(sql.SQL(row), sql.Identifier(column))


def fill_row(text: str, row: str) -> sql.Composed:
    """An expression with the columns of a row variable."""
    return fill(text, lambda column: column_of(row, column))


def plain_column(name: str) -> str:
    """The expression that is a column alone."""
    return "{" + name + "}"


def needed_columns(feed: Feed) -> tuple[str, ...]:
    """The columns of a table's rows that its documents are made of."""
    names: list[str] = []
    if isinstance(feed, FanOutFeed):
        names += [part.column for _, part in feed.match] + [part.column for part in feed.reads]
        texts = [each.expression for each in feed.fields]
    elif isinstance(feed, DirectFeed):
        names += [part.column for part in feed.key]
        texts = [each.expression for each in feed.fields]
    else:
        names += [*(part.column for part in feed.key), feed.value.column]
        texts = [feed.where] if feed.where is not None else []
    return tuple(dict.fromkeys([*names, *(name for text in texts for name in placeholders(text))]))


def tables_of(entities: Mapping[str, Entity], known: Mapping[TableName, FedTable]) -> list[FedTable]:
    """Every table with all its feeds, sorted by name."""
    feeds: dict[TableName, list[tuple[str, Feed]]] = {}
    for stream, entity in entities.items():
        for table, feed in entity.feeds:
            feeds.setdefault(table, []).append((stream, feed))
    return [replace(known[name], feeds=tuple(feeds[name])) for name in sorted(feeds, key=str)]
