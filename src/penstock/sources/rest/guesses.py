"""Guesses from a sample of an API's pages how its list is read: where the records are, their id, times and columns.

Pure. `sampling` asks the API whether a guess is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal

from penstock.sources.rest.cutting import look_up
from penstock.sources.rest.options import RESERVED, Paging, Time
from penstock.sources.rest.times import EARLIEST_SECONDS, LATEST_SECONDS

#: fields that usually have the records of a page
RECORDS = ("data", "items", "results", "records", "value", "values", "entries", "objects", "list")
#: fields that usually identify an object
IDS = ("id", "_id", "uuid", "guid", "uid", "key", "code", "number", "slug", "name")
#: fields that usually say when an object was created
CREATED = ("created", "created_at", "createdAt", "creation_date", "date_created", "created_on", "inserted_at", "date")
#: fields that usually say that more pages follow, have the next page's address, or its token
MORE = ("has_more", "hasMore", "more", "meta.has_more", "pagination.has_more")
NEXT_URLS = ("next", "next_url", "next_page_url", "links.next", "paging.next", "meta.next", "_links.next.href")
TOKENS = (
    *("next_page_token", "nextPageToken", "next_token", "next_cursor", "nextCursor", "cursor", "next"),
    *("meta.next_cursor", "pagination.next_cursor", "paging.cursors.after", "response_metadata.next_cursor"),
)
#: parameters that usually have the size of a page
SIZE_PARAMETERS = ("limit", "per_page", "page_size", "pageSize", "count")
#: pairs of parameters that usually mean at or after, and before; `{}` is the name of the field
FILTERS = (
    *(("{}[gte]", "{}[lt]"), ("{}_gte", "{}_lt"), ("{}__gte", "{}__lt"), ("{}.gte", "{}.lt")),
    *(("since", "before"), ("since", "until"), ("from", "to"), ("start", "end"), ("{}_after", "{}_before")),
    *(
        ("created[gte]", "created[lt]"),
        ("created_after", "created_before"),
        ("start_time", "end_time"),
        ("{}_min", "{}_max"),
    ),
)
_TIME_NAME = re.compile(
    r"(^|_)(at|on|date|time|timestamp|created|updated|start|end|until|before|after)$", re.IGNORECASE
)
_INT64 = 1 << 63


def find_records(page: Any, stream: str) -> str | None:
    """The path of the records; "" if the page itself is the list, None if there is none."""
    if isinstance(page, list):
        return ""
    paths = list(_lists(page)) if isinstance(page, dict) else []
    usual = [*RECORDS, stream, stream.rpartition("_")[2]]
    ranked = sorted(paths, key=lambda path: _rank(path.rpartition(".")[2], usual))
    return ranked[0] if ranked else None


def _lists(page: Mapping[str, Any], before: str = "", depth: int = 2) -> Iterator[str]:
    """Paths of lists of objects, at most two levels deep."""
    for name, value in page.items():
        if isinstance(value, list) and all(isinstance(each, dict) for each in value):
            yield before + name
        elif isinstance(value, dict) and depth > 1 and "." not in name:
            yield from _lists(value, f"{before}{name}.", depth - 1)


def _rank(name: str, usual: Sequence[str]) -> int:
    return usual.index(name) if name in usual else len(usual)


def find_id(records: Sequence[Mapping[str, Any]]) -> str | None:
    """The field that identifies a record: a string or a number that no two records share."""
    names = [name for name in records[0] if _identifies(name, records)] if records else []
    named = sorted(names, key=lambda name: (_rank(name, IDS), not name.lower().endswith("id")))
    return named[0] if named and (named[0] in IDS or named[0].lower().endswith("id")) else None


def _identifies(name: str, records: Sequence[Mapping[str, Any]]) -> bool:
    values = [record.get(name) for record in records]
    return all(isinstance(v, str | int) and not isinstance(v, bool) and v != "" for v in values) and len(
        set(map(str, values))
    ) == len(values)


def find_times(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(field, unit) of the fields that may have the time of creation, the likeliest first."""
    if not records:
        return []
    return [(name, unit) for name in CREATED if (unit := _unit_of([record.get(name) for record in records]))]


def _unit_of(values: Sequence[Any]) -> Literal["seconds", "milliseconds", "iso"] | None:
    if all(isinstance(value, str) and _is_timestamp(value) for value in values):
        return "iso"
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return None
    if all(EARLIEST_SECONDS <= value < LATEST_SECONDS for value in values):
        return "seconds"
    return "milliseconds" if all(EARLIEST_SECONDS * 1000 <= value < LATEST_SECONDS * 1000 for value in values) else None


