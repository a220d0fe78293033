"""Writes the body of a table's trigger function: what each change of a row says to the streams that the table feeds.

One function serves the row trigger and the TRUNCATE trigger of a table. It runs as its owner, so that writers need no
right on the outbox, and finds names in pg_catalog only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.core.ops import VERSION
from penstock.links.postgres.literals import load_statement, to_text
from penstock.sources.outbox.feeds import (
    DirectFeed,
    FanOutFeed,
    FedField,
    FedTable,
    Feed,
    KeyPart,
    MultiValueFeed,
    fill_row,
)
from penstock.sources.outbox.forms import FIXED_SETTINGS, Form
from penstock.sources.outbox.json_sql import Node, as_jsonb

PACKAGE = "penstock.sources.outbox"
#: every function and trigger of ours begins so: after the triggers of foreign keys, which begin with RI_
PREFIX = "penstock_"
_DIGITS = 16

Sql = sql.Composable
_NEW, _OLD = "NEW", "OLD"
#: the row of a loop over a table that is being truncated
_EACH = "each_row"


@dataclass(frozen=True, slots=True)
class Function:
    """A trigger function. Its name is a hash of its text: another text is another function."""

    name: str
    body: str
    #: settings of the function, by name
    settings: tuple[tuple[str, str], ...]


def write_function(table: FedTable, outbox_schema: str) -> Function:
    """The function for a table's triggers."""
    writer = _Writer(str(table.name), outbox_schema)
    sections, truncations = [], []
    for stream, feed in table.feeds:
        of = _Section(writer, stream)
        if isinstance(feed, DirectFeed):
            sections.append(of.direct(feed))
            truncations.append(of.truncated(table.alone, *of.direct_truncated(feed)))
        elif isinstance(feed, MultiValueFeed):
            sections.append(of.multi_value(feed))
            truncations.append(of.truncated(table.alone, (feed.field,), of.multi_removed(feed, _EACH)))
        else:
            sections.append(of.fan_out(feed))
            truncations.append(of.truncated(table.alone, feed.names, of.fan_out_cleared(feed, _EACH)))
    truncated = _lines(truncations)
    if not table.alone:
        truncated = load_statement(PACKAGE, "each_row").format(truncated=truncated)
    body = to_text(load_statement(PACKAGE, "body").format(truncated=truncated, sections=_lines(sections)))
    settings = {"search_path": "pg_catalog, pg_temp"}
    settings |= {name: FIXED_SETTINGS[name] for name in sorted({n for form in _forms(table) for n in form.settings})}
    chosen = tuple(settings.items())
    digest = hashlib.sha256(repr((body, chosen)).encode()).hexdigest()[:_DIGITS]
    return Function(PREFIX + digest, body, chosen)


