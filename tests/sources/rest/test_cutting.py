"""Pages are cut without changing a character of a record; values fit their column's type exactly, or are refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal as Exact
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import Decimal, Plain, Type
from penstock.links.http.failures import Malformed
from penstock.links.json_values import converter
from penstock.sources.rest.cutting import NoRecords, cut, look_up
from penstock.sources.rest.times import Unit

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=5)


@given(
    RECORDS,
    st.dictionaries(st.text().filter(lambda key: key not in ("data", "page")), VALUES, max_size=3),
    st.sampled_from([(), ("data",), ("page", "data")]),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_a_page_is_cut_into_its_records(
    records: list[Any], around: dict[str, Any], path: tuple[str, ...], indent: int | None, ascii_only: bool
) -> None:
    page: Any = records
    for step in reversed(path):
        page = {**around, step: page, "after": True}
    after = ".".join((*path[:-1], "after"))
    found = cut(json.dumps(page, indent=indent, ensure_ascii=ascii_only).encode(), path, beside=(after,))
    assert found.records == records
    assert [json.loads(text) for text in found.texts] == records
    assert not any(b"\n" in text for text in found.texts)
    if path:
        assert look_up(found.fields, after) is True


def test_numbers_keep_their_digits() -> None:
    body = b'{"data": [{"id":"a", "price": 1.10000000000000000001e2 ,"n":12345678901234567890}], "more": 1}'
    assert cut(body, ("data",)).texts == [b'{"id":"a", "price": 1.10000000000000000001e2 ,"n":12345678901234567890}']


@given(RECORDS.filter(bool), st.data())
def test_a_page_that_is_cut_off_is_never_read(records: list[Any], data: st.DataObject) -> None:
    body = json.dumps({"has_more": True, "data": records}).encode()
    with pytest.raises(Malformed):
        cut(body[: data.draw(st.integers(0, len(body) - 1))], ("data",))


@pytest.mark.parametrize("body", [b'{"items": []}', b'{"data": {}}', b"[]", b'{"data": null}'])
def test_a_page_without_its_records(body: bytes) -> None:
    with pytest.raises(NoRecords):
        cut(body, ("data",))


@pytest.mark.parametrize(
    ("type_", "value", "wanted"),
    [
        (Plain.INT64, 7, 7),
        (Plain.INT64, "9007199254740993", 9007199254740993),
        (Plain.INT64, 7.0, 7),
        (Plain.FLOAT64, 1, 1.0),
        (Plain.STRING, "a", "a"),
        (Plain.STRING, 12, "12"),
        (Plain.BOOL, True, True),
        (Plain.DATE, "2026-01-02", date(2026, 1, 2)),
        (Plain.JSON, {"a": [1]}, '{"a":[1]}'),
        (Plain.TIMESTAMPTZ, 1767225600, datetime(2026, 1, 1, tzinfo=UTC)),
        (Plain.TIMESTAMPTZ, "2026-01-01T01:00:00.5+01:00", datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)),
        (Decimal(10, 2), "1.25", Exact("1.25")),
        (Decimal(10, 2), Exact("1.2"), Exact("1.2")),
    ],
)
def test_a_value_that_fits(type_: Type, value: Any, wanted: Any) -> None:
    assert converter(type_, 1)(value) == wanted


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Plain.INT64, 1.5),
        (Plain.INT64, True),
        (Plain.INT64, "x"),
        (Plain.BOOL, 1),
        (Plain.STRING, {"a": 1}),
        (Plain.FLOAT64, True),
        (Plain.DATE, "tomorrow"),
        (Plain.TIMESTAMPTZ, True),
        (Decimal(10, 2), Exact("1.255")),
        (Decimal(10, 2), 1.25),
    ],
)
def test_a_value_without_an_exact_form(type_: Type, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        converter(type_, 1)(value)


@given(st.integers(631_152_000, 4_000_000_000), st.sampled_from(["seconds", "milliseconds", "iso"]))
def test_times_are_written_as_they_are_read(seconds: int, name: str) -> None:
    unit = Unit(name)
    time = seconds * unit.ticks
    assert unit.read(unit.spell(time)) == time
    assert unit.of(unit.moment(time)) == time


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("seconds", 1767225600.9, 1767225600),
        ("seconds", "1767225600.9", 1767225600),
        ("milliseconds", 1767225600123, 1767225600123),
        ("iso", "2026-01-01T00:00:00.999Z", 1767225600),
        ("iso", "2026-01-01T01:00:00+01:00", 1767225600),
        ("iso", "2026-01-01", 1767225600),
    ],
)
def test_a_fraction_of_a_step_is_cut_off(name: str, value: Any, wanted: int) -> None:
    assert Unit(name).read(value) == wanted


@pytest.mark.parametrize(
    ("name", "value"), [("seconds", None), ("seconds", True), ("iso", 5), ("seconds", "now"), ("iso", "")]
)
def test_what_is_no_time(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Unit(name).read(value)


@given(RECORDS, st.sampled_from([None, 1]))
def test_the_quick_way_gives_what_the_thorough_way_gives(records: list[Any], indent: int | None) -> None:
    """Of the fields that were asked for; half of a surrogate pair and NaN go the thorough way."""
    body = json.dumps({"data": [{"id": 1, **each} for each in records], "more": [1.5, None]}, indent=indent).encode()
    whole, part = cut(body, ("data",)), cut(body, ("data",), ("id",), ("more",))
    assert part.texts == whole.texts
    assert part.fields["more"] == [1.5, None]
    assert part.records == [{"id": each["id"]} for each in whole.records]


@pytest.mark.parametrize("value", ["NaN", '"\\ud800"', "1e999"])
def test_a_value_that_only_the_thorough_way_takes(value: str) -> None:
    text = f'{{"id":"a","x":{value}}}'
    found = cut(f'{{"data":[{text}]}}'.encode(), ("data",), ("id",))
    assert (found.texts, found.records[0]["id"]) == ([text.encode()], "a")


def test_a_line_break_inside_a_string_is_no_json() -> None:
    with pytest.raises(Malformed):
        cut(b'{"data":[{"id":"a\nb"}]}', ("data",), ("id",))