def find_order(times: Sequence[int]) -> Literal["newest", "oldest"] | None:
    """Which records come first; None if the list is not ordered by these times, or all are the same."""
    if times == sorted(times, reverse=True) and len(set(times)) > 1:
        return "newest"
    return "oldest" if times == sorted(times) and len(set(times)) > 1 else None


def find_filters(field: str, unit: str) -> list[Time]:
    """How the API may filter by a field, the likeliest first."""
    last = field.rpartition(".")[2]
    pairs = dict.fromkeys((since.format(last), before.format(last)) for since, before in FILTERS)
    return [Time.model_validate({"field": field, "unit": unit, "since": a, "before": b}) for a, b in pairs]


def find_pagings(page: Any, headers: Mapping[str, str], size_parameter: str, size: int) -> list[Paging]:
    """How the next page may be asked for, the likeliest first."""
    found: list[dict[str, Any]] = []
    if "link" in headers and "rel=" in headers["link"]:
        found.append({"by": "link"})
    fields = page if isinstance(page, dict) else {}
    found += [{"by": "next_url", "field": path} for path in NEXT_URLS if _is_address(look_up(fields, path))]
    tokens = [path for path in TOKENS if _is_token(look_up(fields, path))]
    found += [
        {"by": "token", "field": path, "parameter": name} for path in tokens for name in _parameters_of_token(path)
    ]
    more = next((path for path in MORE if isinstance(look_up(fields, path), bool)), None)
    if more:
        found.append({"by": "last_id", "more": more})
    found += [{"by": "page", "more": more}, {"by": "offset", "more": more}, {"by": "last_id", "more": None}]
    return [Paging.model_validate({**each, "size_parameter": size_parameter, "size": size}) for each in found]


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and (value.startswith(("http://", "https://", "/")))


def _is_token(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != "" and not _is_address(value)


def _parameters_of_token(path: str) -> list[str]:
    """Parameters that a token's field suggests: `next_cursor` is sent as `cursor`."""
    name = path.rpartition(".")[2]
    bare = re.sub(r"^next_?", "", name)
    bare = bare[:1].lower() + bare[1:]
    return list(dict.fromkeys([bare or "cursor", name, "cursor", "page_token", "after"]))


# ---------------------------------------------------------------- columns


def propose_columns(
    records: Sequence[Mapping[str, Any]], known: Sequence[str], taken: Sequence[str], unit: str
) -> tuple[dict[str, str], list[str]]:
    """Columns with their types from the values of a sample, and which fields are left to the JSON column, by reason.

    `known` are fields that have a column already, `taken` other names of columns.
    """
    columns: dict[str, str] = {}
    left: dict[str, list[str]] = {"nested": [], "empty": [], "mixed": [], "named": []}
    for name in dict.fromkeys(name for record in records for name in record):
        values = [record[name] for record in records if record.get(name) is not None]
        if name in known:
            continue
        if name in (*taken, *RESERVED) or "." in name or not name.isprintable() or not name.strip():
            left["named"].append(name)
        elif not values:
            left["empty"].append(name)
        elif any(isinstance(value, dict | list) for value in values):
            left["nested"].append(name)
        elif type_ := _type_of(name, values, unit):
            columns[name] = type_
        else:
            left["mixed"].append(name)
    texts = {
        "nested": "objects and lists",
        "empty": "null in the whole sample",
        "mixed": "values of several types",
        "named": "the name is taken or no name of a column",
    }
    return columns, [f"{texts[why]}: {', '.join(map(repr, names))}" for why, names in left.items() if names]


def _type_of(name: str, values: Sequence[Any], unit: str) -> str | None:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        if _TIME_NAME.search(name) and _unit_of(values) == unit:
            return "timestamptz"
        return "int64" if all(-_INT64 <= value < _INT64 for value in values) else None
    if kinds <= {int, float}:
        return "float64"
    if kinds == {str}:
        if all(map(_is_timestamp, values)):
            return "timestamptz"
        return "date" if all(map(_is_date, values)) else "string"
    return None


def _is_timestamp(value: str) -> bool:
    """Whether a string is a date with a time and a zone."""
    try:
        return len(value) > len("2026-01-01") and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_date(value: str) -> bool:
    try:
        return len(value) == len("2026-01-01") and bool(date.fromisoformat(value))
    except ValueError:
        return False


def range_of_sample(times: Sequence[int]) -> tuple[int, int] | None:
    """Bounds with records of the sample inside and at both ends; None if there are too few different times."""
    different = sorted(set(times))
    return (different[1], different[-1]) if len(different) > 2 else None


def show_unit(unit: str) -> str:
    """A unit for people."""
    return "RFC 3339" if unit == "iso" else f"{unit} since 1970"


def is_round(count: int) -> bool:
    """Whether a number of objects looks like the size of a page, rather than like a whole list."""
    return count % 5 == 0
