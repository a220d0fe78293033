"""A stream's filter, in PyIceberg's row-filter language, with the three-valued logic of SQL: NULL is no match.

It is evaluated by Arrow on columns as they travel (see `projection`), so a uuid is compared as its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    BoundPredicate,
    IsNull,
    LiteralPredicate,
    NotNull,
    Or,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import AboveMax, BelowMin, DecimalLiteral, Literal, StringLiteral
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import (
    BooleanExpressionVisitor,
    BoundBooleanExpressionVisitor,
    bind,
    extract_field_ids,
    rewrite_not,
    visit,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyparsing import ParseBaseException

from penstock.errors import StreamRefused
from penstock.lake import names


@dataclass(frozen=True)
class Filter:
    """A filter that is bound to a table's schema."""

    expression: BooleanExpression
    #: the columns it looks at
    columns: tuple[str, ...]
    #: the names that lead to each field id
    paths: Mapping[int, tuple[str, ...]]

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows match; NULL where that is not known, which is no match."""
        return visit(self.expression, _Mask(batch, self.paths))


def read_filter(text: str, schema: Schema) -> Filter:
    """StreamRefused if it cannot be parsed, or names a column or a value that the table does not know."""
    outer = Schema(*(field for field in schema.fields if field.name not in names.INTERNAL))
    try:
        # Without NOT, and each comparison with its own NULL check: what PyIceberg makes of NOT IN, and of a
        # comparison with a number that is out of the column's range, would let NULL pass.
        bound = bind(outer, visit(rewrite_not(parse(text)), _Guarded(outer)), case_sensitive=True)
    except ParseBaseException as error:
        raise _refused(text, f"syntax error at character {error.column}") from error
    except (TypeError, ValueError) as error:
        raise _refused(text, next(iter(str(error).splitlines()), "it does not fit the table")) from error
    looked_at = extract_field_ids(bound)
    columns = tuple(field.name for field in outer.fields if Schema(field).field_ids & looked_at)
    return Filter(bound, columns, dict(_paths(outer.fields, ())))


def _refused(text: str, reason: str) -> StreamRefused:
    return StreamRefused(
        f"the filter {text!r} cannot be used: {reason}",
        next_step="correct it; it is written like: status = 'paid' and amount > 10 and note is not null",
    )


class _Guarded(BooleanExpressionVisitor[BooleanExpression]):
    """The same expression, in which no predicate but IS NULL is true of NULL. There is no NOT in it any more.

    Literals are those of the column's type, or refused: PyIceberg alone takes 1.5 for 2 in a whole number's column, and
    a number that is out of a column's range for the last one that is in it.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_true(self) -> BooleanExpression:
        return parse("true")

    def visit_false(self) -> BooleanExpression:
        return parse("false")

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        raise NotImplementedError("NOT was rewritten")

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        if isinstance(predicate, IsNull):
            return predicate
        type_ = predicate.term.bind(self._schema).ref().field.field_type
        fitting: BooleanExpression = predicate
        if isinstance(predicate, LiteralPredicate):
            fitting = type(predicate)(predicate.term, _fitting(predicate.literal, type_))
        elif isinstance(predicate, SetPredicate):
            known = [_fitting(literal, type_) for literal in predicate.literals]
            fitting = type(predicate)(predicate.term, [each for each in known if not _beyond(each, type_)])
        return And(fitting, NotNull(term=predicate.term))

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        raise NotImplementedError("nothing is bound yet")


def _fitting(literal: Literal[Any], type_: IcebergType) -> Literal[Any]:
    """A literal as PyIceberg can take it for a type; ValueError where it would take another value."""
    value = literal.value
    if isinstance(literal, DecimalLiteral) and isinstance(type_, DecimalType):
        rescaled = Decimal(value).quantize(Decimal(1).scaleb(-type_.scale), context=Context(prec=200))
        if rescaled != value:
            raise ValueError(f"{value} has more decimal places than {type_}")
        return DecimalLiteral(rescaled)
    if isinstance(literal, DecimalLiteral) and isinstance(type_, IntegerType | LongType) and value % 1:
        raise ValueError(f"{value} is not a whole number, and the column has whole numbers")
    if isinstance(literal, StringLiteral) and isinstance(type_, TimestampType | TimestamptzType):
        date, _, clock = str(value).replace("T", " ", 1).partition(" ")
        return StringLiteral(f"{date}T{clock or '00:00:00'}")
    return literal


