"""The fields of an entity and the columns of its table, with the SQL that converts values.

Values of documents are text here: strings as they are, anything else as JSON. A column reads them as its type does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from psycopg import sql

from penstock.core.ops import FanOut, Layout
from penstock.sinks.postgres.columns import MappedColumn
from penstock.sinks.postgres.target import Target, TargetColumn

#: the column of `value_tests` and of the tables that they are applied to
VALUE = "value"
#: types whose values differ exactly if their texts do, so that `=` can be used, and an index
_SIMPLE = frozenset(
    {"smallint", "integer", "bigint", "boolean", "uuid", "date", "text"}
    | {"timestamp with time zone", "timestamp without time zone"}
)
_ORDERED = _SIMPLE | {"numeric", "real", "double precision", "time without time zone"}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the entity, or a column of its key."""

    #: counts key columns, then fields with one value, then fields with several
    number: int
    name: str
    #: the column that holds one value; of a field with several values, its array's element
    column: TargetColumn
    is_multi: bool = False

    @property
    def work(self) -> sql.Identifier:
        """Its column in temporary tables."""
        return sql.Identifier(f"f{self.number}")

    @property
    def own(self) -> sql.Identifier:
        """Its column in the table."""
        return sql.Identifier(self.name)

    @property
    def definition(self) -> sql.Composed:
        """Its column in temporary tables, with its type."""
        type_ = sql.SQL(self.column.type + ("[]" if self.is_multi else ""))
        collation = sql.SQL(f" COLLATE {self.column.collation}") if self.column.collation else sql.SQL("")
        return sql.SQL("{} {}{}").format(self.work, type_, collation)

    def of(self, row: str) -> sql.Composed:
        """Its column of a row of temporary tables."""
        return sql.SQL("{}.{}").format(sql.SQL(row), self.work)

    def own_of(self, row: str) -> sql.Composed:
        """Its column of a row of the table."""
        return sql.SQL("{}.{}").format(sql.SQL(row), self.own)

    def read(self, text: sql.Composable) -> sql.Composed:
        """A text as the column reads it."""
        full = sql.SQL(self.column.type)
        if self.column.type == "text":
            return sql.SQL("({})").format(text)
        if self.column.converted:
            return sql.SQL("(ARRAY[{}]::text::{}[])[1]").format(text, full)
        return sql.SQL("({})::{}").format(text, full)

    def spell(self, text: sql.Composable) -> sql.Composed:
        """The one spelling of a value, so that `05` and `5` are one number."""
        return sql.SQL("({})::text").format(self.read(text))

    def spelled(self, row: str) -> sql.Composed:
        """The spelling of the value that a row of temporary tables has."""
        return sql.SQL("({})::text").format(self.of(row))

    @property
    def is_text(self) -> bool:
        """Whether the column takes every text as it is."""
        return self.column.type == "text"

    @property
    def is_simple(self) -> bool:
        return self.column.type in _SIMPLE

    @property
    def is_ordered(self) -> bool:
        return self.column.free in _ORDERED

    @property
    def misfit(self) -> sql.Composed:
        """Whether the column would change the text `x.value`; an error of the server if it cannot read it."""
        changes = MappedColumn(VALUE, "text", self.column).changes("x")
        unread = sql.SQL("({} IS NULL)").format(self.read(sql.Identifier("x", VALUE)))
        return sql.SQL("(({}) OR ({}))").format(unread, changes) if changes else sql.Composed([unread])

    def matches(self, mine: sql.Composable, texts: sql.Composable) -> sql.Composed:
        """Whether a value, or one of several, is one of some spellings (text[])."""
        if self.is_multi:
            if self.is_simple:
                array = sql.SQL(self.column.type + "[]")
                return sql.SQL("({} && ({})::{})").format(mine, texts, array)
            return sql.SQL("(({})::text[] && ({}))").format(mine, texts)
        if self.is_simple:
            return sql.SQL("({} = ANY (({})::{}))").format(mine, texts, sql.SQL(self.column.type + "[]"))
        return sql.SQL("(({})::text = ANY ({}))").format(mine, texts)

    @property
    def is_set(self) -> sql.Composed:
        """Whether a row `t` of the table has a value."""
        if self.is_multi:
            return sql.SQL("(cardinality({}) > 0)").format(self.own_of("t"))
        return sql.SQL("({} IS NOT NULL)").format(self.own_of("t"))


