"""Arrow's types and the vocabulary: one Arrow type for each, and every other Arrow type means one or none."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.types import types

from penstock.core.types import Decimal, Plain, Struct, Type, parse_type
from penstock.links.arrow_types import NoType, arrow_type, carried, type_of


def _has_arrow(type_: Type) -> bool:
    """Arrow has no map whose keys are NULL."""
    return "map<null" not in str(type_)


@given(types.filter(_has_arrow))
def test_an_arrow_type_means_the_type_that_it_was_made_for(type_: Type) -> None:
    assert type_of(arrow_type(type_)) == type_


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        *((other, "string") for other in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))),
        *((other, "binary") for other in (pa.large_binary(), pa.binary_view())),
        (pa.date64(), "date"),
        *((pa.time32(unit), "time") for unit in ("s", "ms")),
        *((pa.timestamp(unit), "timestamp") for unit in ("s", "ms", "us")),
        *((pa.timestamp(unit, "Europe/Berlin"), "timestamptz") for unit in ("s", "ms", "us")),
        (pa.timestamp("ns", "+01:30"), "timestamptz_ns"),
        *((made(5, 2), "decimal(5,2)") for made in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)),
        (pa.binary(16), "fixed(16)"),
        (pa.json_(), "json"),
        (pa.uuid(), "uuid"),
        *((other, "list<int8>") for other in (pa.large_list(pa.int8()), pa.list_(pa.int8(), 3))),
        (pa.list_(pa.field("element", pa.int8(), nullable=False)), "list<int8>"),
        (pa.struct([pa.field("a", pa.large_string(), nullable=False)]), "struct<a: string>"),
        (pa.map_(pa.string(), pa.field("x", pa.int8()), keys_sorted=True), "map<string, int8>"),
    ],
    ids=str,
)
def test_arrow_types_with_the_same_values_are_one_type(arrow: pa.DataType, text: str) -> None:
    assert str(type_of(arrow)) == text


@pytest.mark.parametrize(
    "arrow",
    [pa.duration("us"), pa.month_day_nano_interval(), pa.list_view(pa.int8()), pa.list_(pa.duration("s"))],
    ids=str,
)
def test_an_arrow_type_that_the_vocabulary_does_not_have(arrow: pa.DataType) -> None:
    with pytest.raises(NoType, match="there is no type for Arrow's"):
        type_of(arrow)


@given(st.lists(types.filter(_has_arrow), max_size=4))
def test_a_schema_of_the_vocabulary_is_carried_as_it_is(found: list[Type]) -> None:
    schema = pa.schema([(f"c{place}", arrow_type(type_)) for place, type_ in enumerate(found)])
    assert carried(schema) == schema


def test_other_columns_are_carried_in_the_one_arrow_type() -> None:
    given = pa.schema([pa.field("a", pa.large_string(), nullable=False), ("b", pa.timestamp("s", "Asia/Tokyo"))])
    wanted = pa.schema([pa.field("a", pa.string(), nullable=False), ("b", pa.timestamp("us", "UTC"))])
    assert carried(given) == wanted


def test_a_wide_decimal_has_256_bits() -> None:
    assert (arrow_type(Decimal(38, 2)), arrow_type(Decimal(39, 2))) == (pa.decimal128(38, 2), pa.decimal256(39, 2))
    assert arrow_type(Struct((("a", Plain.UUID),))) == pa.struct([("a", pa.uuid())])
    assert arrow_type(parse_type("list<int8>")) == pa.list_(pa.int8())
