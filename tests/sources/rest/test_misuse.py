"""What providers do, and what a configuration gets wrong: each is refused, right, or said."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source

from penstock.errors import InputError, StreamFailed, StreamRefused
from penstock.ports import Budget
from penstock.sources.rest.content import content_of
from penstock.sources.rest.options import Options, StreamOptions
from penstock.testing.contracts.source import drain, each_once


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer({"charges": {}}) as server:
        yield server


def fail(origin: List) -> str:
    """What is said when the stream is read."""
    opened = origin.open()
    try:
        with pytest.raises((StreamFailed, StreamRefused)) as failed:
            drain(opened, origin)
    finally:
        opened.close()
    assert failed.value.next_step
    return failed.value.what


def read(origin: List, said: list[str] | None = None, **more: Any) -> list[Any]:
    opened = source(origin.server, origin.folder, {origin.stream: origin.options}, said=said, **more)
    rows = [row for one in drain(opened, origin) for row in one.rows]
    opened.close()
    return rows


@pytest.mark.parametrize("value", ["(absent)", None, "", "soon", True, [1]])
def test_a_time_that_is_missing_or_null(value: Any, server: RestServer, tmp_path: Path) -> None:
    server.change("charges", odd={"5": {"created": value}})
    origin = List(server, tmp_path, time={"lag": 0})
    origin.arrive(10)
    what = fail(origin)
    absent = value is None or value == "(absent)"
    assert f"record ch_00000005: field created{' is missing or null' if absent else ': '}" in what
    assert re.match(r"GET charges\?\S+ \(request id req_\d+\): record", what)


@pytest.mark.parametrize(
    ("real", "said", "why"),
    [
        ("milliseconds", "seconds", "field created, read as seconds, lies after the server's clock"),
        ("seconds", "milliseconds", "field created, read as milliseconds, lies before 1990"),
        ("iso", "seconds", "field created: invalid literal"),
        ("iso", "milliseconds", "field created: invalid literal"),
        ("seconds", "iso", "is not an RFC 3339 timestamp"),
        ("milliseconds", "iso", "is not an RFC 3339 timestamp"),
    ],
)
def test_times_in_another_unit(real: str, said: str, why: str, server: RestServer, tmp_path: Path) -> None:
    server.change("charges", unit=real)
    origin = List(server, tmp_path, time={"lag": 0, "unit": said})
    origin.arrive(10)
    assert why in fail(origin)


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize(("unit", "other"), [("seconds", 1000), ("milliseconds", 0.001)])
@pytest.mark.parametrize("number", [0, 5, 24, 25, 49])
def test_one_time_in_another_unit(
    number: int, unit: str, other: float, order: str, server: RestServer, tmp_path: Path
) -> None:
    """At either end of a page, it would look like the end of the range."""
    steps = 1000 if unit == "milliseconds" else 1
    odd = {str(number): {"created": int((server.now + number // 40) * steps * other)}}
    server.change("charges", unit=unit, order=order, odd=odd)
    origin = List(server, tmp_path, order=order, time={"lag": 0, "unit": unit}, paging={"size": 25})
    origin.arrive(50)
    assert re.search("out of order|looks like|lies (after|before)|was asked for", fail(origin))


def test_an_id_that_is_missing(server: RestServer, tmp_path: Path) -> None:
    server.change("charges", odd={"5": {"id": "(absent)"}})
    origin = List(server, tmp_path, time={"lag": 0})
    origin.arrive(10)
    assert "record 5: field id is missing" in fail(origin)


def test_records_elsewhere(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 0}, records="items.list")
    origin.arrive(10)
    assert "there is no field items.list" in fail(origin)


#: how lists are read, in one slice
WAYS_TO_READ: dict[str, dict[str, Any]] = {
    "newest": {"time": {"lag": 0}},
    "oldest": {"time": {"lag": 0}, "order": "oldest"},
    "whole": {},
    "onward": {"incremental": True, "order": "oldest"},
}


@pytest.mark.parametrize(("other", "in_a_second"), [(4, 40), (12, 40), (17, 1)])
@pytest.mark.parametrize("way", WAYS_TO_READ)
def test_different_objects_with_the_same_id_are_warned_about(
    way: str, in_a_second: int, other: int, tmp_path: Path
) -> None:
    """On one page, on two pages, at the same time and at another: one of them is missing, and its id is named."""
    options = WAYS_TO_READ[way]
    paging = "last_id" if way == "onward" else "page"
    with RestServer({"charges": {"order": options.get("order", "newest"), "paging": paging}}) as server:
        server.change("charges", odd={"3": {"id": "ch_00000000"}, str(other): {"id": "ch_00000001"}})
        origin = List(server, tmp_path, **options, paging={"by": paging, "size": 20 if way == "onward" else 10})
        server.arrive("charges", 20, in_a_second=in_a_second)
        said: list[str] = []
        warned: list[str] = []
        opened = source(server, tmp_path, {"charges": origin.options}, said=said, warned=warned)
        rows = [row for one in drain(opened, origin, budget=Budget(bytes=1 << 24)) for row in one.rows]
        opened.close()
        assert len(rows) == len(set(rows)) == 18
        assert said == []
        (warning,) = warned
        assert "the same id and different contents" in warning
        assert "ch_00000000" in warning
        assert "ch_00000001" in warning
        assert "set `id`" in warning


def test_the_same_object_twice_is_delivered_once_and_said(server: RestServer, tmp_path: Path) -> None:
    same = {"id": "ch_00000004", "amount": 1, "metadata": {}}
    server.change("charges", odd={"5": same, "4": same})
    origin = List(server, tmp_path, time={"lag": 0})
    origin.arrive(10)
    said: list[str] = []
    warned: list[str] = []
    opened = source(server, tmp_path, {"charges": origin.options}, said=said, warned=warned)
    rows = [row for one in drain(opened, origin) for row in one.rows]
    opened.close()
    assert rows.count("ch_00000004") == 1
    assert len(rows) == 9
    assert said == ["charges: the API listed 1 record a second time: each was delivered once"]
    assert warned == []


def test_a_filter_that_the_server_ignores(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 0}, time_range={"to": "2026-01-01T00:00:05"})
    origin.arrive(1000)
    server.change("charges", ignores_filter=True)
    assert "the API ignores the filter" in fail(origin)


def test_objects_in_the_other_order(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 0}, order="oldest")
    origin.arrive(1000)
    assert "out of order" in fail(origin)


def test_a_server_without_a_clock_is_said_and_this_machines_counts(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 0})
    origin.arrive(100)
    server.set_faults(date="absent")
    said: list[str] = []
    assert each_once(read(origin, said), origin.rows())
    assert said == ["charges: the API does not say what time it is: this machine's clock is used instead"]


def test_a_clock_that_is_ahead_is_said_and_does_not_hide_what_comes(tmp_path: Path) -> None:
    """The ceiling is this machine's clock: objects that the server stamps rightly, and later, lie above it."""
    with RestServer({"charges": {}}, now=None, date="3600") as server:
        now = int(time.time())
        origin = List(server, tmp_path, time={"lag": 0})
        server.add("charges", [now - 100 + n for n in range(50)])
        said: list[str] = []
        opened = source(server, tmp_path, {"charges": origin.options}, said=said)
        first = drain(opened, origin, run="one")
        assert len(said) == 1
        assert "ahead of this machine's" in said[0]
        ceiling = opened.ceiling("charges", opened.content("charges"), "two")
        assert ceiling is not None
        assert int(str(ceiling["lt"])) <= int(time.time())
        opened.close()
        assert each_once([row for one in first for row in one.rows], origin.rows())


