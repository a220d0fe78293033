"""Proposes a stream from foreign keys: the entity, its direct tables, its join tables, and what it refers to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.tables import RunQuery

PACKAGE = "penstock.sources.outbox"


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key."""

    columns: tuple[str, ...]
    table: str
    to: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RelatedTable:
    """A table, and the tables of its schema that it refers to."""

    name: str
    #: by statistics; None: never counted
    rows: int | None
    columns: tuple[str, ...]
    key: tuple[str, ...]
    #: columns of each unique index
    unique: tuple[frozenset[str], ...]
    references: tuple[Reference, ...]


@dataclass
class Proposal:
    """A stream for a pipeline file."""

    entity: RelatedTable
    direct: list[dict[str, Any]] = field(default_factory=list)
    multi_value: list[dict[str, Any]] = field(default_factory=list)
    fan_out: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    #: names of fields
    fields: set[str] = field(default_factory=set)

    @property
    def options(self) -> dict[str, Any]:
        named = {"direct": self.direct, "multi_value": self.multi_value, "fan_out": self.fan_out}
        return {name: feeds for name, feeds in named.items() if feeds}

    @property
    def tables(self) -> set[str]:
        return {each["table"] for feeds in self.options.values() for each in feeds}


def read_related(run: RunQuery, schema: str) -> list[RelatedTable]:
    """The tables of a schema."""
    rows = run(load_statement(PACKAGE, "related").format(schema=sql.Literal(schema)))
    return [
        RelatedTable(
            each["name"],
            each["rows"],
            tuple(each["columns"] or ()),
            tuple(each["key"]),
            tuple(frozenset(names) for names in each["unique"]),
            tuple(Reference(tuple(r["columns"]), r["table"], tuple(r["to"])) for r in each["references"]),
        )
        for (each,) in rows
    ]


def propose_entity(tables: Sequence[RelatedTable], wanted: str | None) -> Proposal:
    """The stream of one table; of the one that most tables are related to, where none is named."""
    known = {table.name: table for table in tables}
    if wanted is not None:
        if wanted not in known:
            raise _refused(f"there is no table {wanted}; {suggest(wanted, known, 'tables')}", "correct --entity")
        if not known[wanted].key:
            raise _refused(f"table {wanted} has no primary key", "name another table with --entity")
        return _propose(known[wanted], known)
    proposals = [_propose(table, known) for table in tables if table.key]
    best = max(proposals, key=lambda each: (len(each.tables), each.entity.name), default=None)
    if best is None or len(best.tables) == 1:
        raise _refused(
            "no table with a primary key is related to another one by a foreign key",
            "name the table whose rows are the entities with --entity",
        )
    return best


def _propose(entity: RelatedTable, known: Mapping[str, RelatedTable]) -> Proposal:
    found = Proposal(entity, fields=set(entity.columns))
    columns = [name for name in entity.columns if name not in entity.key]
    found.direct.append({"table": entity.name, "key": _one(entity.key), "columns": columns, "creates": True})
    if not columns:
        del found.direct[0]["columns"]
    found.reasons.append(f"One row for each row of {entity.name}.")
    for table in known.values():
        for reference in table.references:
            if reference.table == entity.name and reference.to == entity.key and table is not entity:
                _add_child(found, table, reference)
    for reference in entity.references:
        target = known.get(reference.table)
        if target is not None and target is not entity and len(reference.columns) == 1:
            _add_fan_out(found, target, reference)
    return found


def _add_child(found: Proposal, table: RelatedTable, reference: Reference) -> None:
    """A table whose rows refer to entities: one row for each, or one value for each row."""
    key = frozenset(reference.columns)
    others = [name for name in table.columns if name not in key]
    if any(unique <= key for unique in table.unique):
        fields = {_free(found, name, table.name): name for name in others if not _has_brace(name)}
        if fields:
            plain = [name for new, name in fields.items() if new == name]
            computed = {new: "{" + name + "}" for new, name in fields.items() if new != name}
            feed: dict[str, Any] = {"table": table.name, "key": _one(reference.columns)}
            found.direct.append(
                feed | ({"columns": plain} if plain else {}) | ({"computed": computed} if computed else {})
            )
            found.reasons.append(f"{table.name}: at most one row for each, because {_named(key)} is unique there.")
        return
    values = sorted({next(iter(unique - key)) for unique in table.unique if key < unique and len(unique - key) == 1})
    for value in values:
        name = _free(found, _field_of(table.name, found.entity.name) or value, table.name)
        found.multi_value.append({"table": table.name, "key": _one(reference.columns), "field": name, "value": value})
        more = [each for each in others if each != value]
        said = f"{table.name}: each row is one value, because ({_named(key)}, {value}) is unique."
        found.reasons.append(said + (f" Its columns {', '.join(more)} are left out." if more else ""))


def _add_fan_out(found: Proposal, target: RelatedTable, reference: Reference) -> None:
    """A table that entities refer to: its row sets fields of all of them."""
    [column], [to] = reference.columns, reference.to
    if column in found.entity.key or re.search(r"\s", column) or _has_brace(to):
        return
    prefix = re.sub(r"_?(id|key|code)$", "", column, flags=re.IGNORECASE) or target.name
    keys = {to, *target.key, *(name for each in target.references for name in each.columns)}
    names = [name for name in target.columns if name not in keys and not _has_brace(name)]
    computed = {_free(found, f"{prefix}_{name}", target.name): "{" + name + "}" for name in names}
    if computed:
        found.fan_out.append({"table": target.name, "match": f"{column} eq {{{to}}}", "computed": computed})
        found.reasons.append(f"{target.name}: a row sets fields of all {found.entity.name} with its {column}.")


def _free(found: Proposal, name: str, table: str) -> str:
    """A name for a field that no other one has."""
    for each in (name, f"{table}_{name}", *(f"{table}_{name}_{number}" for number in range(2, 1000))):
        if each not in found.fields:
            found.fields.add(each)
            return each
    raise AssertionError("a table has at most 1600 columns, each with another name")


def _field_of(table: str, entity: str) -> str:
    """`image_tags` of `images` is `tags`; a name that tells nothing more is empty."""
    for prefix in (entity, entity.removesuffix("s"), entity.removesuffix("es")):
        if prefix and table.startswith(f"{prefix}_"):
            return table.removeprefix(f"{prefix}_")
    return table


def _has_brace(name: str) -> bool:
    return "{" in name or "}" in name


def _one(names: Sequence[str]) -> Any:
    return names[0] if len(names) == 1 else list(names)


def _named(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _refused(what: str, next_step: str) -> InputError:
    return InputError(what, safe=UNTOUCHED, next_step=next_step)
