"""Resolves the streams of a pipeline file against the database; refuses what triggers could not be made for.

Each refusal names the table and the column, and the nearest name that exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from penstock.core.names import did_you_mean, suggest
from penstock.errors import UNTOUCHED, StreamRefused, problems_of, refuse_all
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName, load_statement
from penstock.links.postgres.tables import KINDS, Table, describe
from penstock.sources.outbox.expressions import fill, parse_match, placeholders
from penstock.sources.outbox.feeds import (
    DirectFeed,
    Entity,
    FanOutFeed,
    FedField,
    FedTable,
    Feed,
    KeyPart,
    MultiValueFeed,
    plain_column,
)
from penstock.sources.outbox.forms import form_of
from penstock.sources.outbox.options import DirectTable, FanOutTable, MultiValueTable, StreamOptions

PACKAGE = "penstock.sources.outbox"


@dataclass
class Resolver:
    """Describes tables once, and resolves streams."""

    session: Session
    default_schema: str
    #: tables that were described
    tables: dict[TableName, Table] = field(default_factory=dict)
    #: with their partitions and inheriting tables
    known: dict[TableName, FedTable] = field(default_factory=dict)

    def entity(self, stream: str, options: StreamOptions) -> Entity:
        """Resolve one stream; StreamRefused with every problem of it."""
        problems: list[StreamRefused] = []
        feeds: list[tuple[TableName, Feed]] = []
        key: tuple[KeyPart, ...] = ()
        for each in (*options.direct, *options.multi_value, *options.fan_out):
            found: list[tuple[TableName, Feed]] = []
            problems += problems_of([lambda each=each, found=found: found.append(self._feed(stream, each))])  # type: ignore[misc]  # mypy cannot infer a lambda with defaults
            feeds += found
            if each is options.creating and found and isinstance(found[0][1], DirectFeed):
                key = found[0][1].key
        refuse_all(problems)
        entity = Entity(stream, key, tuple(feeds))
        refuse_all(problems_of([lambda: _check_keys(entity), lambda: _check_layout(entity)]))
        return entity

    def _feed(self, stream: str, options: DirectTable | MultiValueTable | FanOutTable) -> tuple[TableName, Feed]:
        name = TableName.read(options.table, self.default_schema)
        of = _TableResolver(self.session, stream, name, self._describe(stream, name))
        if isinstance(options, DirectTable):
            return name, of.direct(options)
        if isinstance(options, MultiValueTable):
            return name, of.multi_value(options)
        return name, of.fan_out(options)

    def _describe(self, stream: str, name: TableName) -> Table:
        if name in self.tables:
            return self.tables[name]
        table = describe(self.session.rows, name)
        if table is None:
            raise _refused(stream, f"there is no table {name}{self._nearest(name)}", "correct `table`, or create it")
        if not table.is_table:
            raise _refused(
                stream,
                f"{name} is a {KINDS.get(table.kind, 'relation')}, and triggers that see its rows change need a table",
                "name the tables that it is made of",
            )
        relations = self.session.rows(
            load_statement(PACKAGE, "relations").format(schema=sql.Literal(name.schema), name=sql.Literal(name.name))
        )
        self._check_relations(stream, name, relations)
        below = {True: [], False: []}  # type: dict[bool, list[TableName]]
        for schema, relation, _, _, top, _, partition, _ in relations:
            if not top:
                below[partition].append(TableName(schema, relation))
        inherits = any(row[7] for row in relations if row[4])
        self.known[name] = FedTable(
            name,
            table.oid,
            tuple(below[True]),
            tuple(below[False]),
            inherits,
            table.may_select and table.may_use_schema,
        )
        self.tables[name] = table
        return table

    def _check_relations(self, stream: str, name: TableName, relations: Sequence[Sequence[object]]) -> None:
        for schema, relation, _, kind, top, owned, partition, _ in relations:
            full = TableName(str(schema), str(relation))
            if top and partition:
                raise _refused(
                    stream, f"{name} is a partition", "name the partitioned table: its triggers see all partitions"
                )
            if kind == "f":
                raise _refused(
                    stream,
                    f"{full} is a foreign table: rows that change on its own server fire no trigger here",
                    "set up the outbox on that server",
                )
            if not owned:
                raise _refused(
                    stream,
                    f"role {self.session.user} does not own {full}: only its owner can create a trigger there that "
                    "always fires (ENABLE ALWAYS)",
                    f"connect as the owner, or let the owner run this: GRANT the owner's role TO {self.session.user}",
                )

    def _nearest(self, name: TableName) -> str:
        query = sql.SQL("SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = {}::oid")
        schema = sql.SQL("coalesce((SELECT oid FROM pg_namespace WHERE nspname = {}), 0)").format(
            sql.Literal(name.schema)
        )
        return did_you_mean(name.name, [row[0] for row in self.session.rows(query.format(schema))])


@dataclass(frozen=True, slots=True)
class _TableResolver:
    """Resolves one table of a stream."""

    session: Session
    stream: str
    name: TableName
    table: Table

    def direct(self, options: DirectTable) -> DirectFeed:
        key = self._key(options.key)
        if not self.table.unique_by(options.key):
            has = f" (its primary key: {', '.join(self.table.primary_key)})" if self.table.primary_key else ""
            raise self._refused(
                f"has no unique index on {', '.join(options.key)}{has}: two rows could belong to one entity",
                "name columns that are unique as `key`, or create a unique index on them",
            )
        fields = self._fields(options.columns, options.computed)
        return DirectFeed(key, fields, options.creates, options.deletes)

    def multi_value(self, options: MultiValueTable) -> MultiValueFeed:
        key, value = self._key(options.key), self._part(options.value)
        named = {*options.key, options.value}
        if options.where is not None:
            named |= set(self._check(options.where, f"`where` of {options.field}", condition=True))
        if not any(index.unique and set(index.columns) <= named for index in self.table.indexes):
            several = ", ".join(sorted(named))
            raise self._refused(
                f"has no unique index on ({several}): with two equal rows, the value would go when one of them does",
                "create a unique index on these columns, or on some of them",
            )
        return MultiValueFeed(key, options.field, value, options.where)

    def fan_out(self, options: FanOutTable) -> FanOutFeed:
        match = tuple((name, self._part(column)) for name, column in parse_match(options.match))
        fields = self._fields(options.columns, options.computed)
        if options.values is None:
            return FanOutFeed(match, fields, (), None)
        reads = self._key(self._check(options.values, "`values`", subquery=True))
        return FanOutFeed(match, fields, self._subquery_fields(options.values), options.values, reads)

    # ------------------------------------------------------------ columns and expressions

    def _key(self, names: Sequence[str]) -> tuple[KeyPart, ...]:
        return tuple(self._part(name) for name in names)

    def _part(self, name: str) -> KeyPart:
        column = self.table.column(name)
        if column is None:
            raise self._unknown(name)
        return KeyPart(name, form_of(column.type, column.base), column.type)

    def _fields(self, columns: Sequence[str], computed: Mapping[str, str]) -> tuple[FedField, ...]:
        found = []
        for name in columns:
            part = self._part(name)
            found.append(FedField(name, part.form, part.origin, plain_column(name)))
        for name, expression in computed.items():
            self._check(expression, f"`computed` field {name}")
            found.append(self._computed(name, expression))
        return tuple(found)

    def _computed(self, name: str, expression: str) -> FedField:
        named = placeholders(expression)
        if len(named) == 1 and expression.strip() == plain_column(named[0]):
            part = self._part(named[0])
            return FedField(name, part.form, part.origin, expression)
        one = sql.SQL("SELECT {} FROM {} AS new LIMIT 0").format(self._filled(expression), self.name.sql)
        [(_, oid, modifier)] = self.session.describe_query(one)
        return self._field_of_type(name, expression, oid, modifier)

    def _field_of_type(
        self, name: str, expression: str, oid: int, modifier: int, *, of_subquery: bool = False
    ) -> FedField:
        query = load_statement(PACKAGE, "type_of").format(oid=sql.Literal(oid), modifier=sql.Literal(modifier))
        [(type_, base)] = self.session.rows(query)
        return FedField(name, form_of(type_, base), type_, expression, of_subquery)

    def _subquery_fields(self, subquery: str) -> tuple[FedField, ...]:
        query = sql.SQL("SELECT s.* FROM {} AS new CROSS JOIN LATERAL ({}) AS s LIMIT 0").format(
            self.name.sql, fill(subquery, _of_row)
        )
        return tuple(
            self._field_of_type(name, plain_column(name), oid, modifier, of_subquery=True)
            for name, oid, modifier in self.session.describe_query(query)
        )

    def _filled(self, expression: str) -> sql.Composed:
        return sql.SQL("({})").format(fill(expression, _of_row))

    def _check(self, expression: str, what: str, *, condition: bool = False, subquery: bool = False) -> tuple[str, ...]:
        """Check that an expression compiles for a row; the columns that it names."""
        named = placeholders(expression)
        for name in named:
            if self.table.column(name) is None:
                raise self._unknown(name, what)
        filled = fill(expression, _of_row)
        if subquery:
            query = sql.SQL("SELECT s.* FROM {} AS new CROSS JOIN LATERAL ({}) AS s LIMIT 0").format(
                self.name.sql, filled
            )
        elif condition:
            query = sql.SQL("SELECT FROM {} AS new WHERE ({}) LIMIT 0").format(self.name.sql, filled)
        else:
            # In a WHERE clause, because no aggregate and no set can stand there.
            query = sql.SQL("SELECT FROM {} AS new WHERE ({}) IS NULL LIMIT 0").format(self.name.sql, filled)
        objection = self.session.find_error(query, user_statement=True)
        if objection is not None:
            raise self._refused(
                f"{what} does not compile: {objection}",
                f"correct {expression!r}; columns stand in braces, and functions outside pg_catalog need their schema",
            )
        return named

    def _unknown(self, name: str, what: str = "") -> StreamRefused:
        names = [column.name for column in self.table.columns]
        where = f", which {what} names" if what else ""
        return self._refused(f"has no column {name}{where}; {suggest(name, names, 'columns')}", "correct the name")

    def _refused(self, what: str, next_step: str) -> StreamRefused:
        return _refused(self.stream, f"{self.name} {what}", next_step)


def _of_row(column: str) -> sql.Composed:
    # As in a trigger: a subquery may use any other alias.
    return sql.SQL("new.{}").format(sql.Identifier(column))


def _check_keys(entity: Entity) -> None:
    """StreamRefused where a table's key cannot be that of the entity: its values would be spelled otherwise."""
    for table, feed in entity.feeds:
        if isinstance(feed, FanOutFeed):
            continue
        if len(feed.key) != len(entity.key):
            raise _refused(
                entity.stream,
                f"{table} has {len(feed.key)} key columns, and the entity has {len(entity.key)}",
                "name as many, in the order of the table that creates",
            )
        for part, own in zip(feed.key, entity.key, strict=True):
            _check_same_spelling(entity.stream, f"{table}.{part.column}", part, f"the key {own.column}", own)


