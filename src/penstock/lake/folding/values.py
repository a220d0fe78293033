"""The values of ops in Spark SQL: from JSON to the text of a declared type, and from there to a column and back.

A value travels as text, the same text for equal values, so that last writes, sets and matches need no type of their
own. What does not convert without loss has no text (NULL), and its op goes into quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.types import Decimal, Plain, Type

_INTEGERS = {Plain.INT8: "tinyint", Plain.INT16: "smallint", Plain.INT32: "int", Plain.INT64: "bigint"}
_FLOATS = {Plain.FLOAT32: "float", Plain.FLOAT64: "double"}
_DAY = "[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
_TIME = "[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
_ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_NUMBER = "[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?|NaN|-?Infinity"


def literal(text: str) -> str:
    """A string as Spark SQL reads it, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def is_supported(type_: Type) -> bool:
    """Whether a field of this type can be in a state table."""
    plain = (*_INTEGERS, *_FLOATS, Plain.BOOL, Plain.STRING, Plain.JSON, Plain.DATE, Plain.TIMESTAMP, Plain.TIMESTAMPTZ)
    return type_ in plain or (isinstance(type_, Decimal) and 0 <= type_.scale <= type_.precision <= 38)


def text_of_json(kind: str, raw: str, type_: Type) -> str:
    """SQL for the text of a JSON value; `kind`, `raw`: SQL for its variant type and its string."""
    string = f"{kind} = 'STRING'"
    number = f"({kind} in ('BIGINT', 'DOUBLE') or {kind} like 'DECIMAL%')"
    if type_ in _INTEGERS:
        return f"if({kind} = 'BIGINT', cast(try_cast({raw} as {_INTEGERS[type_]}) as string), null)"
    if type_ in _FLOATS:
        as_type = f"try_cast({raw} as {_FLOATS[type_]})"
        infinite = f"(abs({as_type}) = double('Infinity') and {raw} not like '%Infinity')"
        given = f"({number} or {string} and {raw} rlike '^({_NUMBER})$') and not {infinite}"
        # 0.0 and -0.0 are one value, and NaN has one text.
        return f"if({given}, cast({as_type} + 0 as string), null)"
    if isinstance(type_, Decimal):
        exact = f"({string} or {kind} = 'BIGINT' or {kind} like 'DECIMAL%')"
        digits = f"{raw} rlike '^[+-]?[0-9]+([.][0-9]{{0,{type_.scale}}}0*)?$'"
        value = f"try_cast({raw} as decimal({type_.precision},{type_.scale}))"
        return f"if({exact} and {digits}, cast({value} as string), null)"
    if type_ is Plain.BOOL:
        return f"if({kind} in ('BOOLEAN', 'STRING') and {raw} in ('true', 'false'), {raw}, null)"
    if type_ is Plain.DATE:
        return f"if({string} and {raw} rlike '^{_DAY}$', cast(try_cast({raw} as date) as string), null)"
    if type_ is Plain.TIMESTAMP:
        return f"if({string} and {raw} rlike '^{_DAY}{_TIME}$', cast(try_cast({raw} as timestamp_ntz) as string), null)"
    if type_ is Plain.TIMESTAMPTZ:
        # In microseconds: a text would be in the session's zone, where an hour may come twice.
        instant = f"unix_micros(try_cast({raw} as timestamp))"
        return f"if({string} and {raw} rlike '^{_DAY}{_TIME}{_ZONE}$', cast({instant} as string), null)"
    if type_ is Plain.JSON:
        return raw
    return f"if({string}, {raw}, null)"


def text_of_column(column: str, type_: Type) -> str:
    """SQL for the text of a typed value."""
    if type_ is Plain.TIMESTAMPTZ:
        return f"cast(unix_micros({column}) as string)"
    if type_ in (Plain.STRING, Plain.JSON):
        return column
    return f"cast({column} as string)"


def column_of_text(text: str, type_: Type, spark_type: str) -> str:
    """SQL for the typed value of a text; `spark_type`: the type of the table's column."""
    if type_ is Plain.TIMESTAMPTZ:
        return f"timestamp_micros(try_cast({text} as bigint))"
    if type_ in (Plain.STRING, Plain.JSON):
        return text
    return f"try_cast({text} as {spark_type})"


def join_texts(texts: Sequence[str]) -> str:
    """SQL for one text for several: of a key, or of a fan-out's match. NULL if one of them is."""
    if len(texts) == 1:
        return texts[0]
    whole = " and ".join(f"{text} is not null" for text in texts)
    return f"if({whole}, to_json(array({', '.join(texts)})), null)"


def split_text(text: str, count: int) -> list[str]:
    """SQL for each of the texts that `join_texts` has joined."""
    if count == 1:
        return [text]
    return [f"from_json({text}, 'array<string>')[{place}]" for place in range(count)]
