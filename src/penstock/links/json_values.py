"""Values of JSON as values of a column's type, exactly or not at all; whole columns at once where every value fits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal as Exact
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.core.types import FLOATS, INTEGERS, Decimal, Plain, Type, is_nested, parse_type

if TYPE_CHECKING:
    import pyarrow as pa

_MICROS = 1_000_000
#: microseconds since 1970 of the years that a timestamp may have
_EARLIEST, _LATEST = (
    int(datetime(year, month, day, tzinfo=UTC).timestamp()) * _MICROS
    for year, month, day in ((1, 1, 1), (9999, 12, 31))
)
_DIGITS = re.compile(r"-?\d+")


@cache
def decoder_of(fields: tuple[str, ...] | None, *, exact: bool = False, texts: frozenset[str] = frozenset()) -> Any:
    """A decoder of records that skips all other fields; with `exact`, numbers with a point become decimals.

    The values of `texts` are left as their own JSON text, which keeps every digit.
    """
    import msgspec

    make: Any = TypedDict
    types = {name: msgspec.Raw if name in texts else Any for name in fields or ()}
    wanted: Any = Any if fields is None else make("Fields", types, total=False)
    return msgspec.json.Decoder(wanted, float_hook=Exact if exact else None)


def check_column_type(value: str) -> str:
    """The string form of a type that a column of JSON values can have; ValueError for any other."""
    type_ = parse_type(value)
    if is_nested(type_) or type_ in (Plain.NULL, Plain.BINARY, Plain.UUID) or str(type_).startswith("fixed"):
        raise ValueError(f"{value} is not supported as a column type; use json for objects and lists")
    return value


def make_array(values: Sequence[Any], type_: Type, storage: pa.DataType, steps: int) -> pa.Array | None:
    """The column, if every value is of the type's own kind and in its range; None: each must be converted by itself."""
    import pyarrow as pa

    kinds = set(map(type, values)) - {NoneType}
    try:
        if type_ in INTEGERS and kinds <= {int}:
            return pa.array(values, storage)
        if (type_ is Plain.STRING and kinds <= {str}) or (type_ is Plain.BOOL and kinds <= {bool}):
            return pa.array(values, storage)
        if type_ in FLOATS and kinds <= {float}:
            return pa.array(values, storage)
        if type_ in (Plain.TIMESTAMPTZ, Plain.TIMESTAMP) and kinds <= {int}:
            return _timestamps(values, storage, steps)
        if isinstance(type_, Decimal) and (kinds <= {str} or kinds <= {int, Exact}):
            return pa.array(values).cast(storage) if str in kinds else pa.array(values, storage)
        if type_ in (Plain.TIMESTAMPTZ, Plain.TIMESTAMP, Plain.DATE) and kinds <= {str}:
            return _in_the_calendar(pa.array(values, pa.string()).cast(storage))
        if type_ is Plain.JSON and all(kind.__name__ == "Raw" for kind in kinds):
            return _texts(values, storage)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        pass  # the conversion of each value finds the one that does not fit
    return None


def _in_the_calendar(times: pa.Array) -> pa.Array | None:
    """Timestamps or dates, if all are in the years from 1 on; Arrow knows a year 0 too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first = pc.min(times.cast(pa.timestamp("us", "UTC") if pa.types.is_date(times.type) else times.type)).value
    return times if first is None or first >= _EARLIEST else None


def _texts(values: Sequence[Any], storage: pa.DataType) -> pa.Array:
    """Values that are JSON texts; null is no value."""
    import pyarrow as pa

    texts = [None if value is None or (text := bytes(value)) == b"null" else text for value in values]
    return pa.array(texts, pa.binary()).cast(storage)


def _timestamps(values: Sequence[int | None], storage: pa.DataType, steps: int) -> pa.Array | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.multiply_checked(pa.array(values, pa.int64()), _MICROS // steps)
    bounds = pc.min_max(micros).as_py()
    if bounds["min"] is not None and not _EARLIEST <= bounds["min"] <= bounds["max"] < _LATEST:
        return None
    return micros.cast(storage)


def converter(type_: Type, steps: int) -> Callable[[Any], Any]:
    """How a JSON value becomes a value of a type; ValueError or TypeError where it has no exact form.

    A time that is a number has this many `steps` in a second.
    """
    if type_ in INTEGERS:
        return _integer
    if type_ in FLOATS:
        return _number
    if isinstance(type_, Decimal):
        return lambda value: _decimal(value, type_)
    plain: dict[object, Callable[[Any], Any]] = {
        Plain.BOOL: _boolean,
        Plain.STRING: _string,
        Plain.JSON: _json_text,
        Plain.DATE: lambda value: datetime.fromisoformat(_string_only(value)).date(),
        Plain.TIMESTAMPTZ: lambda value: _moment(value, steps),
        Plain.TIMESTAMP: lambda value: _moment(value, steps).replace(tzinfo=None),
    }
    if type_ not in plain:
        raise ValueError(f"no JSON value has type {type_}")
    return plain[type_]


def _integer(value: Any) -> int:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    if isinstance(value, bool) or value != int(value):
        raise ValueError(value)
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(value)
    return float(value)


def _decimal(value: Any, type_: Decimal) -> Exact:
    if isinstance(value, bool | float):
        raise ValueError(value)
    exact = Exact(value)
    if exact != round(exact, type_.scale):
        raise ValueError(value)
    return exact


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(value)


def _string_only(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _json_text(value: Any) -> str | None:
    """A value as JSON, with all its digits."""
    import msgspec

    if isinstance(value, msgspec.Raw):
        text = bytes(value).decode()
        return None if text == "null" else text
    _require_finite(value)
    return msgspec.json.Encoder(decimal_format="number").encode(value).decode()


def _require_finite(value: Any) -> None:
    """ValueError for what JSON has no number for; Python's own decoder takes it."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(value)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_finite(each)


def _moment(value: Any, steps: int) -> datetime:
    """A timestamp: RFC 3339 text, or a number of steps since 1970, to the microsecond."""
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        found = datetime.fromisoformat(value)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    if isinstance(value, bool):
        raise ValueError(value)
    number = Exact(value) if not isinstance(value, float) else Exact(repr(value))
    micros = int(number * 1_000_000 / steps)
    seconds, rest = divmod(micros, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
