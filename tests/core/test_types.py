"""The vocabulary of types: one string form each, and no other string is read."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import strategies as st
from tests.core.strategies import given
from tests.core.types import types

from penstock.core.types import Decimal, Fixed, List, Map, Plain, Struct, Type, is_nested, parse_type


@given(types)
def test_a_type_is_read_back_from_its_string_form(type_: Type) -> None:
    assert parse_type(str(type_)) == type_


@given(types, types)
def test_two_types_have_two_string_forms(one: Type, other: Type) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(types)
def test_a_type_travels_to_a_worker(type_: Type) -> None:
    assert pickle.loads(pickle.dumps(type_)) == type_


@given(st.text('abint63<>(),: "\\struct', max_size=20))
def test_a_string_that_is_read_is_the_one_form(text: str) -> None:
    try:
        found = parse_type(text)
    except ValueError:
        return
    assert str(found) == text


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (Plain.INT64, "int64"),
        (Plain.TIMESTAMPTZ, "timestamptz"),
        (Decimal(12, 2), "decimal(12,2)"),
        (Decimal(3, -2), "decimal(3,-2)"),
        (Fixed(16), "fixed(16)"),
        (List(Plain.STRING), "list<string>"),
        (Map(Plain.STRING, List(Plain.INT8)), "map<string, list<int8>>"),
        (Struct((("a", Plain.INT8), ("b c", Decimal(5, 0)))), 'struct<a: int8, "b c": decimal(5,0)>'),
        (
            Struct((("é", Plain.INT8), ('"', Plain.BOOL), ("", Plain.BOOL))),
            'struct<"\\u00e9": int8, "\\"": bool, "": bool>',
        ),
        (Struct(()), "struct<>"),
    ],
)
def test_the_string_forms(type_: Type, text: str) -> None:
    assert str(type_) == text
    assert parse_type(text) == type_


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "int63",
            "INT64",
            " int64",
            "int64 ",
            "int32>",
            "int8 int8",
            "list",
            "list<>",
            "list<int32",
            "list<int32>>",
        ),
        *("list< int32>", "list<item: int32>", "int64<int8>", "struct<a int8>", "struct<a: int8,>", "struct<a: int8 >"),
        *("decimal", "decimal(3)", "decimal(03,1)", "decimal(3, 1)", "decimal(3,+1)", "fixed(-1)", "map<string>"),
        *('struct<"a": int8>', 'struct<"\\x": int8>', 'struct<"a: int8>', "decimal128(12, 2)", "timestamp[us]", "None"),
    ],
)
def test_no_other_string_is_a_type(text: str) -> None:
    with pytest.raises(ValueError, match="is not a type"):
        parse_type(text)


@given(types)
def test_nested_types(type_: Type) -> None:
    assert is_nested(type_) == ("<" in str(type_))
