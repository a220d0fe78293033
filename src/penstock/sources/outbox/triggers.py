"""Triggers of a pipeline, compared with those of the database: what has to be created, replaced, enabled or dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import sql

from penstock.errors import UNTOUCHED, InputError
from penstock.links.postgres.literals import TableName, load_statement, to_text
from penstock.links.postgres.tables import RunQuery
from penstock.sources.outbox.feeds import FedTable
from penstock.sources.outbox.functions import PREFIX, Function, write_function

PACKAGE = "penstock.sources.outbox"
#: the version of the outbox's tables
FORMAT = 1
#: end of the name of a trigger that fires before TRUNCATE
TRUNCATE_SUFFIX = "_truncate"
#: what pg_trigger.tgtype says: after each row that is inserted, updated or deleted; before TRUNCATE, once
_ROW_KIND, _TRUNCATE_KIND = 29, 34


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that `apply` does."""

    #: create, extend, replace, enable, drop
    what: str
    #: the table, or the function, that it is about
    about: str
    #: why, for people
    why: str
    statements: tuple[sql.Composed, ...]
    #: the table of the file that it belongs to; "": none
    table: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.about}: {self.why}"


@dataclass(frozen=True, slots=True)
class Existing:
    """What the database has."""

    #: there is an outbox
    outbox: bool = False
    #: it has all of its tables
    whole: bool = False
    #: by name
    functions: Mapping[str, Function] = field(default_factory=dict)
    triggers: tuple[Mapping[str, Any], ...] = ()
    #: (pipeline, table, its oid, function)
    owners: tuple[tuple[str, str, str, str], ...] = ()

    def on(self, relation: TableName) -> dict[str, Mapping[str, Any]]:
        """The triggers of one relation, by name."""
        return {each["name"]: each for each in self.triggers if (each["schema"], each["relation"]) == _pair(relation)}


def _pair(relation: TableName) -> tuple[str, str]:
    return relation.schema, relation.name