def _forms(table: FedTable) -> list[Form]:
    found: list[Form] = []
    for _, feed in table.feeds:
        if isinstance(feed, FanOutFeed):
            found += [part.form for _, part in feed.match]
            found += [field.form for field in (*feed.fields, *feed.values)]
        else:
            found += [part.form for part in feed.key]
            found += [field.form for field in feed.fields] if isinstance(feed, DirectFeed) else [feed.value.form]
    return found


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes statements that put a document into the outbox."""

    table: str
    outbox_schema: str

    def put(self, stream: str, document: Node) -> Sql:
        return sql.SQL("INSERT INTO {} (stream, document) VALUES ({}, {});").format(
            sql.Identifier(self.outbox_schema, "outbox"), sql.Literal(stream), as_jsonb(document)
        )

    def put_ops(self, stream: str, ops: Node, key: Node = None) -> Sql:
        keyed: dict[str, Node] = {} if key is None else {"key": key}
        return self.put(stream, {**_header(self.table), **keyed, "ops": ops})


@dataclass(frozen=True, slots=True)
class _Section:
    """Writes what a table says to one stream."""

    writer: _Writer
    stream: str

    def _inserted(self, feed: Feed) -> Sql:
        said = say_inserted(self.writer.table, feed, _NEW)
        return _if(said.condition, self.writer.put(self.stream, said.document))

    # ------------------------------------------------------------ direct

    def direct(self, feed: DirectFeed) -> Sql:
        changed = self._put_ops(feed.key)
        update = _if(
            _any(part.form.differ(part.of(_OLD), part.of(_NEW)) for part in feed.key),
            _lines([self._direct_gone(feed, _OLD), self._inserted(feed)]),
            _lines([sql.SQL("ops := '[]';"), *_changes(feed.fields), changed]) if feed.fields else sql.SQL("NULL;"),
        )
        return _by_event(self._inserted(feed), update, self._direct_gone(feed, _OLD))

    def _direct_gone(self, feed: DirectFeed, row: str) -> Sql:
        if feed.on_delete == "ignore" or (feed.on_delete == "clear" and not feed.fields):
            return sql.SQL("NULL;")
        ops: Node = [_DELETE] if feed.on_delete == "delete" else [_null(each.name) for each in feed.fields]
        return _if(_known(feed.key, row), self.writer.put_ops(self.stream, ops, _key(feed.key, row)))

    def direct_truncated(self, feed: DirectFeed) -> tuple[tuple[str, ...] | None, Sql]:
        """The fields that a TRUNCATE clears, None for every entity; and what it says of one row."""
        names = {"delete": None, "ignore": (), "clear": tuple(each.name for each in feed.fields)}[feed.on_delete]
        return names, self._direct_gone(feed, _EACH)

    def _put_ops(self, key: Sequence[KeyPart]) -> Sql:
        put = self.writer.put_ops(self.stream, sql.SQL("ops"), _key(key, _NEW))
        return _if(_and([sql.SQL("ops <> '[]'"), _known(key, _NEW)]), put)

    # ------------------------------------------------------------ multi-value

    def multi_value(self, feed: MultiValueFeed) -> Sql:
        parts = (*feed.key, feed.value)
        differs = _any(part.form.differ(part.of(_OLD), part.of(_NEW)) for part in parts)
        counts_before, counts_now = _counts(feed, _OLD), _counts(feed, _NEW)
        moved = sql.SQL("{} AND ({} OR NOT {})")
        update = _lines(
            [
                _if(moved.format(counts_before, differs, counts_now), self._value(feed, "remove", _OLD)),
                _if(moved.format(counts_now, differs, counts_before), self._value(feed, "add", _NEW)),
            ]
        )
        return _by_event(self._inserted(feed), update, self.multi_removed(feed, _OLD))

    def multi_removed(self, feed: MultiValueFeed, row: str) -> Sql:
        return _if(_counts(feed, row), self._value(feed, "remove", row))

    def _value(self, feed: MultiValueFeed, op: str, row: str) -> Sql:
        return self.writer.put(self.stream, _value_document(self.writer.table, feed, op, row))

    # ------------------------------------------------------------ fan-out

    def fan_out(self, feed: FanOutFeed) -> Sql:
        changes = _changes(feed.fields)
        if feed.subquery is not None:
            reread = _append(_subquery(feed, _NEW))
            changes.append(_if(_any(part.form.differ(part.of(_OLD), part.of(_NEW)) for part in feed.reads), reread))
        known = _known([part for _, part in feed.match], _NEW)
        changes.append(_if(_and([sql.SQL("ops <> '[]'"), known]), self._set_matching(feed, _NEW, sql.SQL("ops"))))
        update = _if(
            _any(part.form.differ(part.of(_OLD), part.of(_NEW)) for _, part in feed.match),
            _lines([self.fan_out_cleared(feed, _OLD), self._inserted(feed)]),
            _lines([sql.SQL("ops := '[]';"), *changes]),
        )
        return _by_event(self._inserted(feed), update, self.fan_out_cleared(feed, _OLD))

    def fan_out_cleared(self, feed: FanOutFeed, row: str) -> Sql:
        put = self._set_matching(feed, row, [_null(name) for name in feed.names])
        return _if(_known([part for _, part in feed.match], row), put)

    def _set_matching(self, feed: FanOutFeed, row: str, ops: Node) -> Sql:
        return self.writer.put(self.stream, _matching_document(self.writer.table, feed, row, ops))

    # ------------------------------------------------------------ TRUNCATE

    def truncated(self, alone: bool, fields: Sequence[str] | None, row: Sql) -> Sql:
        """What a TRUNCATE says: one op for all rows, or, of a table that shares its rows with others, one for each."""
        if not alone:
            return row
        if fields is None:
            return self.writer.put_ops(self.stream, [sql.SQL("""'{{"op": "clear"}}'::jsonb""").format()])
        clears: list[Node] = [{"op": "clear", "field": name} for name in fields]
        return self.writer.put_ops(self.stream, clears) if clears else sql.SQL("NULL;")


# ------------------------------------------------------------ what a row says


@dataclass(frozen=True, slots=True)
class RowDocument:
    """What the trigger says when a row is inserted, as SQL about a row variable."""

    document: Node
    #: whether the row says anything; never NULL
    condition: Sql


def say_inserted(table: str, feed: Feed, row: str) -> RowDocument:
    """What a row says to a stream when it is inserted: what a first load reads of rows that were there before."""
    if isinstance(feed, MultiValueFeed):
        return RowDocument(_value_document(table, feed, "add", row), _counts(feed, row))
    ops: Node = [_set(each, row) for each in feed.fields]
    if isinstance(feed, DirectFeed):
        creates: dict[str, Node] = {"creates": True} if feed.creates else {}
        document = {**_header(table), "key": _key(feed.key, row), **creates, "ops": ops}
        return RowDocument(document, _known(feed.key, row))
    if feed.subquery is not None:
        ops = sql.SQL("{} || {}").format(as_jsonb(ops), _subquery(feed, row))
    known = _known([part for _, part in feed.match], row)
    return RowDocument(_matching_document(table, feed, row, ops), known)


def _header(table: str) -> dict[str, Node]:
    return {"v": VERSION, "table": table}


def _value_document(table: str, feed: MultiValueFeed, op: str, row: str) -> Node:
    value = feed.value.form.identifier_json(feed.value.of(row))
    return {**_header(table), "key": _key(feed.key, row), "ops": [_op(op, feed.field, value)]}


def _matching_document(table: str, feed: FanOutFeed, row: str, ops: Node) -> Node:
    filters: list[Node] = [{"field": name, "eq": part.form.identifier_json(part.of(row))} for name, part in feed.match]
    where = {"and": filters} if len(filters) > 1 else filters[0]
    return {**_header(table), "ops": [{"op": "query_op_set", "where": where, "ops": ops}]}


def _subquery(feed: FanOutFeed, row: str) -> Sql:
    """The ops of a subquery's fields; null where it has no row."""
    assert feed.subquery is not None
    ops = [
        _op("set", each.name, each.form.json(sql.SQL("q.{}").format(sql.Identifier(each.name)))) for each in feed.values
    ]
    return load_statement(PACKAGE, "subquery").format(
        ops=as_jsonb(ops),
        subquery=fill_row(feed.subquery, row),
        nulls=as_jsonb([_null(each.name) for each in feed.values]),
    )


