"""Arrow arrays of JSON values whose Python types already fit: a whole column at once, no value by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import NoneType
from typing import TYPE_CHECKING, Any

from penstock.core.types import FLOATS, INTEGERS, Plain, Type
from penstock.sources.rest.times import Unit

if TYPE_CHECKING:
    import pyarrow as pa

_MICROS = 1_000_000
#: microseconds since 1970 of the years that a timestamp may have
_EARLIEST, _LATEST = (
    int(datetime(year, month, day, tzinfo=UTC).timestamp()) * _MICROS
    for year, month, day in ((1, 1, 1), (9999, 12, 31))
)


def make_array(values: Sequence[Any], type_: Type, storage: pa.DataType, unit: Unit) -> pa.Array | None:
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
            return _timestamps(values, storage, unit)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        pass  # the conversion of each value finds the one that does not fit
    return None


def _timestamps(values: Sequence[int | None], storage: pa.DataType, unit: Unit) -> pa.Array | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.multiply_checked(pa.array(values, pa.int64()), _MICROS // unit.ticks)
    bounds = pc.min_max(micros).as_py()
    if bounds["min"] is not None and not _EARLIEST <= bounds["min"] <= bounds["max"] < _LATEST:
        return None
    return micros.cast(storage)
