"""Documents have one spelling each, and nothing lossy gets into one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.core.strategies import documents, given, texts, values

from penstock.core.documents import canonical, digest, parse
from penstock.core.marks import Mark


@given(documents)
def test_a_document_survives_its_text(document: dict[str, Any]) -> None:
    text = canonical(document)
    assert parse(text) == document
    assert canonical(parse(text)) == text


@given(documents)
def test_the_order_of_keys_does_not_matter(document: dict[str, Any]) -> None:
    backwards = dict(reversed(document.items()))
    assert canonical(backwards) == canonical(document)


@given(documents)
def test_the_spelling_is_ascii_on_one_line(document: dict[str, Any]) -> None:
    text = canonical(document)
    assert text.isascii()
    assert "\n" not in text


@given(st.lists(values, max_size=3), st.lists(values, max_size=3))
def test_different_documents_have_different_texts(one: list[Any], other: list[Any]) -> None:
    # Python takes True for 1; JSON does not.
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (canonical(one) == canonical(other)) == same


def test_a_tuple_is_a_list() -> None:
    assert canonical({"key": ("1", ("2",))}) == '{"key":["1",["2"]]}'


@given(documents)
def test_marks_that_are_equal_are_equal_texts(document: dict[str, Any]) -> None:
    spelled_otherwise = json.dumps(dict(reversed(document.items())), indent=2, ensure_ascii=False)
    assert Mark.read(spelled_otherwise) == Mark.of(document)
    assert Mark.of(document).document == document


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"at": 1.5}, "$.at: float has no exact place in a document; use text"),
        ({"at": [1, {"deep": float("nan")}]}, "$.at[1].deep: float has no exact place in a document; use text"),
        ({"n": Decimal("1.1")}, "$.n: Decimal has no exact place in a document; use text"),
        ({"t": datetime(2024, 1, 1, tzinfo=UTC)}, "$.t: datetime has no exact place in a document; use text"),
        ({"b": b"x"}, "$.b: bytes has no exact place in a document; use text"),
        ({"s": {1}}, "$.s: set has no exact place in a document; use text"),
        ({1: "x"}, "$: keys must be text, not int"),
        ({"a": {None: "x"}}, "$.a: keys must be text, not NoneType"),
    ],
)
def test_what_is_lossy_is_refused(document: Any, complaint: str) -> None:
    with pytest.raises(TypeError) as refused:
        canonical(document)
    assert str(refused.value) == complaint


@given(st.floats())
def test_every_float_is_refused(number: float) -> None:
    for document in ({"x": number}, {"x": [number]}, {"x": {"y": number}}):
        with pytest.raises(TypeError, match="float"):
            canonical(document)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("text", ["[]", "1", '"x"', "null"])
def test_only_an_object_is_a_document(text: str) -> None:
    with pytest.raises(ValueError, match="expected a JSON object, got"):
        parse(text)


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_no_two_lists_of_texts_run_together(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


def test_where_one_text_ends_and_the_next_begins_matters() -> None:
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", ""), digest("", "abc")}) == 5