def test_a_clock_that_is_behind_only_delays(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 0})
    origin.arrive(4000)
    server.set_faults(date="-60")
    opened = origin.open()
    first = drain(opened, origin, run="one")
    assert 0 < len([row for one in first for row in one.rows]) < 4000
    server.set_faults()
    rest = drain(opened, origin, first[-1].slice.position, run="two")
    opened.close()
    assert each_once([row for one in (*first, *rest) for row in one.rows], origin.rows())


def test_a_clock_that_is_behind_its_own_objects_is_said(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 0})
    origin.arrive(100)
    server.set_faults(date="-3600")
    said: list[str] = []
    assert read(origin, said) == []
    assert said == ["charges: the API's clock is behind its newest object by 0:59:58: objects after that clock wait"]


def test_objects_younger_than_the_lag_wait(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 60})
    origin.arrive(100)
    assert read(origin) == []
    server.set_clock(server.now + 60)
    assert each_once(read(origin), origin.rows())


@pytest.mark.parametrize(
    "changed",
    [
        {"path": "other"},
        {"params": {"status": "paid"}},
        {"time": {"lag": 0, "field": "updated"}},
        {"order": "oldest"},
        {"id": "number"},
    ],
)
def test_a_stream_that_is_configured_otherwise_is_not_read_on(
    changed: dict[str, Any], server: RestServer, tmp_path: Path
) -> None:
    origin = List(server, tmp_path, time={"lag": 0})
    origin.arrive(100)
    opened = origin.open()
    last = drain(opened, origin)[-1].slice.position
    other = origin.open_with("charges", origin.options | changed)
    options = Options(base_url=f"{server.url}/v1")
    now = content_of("charges", StreamOptions(**(origin.options | changed)), options).content()
    with pytest.raises(StreamRefused, match="the mark was made with"):
        other.accept("charges", last, now)
    opened.close()
    other.close()


