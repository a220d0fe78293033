"""What is guessed from the pages of an API, without asking it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sources.rest import guesses


@pytest.mark.parametrize(
    ("page", "path"),
    [
        ([{"id": 1}], ""),
        ([], ""),
        ({"data": [{"id": 1}], "errors": []}, "data"),
        ({"warnings": [], "orders": [{"id": 1}]}, "orders"),
        ({"result": {"items": [{"id": 1}], "total": 1}}, "result.items"),
        ({"tags": ["a", "b"]}, None),
        ({"id": 1}, None),
        ("text", None),
    ],
)
def test_where_the_records_are(page: Any, path: str | None) -> None:
    assert guesses.find_records(page, "orders") == path


@pytest.mark.parametrize(
    ("records", "name"),
    [
        ([{"id": 1, "uuid": "a"}, {"id": 2, "uuid": "b"}], "id"),
        ([{"id": 1, "uuid": "a"}, {"id": 1, "uuid": "b"}], "uuid"),
        ([{"customerId": 1, "amount": 5}, {"customerId": 2, "amount": 6}], "customerId"),
        ([{"amount": 5}, {"amount": 6}], None),
        ([{"id": None}, {"id": 2}], None),
        ([{"id": True}], None),
        ([], None),
    ],
)
def test_what_identifies_a_record(records: list[dict[str, Any]], name: str | None) -> None:
    assert guesses.find_id(records) == name


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        (1_767_225_600, "seconds"),
        (1_767_225_600_000, "milliseconds"),
        ("2026-01-01T00:00:00Z", "iso"),
        ("2026-01-01T00:00:00+02:00", "iso"),
        ("2026-01-01", None),
        ("2026-01-01T00:00:00", None),
        (17, None),
        (None, None),
        (True, None),
    ],
)
def test_the_unit_of_a_time(value: Any, unit: str | None) -> None:
    records = [{"created": 1_767_225_600 if unit == "seconds" else value}, {"created": value}]
    assert guesses.find_times(records) == ([("created", unit)] if unit else [])


def test_the_order_of_a_list() -> None:
    assert guesses.find_order([3, 3, 1]) == "newest"
    assert guesses.find_order([1, 3, 3]) == "oldest"
    assert guesses.find_order([1, 3, 2]) is None
    assert guesses.find_order([2, 2]) is None


def test_the_types_of_columns() -> None:
    records = [
        {
            "id": "1",
            "flag": True,
            "count": 1,
            "huge": 1 << 70,
            "price": 1,
            "made_at": "2026-01-01T00:00:00Z",
            "day": "2026-01-01",
            "due_date": 1_767_225_600,
            "size": 1_767_225_600,
            "mixed": 1,
            "none": None,
            "nested": {"a": 1},
            "json": "x",
            "_change": "x",
            "a.b": 1,
        },
        {"id": "2", "price": 1.5, "mixed": "a", "late": "soon"},
    ]
    columns, left = guesses.propose_columns(records, ["id"], ["json"], "seconds")
    assert columns == {
        "flag": "bool",
        "count": "int64",
        "price": "float64",
        "made_at": "timestamptz",
        "day": "date",
        "due_date": "timestamptz",
        "size": "int64",
        "late": "string",
    }
    assert left == [
        "objects and lists: 'nested'",
        "null in the whole sample: 'none'",
        "values of several types: 'huge', 'mixed'",
        "the name is taken or no name of a column: 'json', '_change', 'a.b'",
    ]
    assert guesses.propose_columns(records, ["id"], [], "iso")[0]["due_date"] == "int64"


def test_the_next_page() -> None:
    found = guesses.find_pagings({"meta": {"next_cursor": "x"}, "data": []}, {}, "limit", 2)
    assert (found[0].by, found[0].field, found[0].parameter) == ("token", "meta.next_cursor", "cursor")
    found = guesses.find_pagings({"next": "https://h/x"}, {"link": '<https://h/y>; rel="next"'}, "limit", 2)
    assert [each.by for each in found[:2]] == ["link", "next_url"]
    found = guesses.find_pagings([], {}, "limit", 2)
    assert [(each.by, each.more) for each in found] == [("page", None), ("offset", None), ("last_id", None)]
