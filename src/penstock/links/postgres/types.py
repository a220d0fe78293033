"""Which Arrow type each Postgres type becomes, and what to ask of the server so that nothing is lost.

The table below is the whole map; whatever is not in it travels as the server's own text. Types are named as
pyarrow prints them, so that planning need not import it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.links.postgres.literals import typed

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Form:
    """How a column of one Postgres type travels."""

    #: the Arrow type, as pyarrow prints it
    arrow: str
    #: ask the server for its text, because the driver has no exact Arrow form for it
    as_text: bool = False
    #: the least and greatest value that fit the Arrow type; the driver would wrap others silently
    guard: tuple[str, str] | None = None


TEXT = Form("string", as_text=True)

#: by the name that `format_type` gives without a modifier
FORMS: dict[str, Form] = {
    "boolean": Form("bool"),
    "smallint": Form("int16"),
    "integer": Form("int32"),
    "bigint": Form("int64"),
    "real": Form("float"),
    "double precision": Form("double"),
    "text": Form("string"),
    "character varying": Form("string"),
    "character": Form("string"),
    "name": Form("string"),
    "json": Form("string"),
    "jsonb": Form("string"),
    "bytea": Form("binary"),
    "date": Form("date32[day]", guard=("0001-01-01", "9999-12-31")),
    "time without time zone": Form("time64[us]", guard=("00:00:00", "23:59:59.999999")),
    "timestamp without time zone": Form("timestamp[us]", guard=("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")),
    "timestamp with time zone": Form(
        "timestamp[us, tz=UTC]", guard=("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00")
    ),
}

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_MODIFIER = re.compile(r"\([^)]*\)")
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
#: the most digits that decimal128 holds
MOST_DIGITS = 38

#: bytes that a value of each Arrow type takes; strings and binaries are measured
_WIDTHS = {
    "bool": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float": 4,
    "double": 8,
    "date32[day]": 4,
    "time64[us]": 8,
    "timestamp[us]": 8,
    "timestamp[us, tz=UTC]": 8,
}
#: bytes of the offset that each string or binary value also takes
_OFFSET = 4


def bare(type_: str) -> str:
    """The type without its modifier: `timestamp(3) with time zone` is a `timestamp with time zone`."""
    return _MODIFIER.sub("", type_)


def form(type_: str) -> Form:
    """How a type, as `format_type` spells it, travels."""
    numeric = _NUMERIC.fullmatch(type_)
    if numeric:
        precision, scale = int(numeric[1]), int(numeric[2])
        # Postgres allows scales below 0 and above the precision; such numbers travel as text.
        return Form(f"decimal128({precision}, {scale})") if 0 <= scale <= precision <= MOST_DIGITS else TEXT
    return FORMS.get(bare(type_), TEXT)


def selected(name: str, type_: str) -> sql.Composed:
    """What stands in the SELECT list for a column."""
    column, how = sql.Identifier(name), form(type_)
    if how.as_text:
        return sql.SQL("{0}::text AS {0}").format(column)
    if how.guard:
        return sql.SQL("CASE WHEN {0} THEN {1} END AS {1}").format(_inside(name, type_, how.guard), column)
    return sql.SQL("{}").format(column)


def outside(name: str, type_: str) -> sql.Composed | None:
    """Whether a row's value does not fit the Arrow type, as SQL; None: every value does. NULL fits."""
    how = form(type_)
    return sql.SQL("({}) IS FALSE").format(_inside(name, type_, how.guard)) if how.guard else None


def size(name: str, type_: str) -> sql.Composed:
    """About how many bytes a row's value takes as Arrow, as SQL."""
    how, column = form(type_), sql.Identifier(name)
    if how.arrow not in ("string", "binary"):
        return sql.SQL("{}").format(sql.Literal(_WIDTHS.get(how.arrow, 16)))
    # Not pg_column_size: it would give the compressed size of a large value.
    value = sql.SQL("{}" if how.arrow == "binary" else "{}::text").format(column)
    return sql.SQL("coalesce(octet_length({}), 0) + {}").format(value, sql.Literal(_OFFSET))


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type that pyarrow prints as `name`; ValueError for one that this map never gives."""
    import pyarrow as pa

    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    known = (
        *(pa.bool_(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(
            pa.string(),
            pa.binary(),
            pa.date32(),
            pa.time64("us"),
            pa.timestamp("us"),
            pa.timestamp("us", "UTC"),
        ),
    )
    for candidate in known:
        if str(candidate) == name:
            return candidate
    raise ValueError(f"{name!r} is no Arrow type that a Postgres column becomes")


def _inside(name: str, type_: str, guard: tuple[str, str]) -> sql.Composed:
    low, high = (typed(bound, bare(type_)) for bound in guard)
    return sql.SQL("{} BETWEEN {} AND {}").format(sql.Identifier(name), low, high)