def test_a_range_of_time_for_a_list_without_a_time(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time_range={"from": "2026-01-01"})
    assert "`time_range` needs `time`" in fail(origin)


def test_an_account_with_two_ways_to_sign_in(server: RestServer, tmp_path: Path) -> None:
    opened = source(server, tmp_path, {"charges": {}}, auth={"bearer": "a-token", "basic": "ann:secret"})
    with pytest.raises(InputError, match="bearer and basic"):
        opened.connect()


def test_a_value_that_does_not_fit_names_the_record_by_its_own_id_field(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 0}, id="metadata.number", columns={"currency": "int64"})
    origin.arrive(1)
    assert fail(origin).startswith("record 0: ")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"currency": "int64"}, '"eur" has no exact form as int64 (column currency)'),
        ({"amount": "bool"}, "has no exact form as bool (column amount)"),
        ({"metadata": "string"}, "has no exact form as string (column metadata)"),
    ],
)
def test_a_value_that_does_not_fit_its_column(
    columns: dict[str, str], said: str, server: RestServer, tmp_path: Path
) -> None:
    origin = List(server, tmp_path, time={"lag": 0}, columns=columns)
    origin.arrive(10)
    assert said in fail(origin)


def test_a_column_that_is_declared_twice(server: RestServer, tmp_path: Path) -> None:
    origin = List(server, tmp_path, time={"lag": 0}, columns={"json": "json"})
    assert "is also the column for the whole object" in fail(origin)


@pytest.mark.parametrize("path", ["charges?status=paid", "charges#paid", "?a=b"])
def test_a_path_with_a_query_is_refused(path: str) -> None:
    """Parameters of penstock's own would follow a second question mark, and the filter would not count."""
    with pytest.raises(ValueError, match="must not contain a query; write its parameters under `params`"):
        StreamOptions(path=path)


def test_all_that_is_wrong_with_a_stream_is_listed_at_once(server: RestServer, tmp_path: Path) -> None:
    options = {
        "incremental": True,
        "parent": "customers",
        "fields": {"amount": "total.amount"},
        "columns": {"json": "string", "_change": "string"},
        "paging": {"by": "page"},
    }
    opened = source(server, tmp_path, {"charges": options})
    with pytest.raises(StreamRefused) as refused:
        opened.content("charges")
    opened.close()
    said = [each.what for each in (refused.value, *refused.value.others)]
    wrong = (
        "`incremental` needs a cursor that stays valid",
        "`fields` names amount",
        "column _change is one of penstock's own",
        "column json is declared, and is also the column for the whole object",
        "neither `path` nor `params` has {id}",
        "a stream with a `parent` is read whole in every run, and has `incremental`",
        "`parent` is 'customers', which is no stream of the pipeline",
    )
    assert len(said) == len(wrong), said
    assert [each for each, text in zip(said, wrong, strict=True) if text not in each] == []