@dataclass(frozen=True)
class Entity:
    """The entity of a stream: its declaration, and its table."""

    layout: Layout
    target: Target

    @cached_property
    def key(self) -> tuple[Field, ...]:
        return self._fields(0, [column.name for column in self.layout.key])

    @cached_property
    def scalars(self) -> tuple[Field, ...]:
        return self._fields(len(self.key), [column.name for column in self.layout.scalars])

    @cached_property
    def multi(self) -> tuple[Field, ...]:
        start = len(self.key) + len(self.scalars)
        found = self._fields(start, [column.name for column in self.layout.multi])
        return tuple(replace(field, column=_element(field.column), is_multi=True) for field in found)

    def _fields(self, start: int, names: Iterable[str]) -> tuple[Field, ...]:
        by_name = {column.name: column for column in self.target.columns}
        return tuple(Field(number, name, by_name[name]) for number, name in enumerate(names, start))

    @property
    def fields(self) -> tuple[Field, ...]:
        """What documents may change."""
        return (*self.scalars, *self.multi)

    @property
    def columns(self) -> tuple[Field, ...]:
        return (*self.key, *self.fields)

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    def named(self, names: Iterable[str]) -> list[Field]:
        return [self.by_name[name] for name in names]

    # ------------------------------------------------------------ fan-outs

    @property
    def fan_outs(self) -> tuple[FanOut, ...]:
        """A fan-out that sets what another one matches on comes first."""
        return self.layout.shape.fan_outs

    @cached_property
    def leading(self) -> tuple[int, ...]:
        """The numbers of fan-outs that set what another one matches on."""
        matched = {name for fan_out in self.fan_outs for name in fan_out.match}
        return tuple(n for n, fan_out in enumerate(self.fan_outs) if not matched.isdisjoint(fan_out.fields))

    @cached_property
    def related(self) -> list[Field]:
        """The fields that fan-outs match on or set."""
        names = [name for fan_out in self.fan_outs for name in (*fan_out.match, *fan_out.fields)]
        return self.named(dict.fromkeys(names))

    def affected_by(self, name: str) -> list[Field]:
        """A field, and the fields that fan-outs decide again when it is written."""
        names = [name]
        for fan_out in self.fan_outs:
            if not {*names}.isdisjoint((*fan_out.match, *fan_out.fields)):
                names += [each for each in fan_out.fields if each not in names]
        return self.named(names)

    def deciding(self, name: str) -> list[Field]:
        """The fields that a fan-out's field depends on, through other fan-outs too."""
        names: list[str] = [name]
        for fan_out in reversed(self.fan_outs):
            if not {*names}.isdisjoint(fan_out.fields):
                names += [each for each in fan_out.match if each not in names]
        return self.named(names[1:])

    # ------------------------------------------------------------ SQL over several columns

    def keys_of(self, row: str, *, own: bool = False) -> sql.Composed:
        return _commas(each.own_of(row) if own else each.of(row) for each in self.key)

    def key_texts(self, row: str) -> sql.Composed:
        """The key as text[]."""
        return sql.SQL("ARRAY[{}]::text[]").format(_commas(each.spelled(row) for each in self.key))

    def same_key(self, row: str, other: str) -> sql.Composed:
        """Whether a row of a temporary table has the key of a row of the table."""
        return sql.SQL(" AND ").join(
            sql.SQL("{} {} {}").format(each.of(row), _equals(each.column), each.own_of(other)) for each in self.key
        )

    def match_of(self, fan_out: FanOut, row: str) -> sql.Composed:
        """The spellings of an entity's match, as text[]; a null in it equals nothing."""
        return sql.SQL("ARRAY[{}]::text[]").format(_commas(each.spelled(row) for each in self.named(fan_out.match)))

    def pick(self, fields: Sequence[Field], given: str, *, what: str) -> sql.Composed:
        """By the field that a row names: its value `x.value` spelled (`what` = spell), or a test of it (misfit)."""
        value = sql.Identifier("x", VALUE)
        cases = [
            sql.SQL("WHEN {} THEN {}").format(
                sql.Literal(each.number), each.spell(value) if what == "spell" else each.misfit
            )
            for each in fields
        ]
        otherwise = value if what == "spell" else sql.SQL("false")
        if not cases:
            return sql.Composed([otherwise])
        return sql.SQL("CASE {} {} ELSE {} END").format(sql.SQL(given), sql.SQL(" ").join(cases), otherwise)


def _element(column: TargetColumn) -> TargetColumn:
    """An array column as if it held one of its elements."""

    def strip(type_: str) -> str:
        return type_.removesuffix("[]")

    base = strip(column.base) if column.base else None
    return replace(column, type=strip(column.type), free=strip(column.free), base=base)


def _equals(column: TargetColumn) -> sql.Composable:
    return sql.SQL("OPERATOR({})").format(sql.SQL(column.equals)) if column.equals else sql.SQL("=")


def _commas(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
