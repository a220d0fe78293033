"""Templates: values keep their types, nothing breaks out of its place, mistakes are found before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sinks.http.sending import PIPELINE, STREAM, Sending

from penstock.core.content import Column, Content
from penstock.core.slices import Kind
from penstock.core.types import parse_type
from penstock.errors import StreamFailed, StreamRefused
from penstock.ports import StreamInfo
from penstock.sinks.http import StreamOptions
from penstock.sinks.http.encode import Encoding, encode_rows
from penstock.sinks.http.template import BadTemplate, compile_row, fill_header, fill_path, parse, split_body


def rows_of(template: Mapping[str, Any], **columns: list[Any]) -> list[Any]:
    batch = pa.RecordBatch.from_pydict(columns)
    encoded = encode_rows(batch, Encoding(), "\n", compile_row(template))
    return [json.loads(line) for line in bytes(encoded.data).splitlines()]


def test_a_row_by_a_template() -> None:
    template = {
        "text": "Order {id} for {who}: {{not a column}}",
        "id": "{id}",
        "nested": {"tags": ["a", "{who}", 1, 1.5, True, None, []], "empty": {}},
        "price": "{price}",
    }
    assert rows_of(template, id=[7, None], who=['A "B"\n', None], price=[1.5, None]) == [
        {
            "text": 'Order 7 for A "B"\n: {not a column}',
            "id": 7,
            "nested": {"tags": ["a", 'A "B"\n', 1, 1.5, True, None, []], "empty": {}},
            "price": 1.5,
        },
        {
            "text": "Order  for : {not a column}",
            "id": None,
            "nested": {"tags": ["a", None, 1, 1.5, True, None, []], "empty": {}},
            "price": None,
        },
    ]
    assert rows_of({"a": 1}, id=[1, 2]) == [{"a": 1}, {"a": 1}]
    assert rows_of({}, id=[1]) == [{}]
    with pytest.raises(StreamFailed, match="template names column 'other'"):
        rows_of({"a": "{other}"}, id=[1])


LITERAL = st.text(st.characters(codec="utf-8", exclude_characters="{}"))


@given(st.text(st.characters(codec="utf-8")), LITERAL, LITERAL)
def test_any_value_stays_in_its_string(value: str, before: str, after: str) -> None:
    template = {before + "k": before + "{v}" + after, "w": "{v}"}
    expected = {before + "k": value if before == after == "" else before + value + after, "w": value}
    assert rows_of(template, v=[value]) == [expected]


@given(st.text(st.characters(codec="utf-8")))
def test_any_value_stays_in_its_segment_and_its_line(value: str) -> None:
    path = fill_path("/a/{v}/b", {"v": value})
    assert path.count("/") == 3
    assert path.isascii()
    assert not {"?", "#", " ", "\r", "\n"} & set(path)
    assert "/./" not in path
    assert "/../" not in path
    header = fill_header("{v}", {"v": value})
    assert all(" " <= each <= "~" for each in header)


def test_values_that_are_no_text() -> None:
    assert (
        fill_path("/{a}/{b}/{c}/{d}", {"a": None, "b": True, "c": 1.5, "d": {"x": 1}}) == "//true/1.5/%7B%22x%22%3A1%7D"
    )
    assert fill_header(" {a} ", {"a": "é"}) == "%C3%A9"


@pytest.mark.parametrize("wrong", ["{", "}", "{}", "a {b", "{a{b}}", "{{a}"])
def test_a_brace_of_its_own_is_refused(wrong: str) -> None:
    with pytest.raises(BadTemplate, match="for a brace"):
        parse(wrong)


@pytest.mark.parametrize("wrong", [float("nan"), b"x", object()])
def test_what_is_no_json_is_refused(wrong: Any) -> None:
    with pytest.raises(BadTemplate, match="no value of JSON"):
        compile_row({"a": wrong})


def test_a_body_has_its_rows_once() -> None:
    assert split_body({"a": [1, "{rows}"], "b": "{{rows}}"}) == ('{"a":[1,', '],"b":"{rows}"}')
    for wrong in ({"a": 1}, {"a": "x{rows}"}, {"a": "{rows}", "b": "{rows}"}, {"a": "{id}"}):
        with pytest.raises(BadTemplate, match=r"needs \{rows\} once"):
            split_body(wrong)


COLUMNS = [("id", "int64"), ("text", "string"), ("doc", "json"), ("tags", "list<string>")]
CONTENT = Content(tuple(Column(name, parse_type(type_)) for name, type_ in COLUMNS))
CHANGED = Content(CONTENT.columns, changes=True)
PLAIN, OBJECT = {"protocol": "plain"}, {"protocol": "plain", "format": "object"}

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], Content, str]] = {
    "a column that is not there": (PLAIN, {"row": {"a": "{txt}"}}, CONTENT, "`row` names {txt}.*did you mean 'text'"),
    "in a path": (OBJECT, {"into": "/{ids}"}, CONTENT, "`into` names {ids}.*did you mean 'id'"),
    "in a header": (OBJECT, {"headers": {"X-A": "{ids}"}}, CONTENT, r"`headers\.X-A` names {ids}"),
    "a path for many rows": (PLAIN, {"into": "/{id}"}, CONTENT, "a request has many rows; set `format: object`"),
    "a header for many rows": (PLAIN, {"headers": {"A": "{id}"}}, CONTENT, "set `format: object`"),
    "a brace": (PLAIN, {"row": {"a": "{"}}, CONTENT, "for a brace"),
    "a body without rows": (PLAIN | {"format": "json"}, {"body": {"a": 1}}, CONTENT, "needs {rows} once"),
    "a body around lines": (PLAIN, {"body": {"a": "{rows}"}}, CONTENT, "`format: ndjson`"),
    "a document inside a text": (PLAIN, {"row": {"a": "x{doc}"}}, CONTENT, "{doc} inside a text.*a document of JSON"),
    "a list inside a text": (PLAIN, {"row": {"a": "x{tags}"}}, CONTENT, "{tags} inside a text.*a list<string>"),
    "a delete that does not show": (PLAIN, {"row": {"a": "{id}"}}, CHANGED, "a delete would look like an upsert"),
    "a body for penstock": ({}, {"body": {"a": "{rows}"}}, CONTENT, "`body` is for `protocol: plain`"),
    "headers for penstock": ({}, {"headers": {"a": "b"}}, CONTENT, "`headers` is for `protocol: plain`"),
}


@pytest.mark.parametrize(("options", "stream", "content", "message"), REFUSED.values(), ids=REFUSED)
def test_mistakes_are_found_by_check(
    options: dict[str, Any], stream: dict[str, Any], content: Content, message: str, tmp_path: Path
) -> None:
    sending = Sending(tmp_path, "http://receiver.invalid", options, {STREAM: StreamOptions(**stream)})
    with pytest.raises(StreamRefused, match=message) as refused:
        sending.sink().check(StreamInfo(STREAM, Kind.ROWS), content)
    assert refused.value.next_step


GOOD: list[tuple[dict[str, Any], dict[str, Any], Content]] = [
    ({}, {"row": {"a": "{doc}", "b": "{tags}"}, "into": "{x}"}, CONTENT),
    (OBJECT, {"row": {"a": "{id} {text}"}, "into": "/{id}/{{}}", "headers": {"A": "{doc}"}}, CONTENT),
    (PLAIN, {"row": {"a": "{id}", "gone": "{_change}"}}, CHANGED),
    (PLAIN, {"row": {"a": "{id}"}, "deletes": "refuse"}, CONTENT),
]


@pytest.mark.parametrize(("options", "stream", "content"), GOOD)
def test_what_is_right_is_taken(
    options: dict[str, Any], stream: dict[str, Any], content: Content, tmp_path: Path
) -> None:
    sending = Sending(tmp_path, "http://receiver.invalid", options, {STREAM: StreamOptions(**stream)})
    sending.sink().check(StreamInfo(STREAM, Kind.ROWS), content)
    assert PIPELINE not in [remark.text for remark in sending.sink().explain(StreamInfo(STREAM, Kind.ROWS), content)]


@pytest.mark.parametrize("wrong", [{"method": "PUT"}, {"success": [409]}, {"key_header": "X"}, {"format": "object"}])
def test_options_of_other_receivers_are_refused_for_penstocks(wrong: dict[str, Any], tmp_path: Path) -> None:
    info = StreamInfo(STREAM, Kind.ROWS)
    Sending(tmp_path, "http://receiver.invalid", {"protocol": "plain", **wrong}).sink().check(info, CONTENT)
    with pytest.raises(StreamRefused, match="of the sink is for `protocol: plain`"):
        Sending(tmp_path, "http://receiver.invalid", wrong).sink().check(info, CONTENT)


def test_credentials_that_contradict_each_other(tmp_path: Path) -> None:
    auth = {"bearer": "a", "basic": "b:c"}
    sink = Sending(tmp_path, "http://receiver.invalid", {"auth": auth}).sink()
    with pytest.raises(StreamRefused, match="`auth` of the sink has bearer and basic"):
        sink.check(StreamInfo(STREAM, Kind.ROWS), CONTENT)