# ------------------------------------------------------------ pieces of SQL

_DELETE = sql.SQL("""'{"op": "delete"}'::jsonb""")


def _op(op: str, name: str, value: Node, **more: Node) -> Node:
    return {"op": op, "field": name, "value": value, **more}


def _set(field: FedField, row: str) -> Node:
    return _op("set", field.name, field.form.json(field.of(row)))


def _null(name: str) -> Node:
    return _op("set", name, None)


def _changes(fields: Sequence[FedField]) -> list[Sql]:
    """Append an op to `ops` for each field that differs between the old row and the new one."""
    found = []
    for each in fields:
        old, new = each.of(_OLD), each.of(_NEW)
        op = _op("set", each.name, each.form.json(new), old=each.form.json(old))
        found.append(_if(each.form.differ(old, new), _append(as_jsonb(op))))
    return found


def _append(ops: Sql) -> Sql:
    return sql.SQL("ops := ops || {};").format(ops)


def _counts(feed: MultiValueFeed, row: str) -> Sql:
    """Whether a row of a join table is a value: it has a key and a value, and fulfils the condition. Never NULL."""
    conditions = [_known((*feed.key, feed.value), row)]
    if feed.where is not None:
        conditions.append(sql.SQL("coalesce(({}), false)").format(fill_row(feed.where, row)))
    return _and(conditions)


def _known(parts: Sequence[KeyPart], row: str) -> Sql:
    """Whether a row has all of these values."""
    return _and([sql.SQL("{} IS DISTINCT FROM NULL").format(part.of(row)) for part in parts])


def _key(parts: Sequence[KeyPart], row: str) -> Node:
    values = [_key_json(part, row) for part in parts]
    return values[0] if len(values) == 1 else values


def _key_json(part: KeyPart, row: str) -> Sql:
    value = part.form.identifier_json(part.of(row))
    # A key is an integer or a string.
    return sql.SQL("to_jsonb({}::text)").format(part.of(row)) if part.form.base == "boolean" else value


def _by_event(insert: Sql, update: Sql, delete: Sql) -> Sql:
    return load_statement(PACKAGE, "by_event").format(insert=insert, update=update, delete=delete)


def _if(condition: Sql, then: Sql, otherwise: Sql | None = None) -> Sql:
    if otherwise is None:
        return sql.SQL("IF {} THEN\n{}\nEND IF;").format(condition, then)
    return sql.SQL("IF {} THEN\n{}\nELSE\n{}\nEND IF;").format(condition, then, otherwise)


def _and(conditions: Iterable[Sql]) -> Sql:
    return sql.SQL("({})").format(sql.SQL(" AND ").join(conditions))


def _any(conditions: Iterable[Sql]) -> Sql:
    return sql.SQL("({})").format(sql.SQL(" OR ").join(conditions))


def _lines(statements: Iterable[Sql]) -> Sql:
    return sql.SQL("\n").join(statements)