def _beyond(literal: Literal[Any], type_: IcebergType) -> bool:
    """Whether no value of a type can be equal to a literal."""
    found = literal.to(type_)
    if isinstance(type_, DecimalType):
        return bool(abs(found.value) >= Decimal(10) ** (type_.precision - type_.scale))
    return isinstance(found, AboveMax | BelowMin)


def _make_comparison(function: str) -> Any:
    """Make a method of `_Mask` that compares a column with a literal by one of Arrow's functions."""

    def visit(self: _Mask, term: Any, literal: Literal[Any]) -> pa.Array:
        column = self._column(term)
        # A decimal as it is: it may have more digits than the column.
        type_ = None if pa.types.is_decimal(column.type) else column.type
        return pc.call_function(function, [column, pa.scalar(_travelling(literal.value, column.type), type_)])

    return visit


class _Mask(BoundBooleanExpressionVisitor[pa.Array]):
    """Which rows of a batch match. Not as one Arrow expression: running those does not promise to keep the order."""

    def __init__(self, batch: pa.RecordBatch, paths: Mapping[int, tuple[str, ...]]) -> None:
        self._batch = batch
        self._paths = paths

    def _column(self, term: Any) -> pa.Array:
        name, *inner = self._paths[term.ref().field.field_id]
        column = self._batch.column(name)
        return pc.struct_field(column, inner) if inner else column

    def _all(self, value: bool) -> pa.Array:
        return pa.repeat(pa.scalar(value), self._batch.num_rows)

    def visit_in(self, term: Any, literals: set[Any]) -> pa.Array:
        column = self._column(term)
        values = pa.array([_travelling(value, column.type) for value in literals], column.type)
        return pc.is_in(column, value_set=values)

    def visit_not_in(self, term: Any, literals: set[Any]) -> pa.Array:
        return pc.invert(self.visit_in(term, literals))

    def visit_is_nan(self, term: Any) -> pa.Array:
        return pc.is_nan(self._column(term))

    def visit_not_nan(self, term: Any) -> pa.Array:
        return pc.invert(self.visit_is_nan(term))

    def visit_is_null(self, term: Any) -> pa.Array:
        return pc.is_null(self._column(term))

    def visit_not_null(self, term: Any) -> pa.Array:
        return pc.is_valid(self._column(term))

    visit_equal = _make_comparison("equal")
    visit_not_equal = _make_comparison("not_equal")
    visit_greater_than = _make_comparison("greater")
    visit_greater_than_or_equal = _make_comparison("greater_equal")
    visit_less_than = _make_comparison("less")
    visit_less_than_or_equal = _make_comparison("less_equal")

    def visit_starts_with(self, term: Any, literal: Literal[Any]) -> pa.Array:
        return pc.starts_with(self._column(term), literal.value)

    def visit_not_starts_with(self, term: Any, literal: Literal[Any]) -> pa.Array:
        return pc.invert(self.visit_starts_with(term, literal))

    def visit_true(self) -> pa.Array:
        return self._all(True)

    def visit_false(self) -> pa.Array:
        return self._all(False)

    def visit_not(self, child_result: pa.Array) -> pa.Array:
        return pc.invert(child_result)

    def visit_and(self, left_result: pa.Array, right_result: pa.Array) -> pa.Array:
        return pc.and_kleene(left_result, right_result)

    def visit_or(self, left_result: pa.Array, right_result: pa.Array) -> pa.Array:
        return pc.or_kleene(left_result, right_result)


def _paths(fields: tuple[NestedField, ...], above: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Field ids with the names that lead to them through structs."""
    for field in fields:
        path = (*above, field.name)
        yield field.field_id, path
        if isinstance(field.field_type, StructType):
            yield from _paths(field.field_type.fields, path)


def _travelling(value: Any, type_: pa.DataType) -> Any:
    """Convert a literal's value to the column's; a uuid, which is bound as bytes, to its text."""
    return str(UUID(bytes=value)) if pa.types.is_string(type_) and isinstance(value, bytes) else value