def read_existing(run: RunQuery, schema: str) -> Existing:
    """What the database has now."""
    names = [sql.Literal(to_text(sql.Identifier(schema, name))) for name in ("outbox", "loads")]
    there = sql.SQL("SELECT to_regclass({})::text, to_regclass({})::text").format(*names)
    found = run(load_statement(PACKAGE, "existing").format(schema=sql.Literal(schema), prefix=sql.Literal(PREFIX)))
    outbox, whole = (name is not None for name in run(there)[0])
    if not found:
        return Existing(outbox, whole)
    document = found[0][0]
    functions = {
        each["name"]: Function(
            each["name"] if each["definer"] else "",
            each["body"].removeprefix("\n"),
            tuple(map(_setting, each["settings"])),
        )
        for each in document["functions"]
    }
    query = sql.SQL("SELECT pipeline, relation, relation_oid::text, function FROM {}").format(
        sql.Identifier(schema, "triggers")
    )
    owners = tuple((str(a), str(b), str(c), str(d)) for a, b, c, d in run(query)) if outbox else ()
    return Existing(outbox, whole, functions, tuple(document["triggers"]), owners)


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the triggers of a pipeline differ from those of the database."""

    changes: tuple[Change, ...]
    #: by table, its function
    functions: Mapping[TableName, Function]


def compare(pipeline: str, tables: Sequence[FedTable], existing: Existing, schema: str) -> Comparison:
    """What `apply` would do; InputError if a table has other triggers of another pipeline."""
    functions = {table.name: write_function(table, schema) for table in tables}
    changes: list[Change] = []
    if not existing.outbox:
        why = "it does not exist"
        changes.append(Change("create", f"outbox in schema {schema}", why, (outbox_statements(schema),)))
    elif not existing.whole:
        why = "it has no table for requests to load again"
        changes.append(Change("extend", f"outbox in schema {schema}", why, (outbox_statements(schema),)))
    for table in tables:
        _check_owners(pipeline, table, functions[table.name], existing, schema)
    old = list(_outdated(pipeline, tables, functions, existing, schema))
    for table in tables:
        function = functions[table.name]
        found = [*_function_changes(table, function, existing, schema)]
        found += _trigger_changes(pipeline, table, function, existing, schema)
        changes += [replace(each, table=str(table.name)) for each in found]
    return Comparison((*changes, *old), functions)


def is_watched(pipeline: str, table: FedTable, existing: Existing, comparison: Comparison) -> bool:
    """Whether triggers of the pipeline have written all changes of a table until now, as far as they show it."""
    owned = [
        name for owner, relation, oid, name in existing.owners if (owner, relation, oid) == _owned(pipeline, table)
    ]
    if not owned or any(each.what == "replace" and each.table == str(table.name) for each in comparison.changes):
        return False
    [function] = owned
    there = [
        existing.on(relation).get(name)
        for relation in (table.name, *table.children)
        for name in (function, function + TRUNCATE_SUFFIX)
    ]
    return all(each is not None and each["enabled"] == "A" for each in there)


def _owned(pipeline: str, table: FedTable) -> tuple[str, str, str]:
    return pipeline, str(table.name), table.oid


def outbox_statements(schema: str) -> sql.Composed:
    return load_statement(PACKAGE, "outbox").format(schema=sql.Identifier(schema), format=sql.Literal(FORMAT))


def _check_owners(pipeline: str, table: FedTable, function: Function, existing: Existing, schema: str) -> None:
    for owner, relation, _, name in existing.owners:
        if owner != pipeline and relation == str(table.name) and name != function.name:
            raise InputError(
                f"{table.name} has triggers of pipeline '{owner}', which declares it otherwise: one outbox has one "
                "function for each table",
                safe=UNTOUCHED,
                next_step="declare the table alike in both pipelines, for all streams that it feeds, release it with "
                f"`penstock triggers drop FILE --of {owner} --table {table.name}`, and apply both; or set "
                f"`outbox_schema` of this source to another schema than {schema}",
                pipeline=pipeline,
            )


def _function_changes(table: FedTable, function: Function, existing: Existing, schema: str) -> Iterator[Change]:
    there = existing.functions.get(function.name)
    if there is None:
        yield Change(
            "create", f"function {function.name}", f"for {table.name}", (function_statement(function, schema),)
        )
    elif there.name != function.name or there.body != function.body or not _same(there.settings, function.settings):
        yield Change(
            "replace",
            f"function {function.name}",
            f"for {table.name}; it was changed by hand",
            (function_statement(function, schema),),
        )


def _same(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> bool:
    def plain(settings: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return sorted((name.lower(), value.replace('"', "")) for name, value in settings)

    return plain(one) == plain(other)


def function_statement(function: Function, schema: str) -> sql.Composed:
    settings = [
        sql.SQL("SET {} TO {}").format(sql.SQL(name), sql.SQL(value) if name == "search_path" else sql.Literal(value))
        for name, value in function.settings
    ]
    return load_statement(PACKAGE, "function").format(
        schema=sql.Identifier(schema),
        name=sql.Identifier(function.name),
        settings=sql.SQL("\n").join(settings),
        body=_dollar_quoted(function.body),
    )


def _dollar_quoted(text: str) -> sql.SQL:
    """A string that a person can read in `plan`; its tag does not occur in it."""
    number = 0
    while f"$penstock{number or ''}$" in text:
        number += 1
    tag = f"$penstock{number or ''}$"
    return sql.SQL(f"{tag}\n{text}{tag}")


def _trigger_changes(
    pipeline: str, table: FedTable, function: Function, existing: Existing, schema: str
) -> Iterator[Change]:
    again = ""
    for owner, name, oid, _ in existing.owners:
        if (owner, name) == (pipeline, str(table.name)) and oid != table.oid:
            again = "; the table was dropped and created again: its changes since then are not in the outbox"
    for relation in (table.name, *table.children):
        yield from _one_trigger(relation, function.name, function, existing, schema, _ROW_KIND, again)
    for relation in (table.name, *table.partitions, *table.children):
        truncate = function.name + TRUNCATE_SUFFIX
        came = (
            f"; if the partition was attached with rows in it, {_load_again(table.name)} delivers them"
            if relation in table.partitions and function.name in existing.on(table.name)
            else again
        )
        yield from _one_trigger(relation, truncate, function, existing, schema, _TRUNCATE_KIND, came)
    for relation in table.partitions:
        there = existing.on(relation).get(function.name)
        if there is not None and there["enabled"] != "A":
            yield _enable(relation, function.name, there["enabled"])


def _load_again(table: TableName) -> str:
    return f"`penstock loads start FILE --table {table}`"


def _one_trigger(
    relation: TableName, name: str, function: Function, existing: Existing, schema: str, kind: int, again: str
) -> Iterator[Change]:
    there = existing.on(relation).get(name)
    create = _create(relation, name, function, schema, kind)
    if there is None:
        yield Change("create", f"trigger {name} on {relation}", f"it does not exist{again}", create)
    elif there["kind"] != kind or there["condition"] or there["of_columns"] or there["function"] != function.name:
        drop = _drop(relation, name)
        yield Change("replace", f"trigger {name} on {relation}", "it was changed by hand", (drop, *create))
    elif there["enabled"] != "A":
        yield _enable(relation, name, there["enabled"])


def _create(
    relation: TableName, name: str, function: Function, schema: str, kind: int
) -> tuple[sql.Composed, sql.Composed]:
    how = "AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW" if kind == _ROW_KIND else "BEFORE TRUNCATE ON {}"
    create = sql.SQL("CREATE TRIGGER {} " + how + " EXECUTE FUNCTION {}()").format(
        sql.Identifier(name), relation.sql, sql.Identifier(schema, function.name)
    )
    return create, _always(relation, name)


def _always(relation: TableName, name: str) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(relation.sql, sql.Identifier(name))


def _drop(relation: TableName, name: str) -> sql.Composed:
    return sql.SQL("DROP TRIGGER {} ON {}").format(sql.Identifier(name), relation.sql)


def _enable(relation: TableName, name: str, enabled: str) -> Change:
    why = "it is disabled" if enabled == "D" else "it does not fire in every session (ENABLE ALWAYS)"
    return Change("enable", f"trigger {name} on {relation}", why, (_always(relation, name),))


def _outdated(
    pipeline: str,
    tables: Sequence[FedTable],
    functions: Mapping[TableName, Function],
    existing: Existing,
    schema: str,
) -> Iterator[Change]:
    """Triggers and functions that no pipeline uses any more, once this one has been applied."""
    wanted = {function.name for function in functions.values()}
    wanted |= {name for owner, _, _, name in existing.owners if owner != pipeline}
    relations = {
        _pair(relation): function.name
        for table in tables
        for function in (functions[table.name],)
        for relation in (table.name, *table.partitions, *table.children)
    }
    yield from drop_unused(existing, wanted, schema, relations)


def drop_unused(
    existing: Existing,
    wanted: Collection[str],
    schema: str,
    relations: Mapping[tuple[str, str], str] | None = None,
) -> Iterator[Change]:
    """Triggers whose function is not wanted, or is that of another table; then the functions."""
    for each in existing.triggers:
        relation = TableName(each["schema"], each["relation"])
        ours = relations is not None and each["function"] in relations.values()
        misplaced = ours and relations is not None and relations.get(_pair(relation)) != each["function"]
        if (each["function"] not in wanted or misplaced) and not each["inherited"]:
            why, table = "the pipeline file does not ask for it", None
            if misplaced and relations is not None:
                table = next(TableName(*pair) for pair, name in relations.items() if name == each["function"])
                why += (
                    f" on this table; if it was a partition of {table} and was detached with rows in it, "
                    f"{_load_again(table)} removes them"
                )
            drop = _drop(relation, each["name"])
            yield Change("drop", f"trigger {each['name']} on {relation}", why, (drop,), str(table or ""))
    for name in existing.functions:
        if name not in wanted:
            drop = sql.SQL("DROP FUNCTION {}()").format(sql.Identifier(schema, name))
            yield Change("drop", f"function {name}", "no pipeline uses it", (drop,))
