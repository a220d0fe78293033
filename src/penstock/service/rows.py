"""Checks rows before they are taken: each must be JSON that readers parse, and fit its stream. Nothing is converted.

Columns are checked whole, as the `wal` source reads them; single values only where one does not fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal as Exact
from typing import Any

import msgspec

from penstock.core.names import nearest
from penstock.core.ops import wire
from penstock.core.sizes import shown_size
from penstock.core.types import Plain, Type, parse_type
from penstock.links.arrow_types import arrow_type
from penstock.links.json_values import converter, decoder_of, make_array
from penstock.service.problems import Problem

#: the field with the kind of a row, and its values
CHANGE = "_change"
CHANGES = ("upsert", "delete")
#: characters of rows that are parsed at the same time
_GROUP_CHARACTERS = 4 << 20
#: objects and arrays within each other: readers parse rows with a stack of their own
MOST_DEPTH = 100
#: characters of a field's name in an answer
_MOST_NAME = 100
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: a decimal cannot be made of all of them
_LONG_EXPONENT = re.compile(r"[eE][+-]?\d{4}")
_BLANK = " \t\r"
#: numbers that stand for times are seconds
_STEPS = 1


class Unfit(Exception):
    """A row that does not fit."""

    def __init__(self, row: int, field: str | None, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.field = field
        self.reason = reason


class NotJson(Exception):
    """A row that cannot be parsed."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RowLimits:
    rows: int = 1_000_000
    row_bytes: int = 8 << 20
    fields: int = 2000


@dataclass(frozen=True)
class RowCheck:
    """What the rows of a stream must be."""

    #: rows or ops
    kind: str = "rows"
    #: (name, type's string form)
    columns: tuple[tuple[str, str], ...] = ()
    key: tuple[str, ...] = ()
    #: other fields are refused
    is_closed: bool = False
    limits: RowLimits = field(default_factory=RowLimits)

    def check(self, rows: Sequence[str]) -> None:
        """Problem 400, 413 or 422 with the first row that is not taken."""
        if len(rows) > self.limits.rows:
            raise Problem(
                413, f"the batch has {len(rows):,} rows; at most {self.limits.rows:,} are taken", "send smaller batches"
            )
        try:
            for first, group in _groups(rows):
                self._check_group(first, group)
        except NotJson as wrong:
            raise Problem(
                400, f"row {wrong.row}: {wrong.reason}", "correct the row and send the batch again", row=wrong.row
            ) from None
        except Unfit as wrong:
            where = f"row {wrong.row}" + (f", field {wrong.field}" if wrong.field is not None else "")
            raise Problem(
                422,
                f"{where}: {wrong.reason}. Nothing of the batch was kept",
                "correct the row, or the stream's declaration at the receiver; then send the batch again",
                row=wrong.row,
                field=wrong.field,
                reason=wrong.reason,
            ) from None

    def _check_group(self, first: int, group: Sequence[str]) -> None:
        for number, row in enumerate(group, first):
            if len(row) > self.limits.row_bytes // 4 and len(row.encode()) > self.limits.row_bytes:
                raise Unfit(number, None, f"it is larger than {shown_size(self.limits.row_bytes)}")
        values = _parse(first, group, exact=any(type_.startswith("decimal") for _, type_ in self.columns))
        if self.kind == "ops":
            for number, value in enumerate(values, first):
                if (reason := wire.refusal(value)) is not None:
                    raise Unfit(number, None, reason)
            return
        self._check_fields(first, values)
        for name, type_ in self.columns:
            self._check_column(first, name, parse_type(type_), [row.get(name) for row in values])
        if not self.columns:
            for name in self.key:
                _require_key(first, name, [row.get(name) for row in values])

    def _check_fields(self, first: int, values: Sequence[Any]) -> None:
        if set(map(type, values)) - {dict}:
            number = next(number for number, value in enumerate(values, first) if type(value) is not dict)
            raise Unfit(number, None, f"a row is a JSON object, not {kind_of(values[number - first])}")
        if max(map(len, values)) > self.limits.fields:
            number = next(number for number, value in enumerate(values, first) if len(value) > self.limits.fields)
            count = len(values[number - first])
            raise Unfit(number, None, f"it has {count:,} fields; at most {self.limits.fields:,} are taken")
        if not self.columns:
            return
        declared = {name for name, _ in self.columns}
        if self.is_closed and (extra := set().union(*values) - declared - {CHANGE}):
            number, name = next(
                (number, name) for number, value in enumerate(values, first) for name in value if name in extra
            )
            near = nearest(name, declared)
            raise Unfit(number, shown_field(name), "it is not declared" + (f"; did you mean '{near}'?" if near else ""))
        if any(CHANGE in value for value in values):
            for number, value in enumerate(values, first):
                if CHANGE in value and value[CHANGE] not in CHANGES:
                    raise Unfit(number, CHANGE, f"it must be one of: {', '.join(CHANGES)}")

    def _check_column(self, first: int, name: str, type_: Type, values: Sequence[Any]) -> None:
        if name in self.key:
            _require_key(first, name, values)
        if type_ is Plain.JSON:
            return
        arrow = arrow_type(type_)
        storage = getattr(arrow, "storage_type", arrow)
        if make_array(values, type_, storage, _STEPS) is not None:
            return
        convert = converter(type_, _STEPS)
        if _fits(convert, values, storage):
            return
        for number, value in enumerate(values, first):
            if not _fits(convert, [value], storage):
                raise Unfit(number, shown_field(name), f"{kind_of(value)} that does not fit {type_}")