def _check_same_spelling(stream: str, what: str, part: KeyPart, than: str, own: KeyPart | FedField) -> None:
    if (part.form.is_integer and own.form.is_integer) or (part.form == own.form and part.origin == own.origin):
        return
    if part.form.is_text and own.form.is_text:
        return
    raise _refused(
        stream,
        f"{what} is {part.origin}, and {than} is {own.origin}: the same value would be written in two ways",
        "use columns of one type",
    )


def _check_layout(entity: Entity) -> None:
    """StreamRefused if the fields contradict each other, or a fan-out matches on a field of another type."""
    try:
        _ = entity.layout
    except ValueError as error:
        raise _refused(entity.stream, str(error), "correct the fields of the stream") from None
    fields = {
        each.name: each
        for _, feed in entity.feeds
        if not isinstance(feed, MultiValueFeed)
        for each in (feed.fields if isinstance(feed, DirectFeed) else (*feed.fields, *feed.values))
    }
    for table, feed in entity.feeds:
        for name, part in feed.match if isinstance(feed, FanOutFeed) else ():
            if part.form.base in ("real", "double precision"):
                raise _refused(
                    entity.stream,
                    f"{table}.{part.column} is {part.origin}, and fan-outs do not compare fractions",
                    "match on another column",
                )
            _check_same_spelling(entity.stream, f"{table}.{part.column}", part, f"field {name}", fields[name])


def _refused(stream: str, what: str, next_step: str) -> StreamRefused:
    return StreamRefused(what, safe=UNTOUCHED, next_step=next_step, stream=stream)
