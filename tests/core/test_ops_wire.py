"""The format of ops: each document that is not valid is refused with its reason, and the others are not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.core.strategies import given, values

from penstock.core.ops import Row, Shape, State, fold, header_refusal, key_text, refusal, value_text

SET = {"op": "set", "field": "f", "value": 1}
EQ = {"field": "f", "eq": 1}


def keyed(*ops: Any, **members: Any) -> dict[str, Any]:
    return {"v": 1, "table": "t", "key": 1, "ops": list(ops), **members}


def keyless(*ops: Any, **members: Any) -> dict[str, Any]:
    return {"v": 1, "table": "t", "ops": list(ops), **members}


def filtered(where: Any = EQ, *ops: Any) -> dict[str, Any]:
    return {"op": "query_op_set", "where": where, "ops": list(ops) or [SET]}


@pytest.mark.parametrize(
    "document",
    [
        keyed(SET, {**SET, "old": None, "value": {"a": [1.5, None, True]}}),
        keyed({"op": "remove", "field": "f"}, {"op": "remove", "field": "f", "value": "x"}),
        keyed({"op": "remove", "field": "f", "old": 1}, {"op": "add", "field": "f", "value": True}),
        keyed({"op": "delete"}, key="a"),
        keyed(creates=True, key=[1, "a"]),
        keyed(SET, key=-(2**63)),
        keyless({"op": "clear"}, {"op": "clear", "field": "f"}),
        keyless(filtered(), filtered({"field": "f", "in": [1, "a", False]}, {"op": "remove", "field": "g"})),
        keyless(filtered({"and": [EQ, {"and": [EQ]}]}, {"op": "add", "field": "g", "value": "x"})),
    ],
)
def test_a_valid_document(document: Any) -> None:
    assert refusal(document) is None
    assert refusal(json.loads(json.dumps(document))) is None


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "a document is a JSON object, not an array"),
        ({}, "`v` is missing"),
        (keyed(SET, v=2), "`v` is 2; this penstock reads version 1"),
        (keyed(SET, v=True), "`v` is True; this penstock reads version 1"),
        (keyed(SET, v="1"), "`v` is '1'; this penstock reads version 1"),
        (keyed(SET, v="1" * 99), "`v` is '111111111111111111111111111111111111...; this penstock reads version 1"),
        (keyed(SET, keys=1), "unknown member 'keys'; did you mean 'key'?"),
        (keyed(SET, table=""), "`table` must be the name of the table that changed"),
        (keyed(ops=None), "`ops` must be an array"),
        (keyed(), "`ops` is empty"),
        (keyless(), "`ops` is empty"),
        (keyed(SET, creates=1), "`creates` must be true or false"),
        (keyless({"op": "clear"}, creates=True), "a document with `creates` must have a `key`"),
        (keyed(SET, key=None), "`key` must be an integer, a string, or an array of them, not null"),
        (keyed(SET, key=1.0), "`key` must be an integer, a string, or an array of them, not a number with a fraction"),
        (keyed(SET, key=True), "`key` must be an integer, a string, or an array of them, not a boolean"),
        (keyed(SET, key=[1]), "a `key` of one column is written without the array"),
        (keyed(SET, key=[1, None]), "each part of `key` must be an integer or a string, not null"),
        (keyed(SET, key=2**63), "`key` has more than 64 bits; write it as a string"),
        (keyed(SET, key=[1, 2**63]), "`key` has more than 64 bits; write it as a string"),
        (keyed(SET, {"op": "delete"}), "`delete` must be the only op of its document"),
        (keyed({"op": "delete"}, creates=True), "a document with `delete` cannot have `creates`"),
        (keyed("set"), "ops[0]: an op is a JSON object, not a string"),
        (keyed({"field": "f"}), "ops[0]: `op` is missing"),
        (keyed({"op": None}), "ops[0]: `op` must be a name, not null"),
        (keyed(SET, {"op": "sett"}), "ops[1]: unknown op 'sett'; did you mean 'set'?"),
        (keyed({"op": "set", "field": "f"}), "ops[0]: `set` needs `value`"),
        (keyed({**SET, "valeu": 1}), "ops[0]: unknown member 'valeu'; did you mean 'value'?"),
        (keyed({**SET, "field": 1}), "ops[0]: `field` must be the name of a field"),
        (keyed({**SET, "value": float("nan")}), "ops[0]: `value` must be a JSON value; NaN and Infinity are not"),
        (keyed({**SET, "value": [float("inf")]}), "ops[0]: `value` must be a JSON value; NaN and Infinity are not"),
        (
            keyed({"op": "add", "field": "f", "value": None}),
            "ops[0]: `value` of `add` must be a string, an integer, true or false, not null",
        ),
        (
            keyed({"op": "remove", "field": "f", "value": 0.5}),
            "ops[0]: `value` of `remove` must be a string, an integer, true or false, not a number with a fraction",
        ),
        (keyed({"op": "clear"}), "ops[0]: `clear` concerns many entities: its document must not have a `key`"),
        (keyed(filtered()), "ops[0]: `query_op_set` concerns many entities: its document must not have a `key`"),
        (keyless(SET), "ops[0]: `set` needs the `key` of its entity"),
        (keyless({"op": "delete"}), "ops[0]: `delete` needs the `key` of its entity"),
        (keyless(filtered([])), "ops[0]: `where`: a filter is a JSON object, not an array"),
        (
            keyless(filtered({"field": "f", "gt": 1})),
            "ops[0]: `where`: a filter has `field` and `eq`, `field` and `in`, or `and` alone",
        ),
        (keyless(filtered({"and": []})), "ops[0]: `where`: `and` must be an array with at least one filter"),
        (keyless(filtered({"field": "f", "in": []})), "ops[0]: `where`: `in` must be an array with at least one value"),
        (
            keyless(filtered({"and": [EQ, {"field": "f", "eq": None}]})),
            "ops[0]: `where`: `eq` must be a string, an integer, true or false, not null",
        ),
        (
            keyless({"op": "query_op_set", "where": EQ, "ops": []}),
            "ops[0]: `ops` of `query_op_set` must be an array with at least one op",
        ),
        (
            keyless(filtered(EQ, {"op": "delete"})),
            "ops[0]: ops[0]: `delete` cannot stand inside `query_op_set`; allowed: add, remove, set",
        ),
    ],
)
def test_a_document_is_refused_with_its_reason(document: Any, reason: str) -> None:
    assert refusal(document) == reason


def test_filters_are_not_nested_without_end() -> None:
    where: dict[str, Any] = EQ
    for _ in range(7):
        where = {"and": [where]}
    assert refusal(keyless(filtered(where))) is None
    assert refusal(keyless(filtered({"and": [where]}))) == "ops[0]: `where`: filters are nested more than 8 deep"


def test_a_key_and_a_value_have_one_spelling() -> None:
    assert [key_text(key) for key in (1, "1", [1, "é"])] == ["1", '"1"', '[1,"\\u00e9"]']
    assert [value_text(value) for value in (1, "1", True, {"b": 1, "a": 2})] == ["1", '"1"', "true", '{"a":2,"b":1}']


#: members that mean something, with values of any kind
odd_members = st.dictionaries(
    st.sampled_from(["v", "table", "key", "creates", "ops", "op", "field", "value", "where", "and", "in", "eq"]),
    values | st.sampled_from([1, "t", "set", "delete", "clear", "query_op_set", [SET], [filtered()], [EQ], EQ]),
)


@given(odd_members, st.lists(odd_members | values, max_size=3))
def test_no_document_is_fatal(document: dict[str, Any], ops: list[Any]) -> None:
    """A document is refused or applied; and what is valid is applied whole, where its fields are known."""
    shape = Shape(scalars=frozenset({"f", "g"}))
    for each in (document, keyed(*ops), keyless(*ops), {**keyed(SET), **document}):
        folded = fold(State(), shape, [Row(1, each)])
        if refusal(each) is not None:
            assert folded.quarantined
        if header_refusal(each) is not None:
            assert folded.state == State()
