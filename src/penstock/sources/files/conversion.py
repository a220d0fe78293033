"""Columns of files as columns of a stream, inside a worker: exactly, or the value is bad. Uses Arrow's kernels."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal as Exact
from typing import TYPE_CHECKING, Literal

from penstock.core.types import INTEGERS, Decimal, Plain, Type
from penstock.links.arrow_types import arrow_type, type_of
from penstock.links.pipe import nulled
from penstock.shaping.types import MAX_DECIMAL_DIGITS, PLAIN, is_castable

if TYPE_CHECKING:
    import pyarrow as pa

Policy = Literal["fail", "null"]
_EXPONENT = r"^[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d{1,3}\z"
_NAMES = {type_: name for name, type_ in PLAIN.items()}
_TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?\z"


class BadValue(Exception):
    """A value without an exact form in its column's type."""

    def __init__(self, row: int, column: str, type_: Type, value: str) -> None:
        super().__init__(f"{value[:80]} has no exact form as {type_} (column {column})")
        #: within the batch
        self.row = row


def is_convertible(given: Type, wanted: Type) -> bool:
    """Whether some values of a type have an exact form in another."""
    if given == wanted:
        return True
    if given is Plain.STRING and wanted in (Plain.JSON, Plain.TIME):
        return True
    if given is Plain.NULL:
        return True
    return (name := _name(wanted)) is not None and is_castable(given, name)


def is_text_type(type_: Type) -> bool:
    """Whether text can be converted to values of a type."""
    return type_ not in (Plain.BINARY,) and is_convertible(Plain.STRING, type_)


def _name(type_: Type) -> str | None:
    """The type's name as `cast` of a shape has it."""
    if isinstance(type_, Decimal):
        fits = 1 <= type_.precision <= MAX_DECIMAL_DIGITS and 0 <= type_.scale <= type_.precision
        return str(type_) if fits else None
    return _NAMES.get(type_)


@dataclass(frozen=True, slots=True)
class Fitter:
    """Converts columns to their types."""

    policy: Policy

    def fit(self, name: str, array: pa.Array, type_: Type) -> pa.Array:
        """The column in its type; BadValue for the first value without an exact form, where it is not NULL."""
        import pyarrow as pa
        import pyarrow.compute as pc

        given = type_of(array.type)
        if given == type_:
            return carried(array, type_)
        if given is Plain.NULL:
            return pa.nulls(len(array), arrow_type(type_))
        found = _convert(array, given, type_)
        lost = found.null_count - array.null_count
        if lost:
            if self.policy == "fail":
                bad = pc.and_(pc.is_valid(array), pc.is_null(found))
                row = pc.index(bad, True).as_py()
                raise BadValue(row, name, type_, repr(array[row].as_py()))
            nulled(lost)
        return found


def carried(array: pa.Array, type_: Type) -> pa.Array:
    """The column in the one Arrow type of its type."""
    import pyarrow as pa

    wanted = arrow_type(type_)
    if array.type == wanted:
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(wanted, pa.BaseExtensionType):
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(wanted, storage.cast(wanted.storage_type))
    return array.cast(wanted)


def _convert(array: pa.Array, given: Type, type_: Type) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.shaping.casting import cast

    if type_ is Plain.TIME and given is Plain.STRING:
        fits = pc.match_substring_regex(array, _TIME)
        times = pc.if_else(fits, array, pa.scalar(None, array.type))
        # Arrow reads no times of day, but timestamps.
        stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01"), times, " ").cast(pa.timestamp("us"))
        return stamps.cast(arrow_type(type_))
    if type_ is Plain.JSON and given is Plain.STRING:
        valid = pa.array([_is_json(value) for value in array.to_pylist()], pa.bool_())
        return carried(pc.if_else(valid, array, pa.scalar(None, array.type)), type_)
    if given is Plain.STRING and (found := _plain_numbers(array, type_)) is not None:
        return found
    if isinstance(type_, Decimal) and given is Plain.STRING:
        array = _without_exponents(array)
    return carried(cast(array, type_), type_)


def _plain_numbers(array: pa.Array, type_: Type) -> pa.Array | None:
    """Numbers that are all written in digits, by Arrow's own cast, which is exact for them; None: some are not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if type_ in INTEGERS:
        pattern = r"^-?\d{1,18}\z"
    elif isinstance(type_, Decimal) and type_.scale > 0:
        pattern = rf"^-?\d{{1,30}}(\.\d{{1,{type_.scale}}})?\z"
    else:
        return None
    if pc.all(pc.match_substring_regex(array, pattern)).as_py() is False:
        return None
    try:
        return array.cast(arrow_type(type_))
    except pa.ArrowInvalid:
        return None  # one is out of range


def _without_exponents(array: pa.Array) -> pa.Array:
    """Numbers such as 1E-10, as Arrow itself writes small ones, in digits alone. The others are left as they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.fill_null(pc.match_substring_regex(array, _EXPONENT), False)
    if not pc.any(found).as_py():
        return array
    digits = [format(Exact(value), "f") for value in array.filter(found).to_pylist()]
    return pc.replace_with_mask(array, found, pa.array(digits, array.type))


def _is_json(value: str | None) -> bool:
    import msgspec

    try:
        msgspec.json.decode(value or "null", type=msgspec.Raw)
    except msgspec.MsgspecError:
        return False
    return True