def _fits(convert: Callable[[Any], Any], values: Sequence[Any], storage: Any) -> bool:
    import pyarrow as pa

    try:
        pa.array([None if value is None else convert(value) for value in values], storage)
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
        return False
    return True


def _require_key(first: int, name: str, values: Sequence[Any]) -> None:
    if None in values:
        raise Unfit(
            first + values.index(None), shown_field(name), "it is part of the primary key, and is missing or null"
        )


# ---------------------------------------------------------------- parsing


def _groups(rows: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows in groups that are parsed at the same time, each with the number of its first row."""
    first, group, size = 1, list[str](), 0
    for row in rows:
        if group and size + len(row) > _GROUP_CHARACTERS:
            yield first, group
            first, group, size = first + len(group), [], 0
        group.append(row)
        size += len(row)
    if group:
        yield first, group


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# As readers of the log parse, where their fast decoder does not take a row: what is taken here must not stop them.
_DECODER = json.JSONDecoder(parse_float=Exact, parse_constant=_refuse_constant)
_SCAN: Callable[[str, int], tuple[Any, int]] = json.scanner.make_scanner(_DECODER)  # type: ignore[attr-defined]  # untyped


def _parse(first: int, group: Sequence[str], *, exact: bool) -> list[Any]:
    for number, row in enumerate(group, first):
        if row.count("[") + row.count("{") > MOST_DEPTH:
            _require_shallow(number, row)
    if not any(map(_LONG_EXPONENT.search, group)):
        decode = decoder_of(None, exact=exact).decode
        with suppress(msgspec.MsgspecError):
            return [decode(row) for row in group]
    return _parse_one_by_one(first, group)


def _parse_one_by_one(first: int, group: Sequence[str]) -> list[Any]:
    """The same where a row is not taken, or only by Python's own decoder."""
    values = []
    for number, row in enumerate(group, first):
        text = row.strip(_BLANK)
        try:
            value, end = _SCAN(text, 0)
        except StopIteration:
            raise NotJson(number, "it is not JSON") from None
        except json.JSONDecodeError as error:
            raise NotJson(number, f"it is not JSON at character {error.pos + 1}: {error.msg}") from None
        except (ValueError, ArithmeticError, RecursionError):
            raise NotJson(number, "it has a number that is no JSON, or has too many digits") from None
        if end != len(text):
            raise NotJson(number, f"it is not JSON at character {end + 1}: one row was expected in the line")
        if _SURROGATE.search(text):
            _require_characters(number, value)
        values.append(value)
    return values


def _require_shallow(number: int, text: str) -> None:
    """Unfit if objects and arrays are too deep within each other. Brackets within strings do not count."""
    depth = 0
    for found in _BRACKETS.finditer(text):
        bracket = found[0]
        if bracket in "[{":
            depth += 1
            if depth > MOST_DEPTH:
                raise Unfit(number, None, f"its values are nested more than {MOST_DEPTH} deep")
        elif bracket in "]}":
            depth -= 1


_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]')


def _require_characters(number: int, value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise NotJson(number, "a string has half of a surrogate pair, which is no character") from None


def kind_of(value: object) -> str:
    """The JSON type of a value, for a message: never the value itself."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, Exact | float):
        return "a number with a fraction or an exponent"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def shown_field(name: str) -> str:
    cut = name if len(name) <= _MOST_NAME else f"{name[:_MOST_NAME]}…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()


def check_of(document: Mapping[str, Any], limits: RowLimits) -> RowCheck:
    """The check of a declared schema; see `schemas`."""
    return RowCheck(
        document["takes"],
        tuple((name, type_) for name, type_ in document["columns"]),
        tuple(document["primary_key"]),
        document["extra_fields"] == "refuse",
        limits,
    )
