"""The description of a table, for everything that reads or writes one. Asks the catalog, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.links.postgres.literals import TableName, load_statement
from penstock.links.postgres.transactions import PACKAGE
from penstock.links.postgres.triggers import Trigger, find_stamping_trigger

BLOCK_BYTES = 8192
#: names of the values of `Table.kind`
KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}

#: the kinds that have rows of their own, on this server
STORING_KINDS = ("r", "p")

#: runs a query and returns its rows: that of a session, or of a connection that writes
RunQuery = Callable[[sql.Composed], Sequence[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    #: as `format_type` spells it, with its modifier
    type: str
    not_null: bool
    may_select: bool
    #: built-in, extension or none: the origin of the btree order of its values; None: not asked for
    order: str | None
    #: the type behind domains, with [] for each array; None: it is `type`. If the table is not described for writing,
    #: a type that is not built in is given by its kind, such as `enum`
    base: str | None = None
    #: a: GENERATED ALWAYS AS IDENTITY, d: BY DEFAULT, '': no identity column
    identity: str = ""
    #: it is computed from other columns
    generated: bool = False
    #: it has a default or is an identity column
    filled: bool = False
    #: its default as SQL; asked for with `writers`
    default: str | None = None
    #: for writing: `base` without its modifier
    free: str = ""
    #: for writing: a modifier limits its values, or a part of them
    limited: bool = False
    #: for writing: a modifier limits a part of a composite, a range, or an array in a domain in an array
    inner: bool = False
    #: for writing: the type behind is built in
    built_in: bool = True
    #: for writing: a cast from text goes through a function, which reads text differently than the type's input does
    converted: bool = False
    #: for writing: its own collation as SQL; None: the database's, or none
    collation: str | None = None
    #: for writing: an extension's operator for equality as SQL; None: `=`
    equals: str | None = None

    @property
    def numbered(self) -> bool:
        """Whether a sequence of its own numbers it; known with `writers`."""
        return self.identity != "" or "nextval(" in (self.default or "")


@dataclass(frozen=True, slots=True)
class Index:
    """A valid btree index of complete rows and plain columns."""

    columns: tuple[str, ...]
    unique: bool
    primary: bool
    #: checked with every row, not deferrable
    immediate: bool
    #: all columns in the default order of their types, or all in its exact reverse
    ordered: bool


@dataclass(frozen=True, slots=True)
class NumberSequence:
    """The sequence that numbers a column."""

    #: as SQL spells it
    name: str
    #: its file: RESTART, TRUNCATE ... RESTART IDENTITY and ALTER SEQUENCE replace it
    file: str | None
    #: the last number it gave; None: none yet, or not readable
    last: str | None
    #: the role may read it, and it counts up
    readable: bool = True
    #: numbers that a session fetches ahead
    cache: int = 1
    #: its numbers can become lower
    descends: bool = False
    cycles: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition that holds rows itself."""

    oid: str
    name: TableName
    #: it can be selected from directly, and shows the same rows as through its table
    may_select: bool
    blocks: int
    #: of a partition that is not `known`: the condition that its rows meet, as SQL
    bounds: str | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table, or a group of partitions, whose rows are written under the same rules."""

    kind: str
    #: of the key column; see Column
    identity: str | None
    #: a subscription writes it, in sessions that do not fire ordinary triggers
    subscribed: bool
    triggers: tuple[Trigger, ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sizes and changes of a table and its partitions, as the server has counted them."""

    #: None: never counted
    rows: int | None
    #: of the heap and its TOAST table; None: it has none
    bytes: int | None
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table, partitioned table, view, materialized view or foreign table."""

    name: TableName
    oid: str
    #: relkind; see KINDS
    kind: str
    #: False: a materialized view without data
    populated: bool
    #: the file that holds the rows: replaced by TRUNCATE or a rewrite; None: it has none of its own
    file: str | None
    #: pages of the heap; None: it has none
    blocks: int | None
    #: rows by the statistics; None: never counted
    rows: int | None
    may_use_schema: bool
    #: on the table, not only on columns
    may_select: bool
    #: row-level security hides rows from the role
    row_security: bool
    #: other tables inherit from it, and a unique index does not cover their rows
    inherited: bool
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]
    #: of the first key column; None: it has none, or no key was given
    sequence: NumberSequence | None
    #: with `storage`: of the heap and its TOAST table, or of all partitions
    bytes: int = 0
    #: with `storage`: the partitions of `known` that still exist
    known: tuple[str, ...] = ()
    #: with `storage`
    partitions: tuple[Partition, ...] = ()
    #: with `writers`
    leaves: tuple[Leaf, ...] = ()
    #: with `statistics`
    statistics: Statistics | None = None
    #: for writing
    may_insert: bool = False
    may_update: bool = False
    may_delete: bool = False
    #: the role, or a role that it belongs to, owns the table
    owned: bool = False
    #: the same of its partitions, and of tables that inherit from it
    owns_below: bool = False

    @property
    def primary_key(self) -> tuple[str, ...]:
        return next((index.columns for index in self.indexes if index.primary), ())

    @property
    def is_table(self) -> bool:
        return self.kind in ("r", "p")

    @property
    def is_readable(self) -> bool:
        return self.is_table and self.may_select

    @property
    def shows_partitions(self) -> bool:
        """Whether `tableoid` of a row tells its partition, and the role sees all rows."""
        return self.kind == "p" and self.may_select and not self.row_security and bool(self.partitions)

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def unique_by(self, key: tuple[str, ...]) -> bool:
        """Whether ON CONFLICT can use this key: exactly its columns are unique, and checked with every row."""
        return any(index.unique and index.immediate and set(index.columns) == set(key) for index in self.indexes)

    def has_index_on(self, key: tuple[str, ...]) -> bool:
        """Whether an index can serve an ordered range read of a key."""
        return any(index.ordered and index.columns[: len(key)] == key for index in self.indexes)

    def stamping_trigger(self, column: str) -> Trigger | None:
        """The trigger that sets a column to the time of every update, in every partition, for every writer.

        None if there is none for certain.
        """
        modes = [
            (leaf, replica) for leaf in self.leaves for replica in ((False, True) if leaf.subscribed else (False,))
        ]
        stamping = [find_stamping_trigger(leaf.triggers, column, replica=replica) for leaf, replica in modes]
        return stamping[0] if stamping and all(stamping) else None


def describe(
    run: RunQuery,
    name: TableName,
    key: Sequence[str] = (),
    *,
    storage: bool = False,
    known: Sequence[str] = (),
    writers: bool = False,
    statistics: bool = False,
    writing: bool = False,
) -> Table | None:
    """Describe one table; None if there is none of that name.

    `key` names the columns whose order is needed; the sequence is that of the first. The flags ask for sections that
    take time: see the fields of Table and Column.
    """
    which = sql.SQL("c.relname = {}").format(sql.Literal(name.name))
    if not writing:
        which += sql.SQL(" AND c.relkind IN ('r', 'p', 'v', 'm', 'f')")
    query = _query(name.schema, which, key, known, (storage, writers, statistics, writing))
    return next((_read(name.schema, row[0]) for row in run(query)), None)


def describe_schema(run: RunQuery, schema: str) -> list[Table]:
    """Describe all tables of a schema with `writers` and `statistics`.

    Partitions belong to their table, and tables of an extension are not the user's.
    """
    which = sql.SQL(
        "c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND NOT EXISTS (SELECT FROM pg_depend x "
        "WHERE x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.objsubid = 0 AND x.deptype = 'e')"
    ).format()
    query = _query(schema, which, (), (), (False, True, True, False))
    return [_read(schema, row[0]) for row in run(query)]


def _query(
    schema: str, which: sql.Composed, key: Sequence[str], known: Sequence[str], sections: tuple[bool, ...]
) -> sql.Composed:
    flags = dict(zip(("storage", "writers", "statistics", "writing"), map(sql.Literal, sections), strict=True))
    return load_statement(PACKAGE, "tables").format(
        schema=sql.Literal(schema), which=which, key=sql.Literal(list(key)), known=sql.Literal(list(known)), **flags
    )


def _read(schema: str, document: dict[str, Any]) -> Table:
    sequence, statistics = document["sequence"], document.get("statistics")
    partitions = tuple(
        Partition(name=TableName(each.pop("schema"), each.pop("name")), **each)
        for each in document.get("partitions", ())
    )
    leaves = tuple(
        Leaf(**{**leaf, "triggers": tuple(Trigger(**each) for each in leaf["triggers"])})
        for leaf in document.get("leaves", ())
    )
    size = document.get("bytes")
    return Table(
        **{
            **document,
            "name": TableName(schema, document["name"]),
            "columns": tuple(Column(**column) for column in document["columns"]),
            "indexes": tuple(Index(**{**each, "columns": tuple(each["columns"])}) for each in document["indexes"]),
            "sequence": NumberSequence(**sequence) if sequence else None,
            "bytes": sum(each.blocks for each in partitions) * BLOCK_BYTES if size is None else size,
            "known": tuple(document.get("known", ())),
            "partitions": partitions,
            "leaves": leaves,
            "statistics": Statistics(**statistics) if statistics else None,
        }
    )
