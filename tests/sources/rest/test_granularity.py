"""APIs that round the times of their filters down, to minutes or days: ranges are cut at multiples only."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.rest_api import EPOCH
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source

from penstock.errors import StreamRefused
from penstock.ports import Budget
from penstock.sources.rest.times import Unit
from penstock.testing.contracts.source import drain

KINDS = ("seconds", "milliseconds", "iso")


# ---------------------------------------------------------------- units


@given(st.sampled_from(KINDS), st.integers(1, 10**6), st.integers(0, 4 * 10**9), st.integers(0, 999))
def test_a_time_lies_in_its_step_and_a_filter_has_multiples_only(
    kind: str, granularity: int, second: int, millisecond: int
) -> None:
    unit = Unit(f"{kind}/{granularity}")
    moment = datetime.fromtimestamp(second, UTC).replace(microsecond=millisecond * 1000)
    written: Any = {
        "seconds": second,
        "milliseconds": second * 1000 + millisecond,
        "iso": moment.isoformat(),
    }[kind]
    time = unit.read(written)
    assert time == second // granularity == unit.of(moment)
    spelled = unit.spell(time)
    exact = Unit(kind)
    begin = exact.read(spelled if kind == "iso" else int(spelled))
    assert begin == time * granularity * exact.ticks
    assert begin <= exact.read(written) < begin + granularity * exact.ticks
    assert unit.moment(time).timestamp() == time * granularity
    assert unit.read(unit.spell(time)) == time


@given(st.sampled_from(KINDS), st.integers(0, 4 * 10**9))
def test_without_a_granularity_nothing_is_rounded(kind: str, time: int) -> None:
    unit = Unit(kind)
    assert unit.step == 1
    assert unit.read(unit.spell(time)) == time


# ---------------------------------------------------------------- lists


def read_all(server: RestServer, folder: Path, time: dict[str, Any], **options: Any) -> tuple[List, Counter[Any]]:
    """Two runs with several workers and small slices, objects arriving in between."""
    origin = List(server, folder, time={"lag": 0, **time}, **options)
    opened = source(server, folder, {"charges": origin.options}, concurrency=6)
    budget = Budget(bytes=1 << 20, rows=300)
    moved = drain(opened, origin, budget=budget)
    server.arrive("charges", 400, in_a_second=1)
    server.set_clock((server.now // 86400 + 1) * 86400)
    moved += drain(opened, origin, moved[-1].slice.position, run="two", budget=budget)
    opened.close()
    return origin, Counter(row for one in moved for row in one.rows)


def fill(server: RestServer, seconds: int) -> None:
    """A thousand objects, each so many seconds after the one before, and some at the same time."""
    times = [EPOCH + number * seconds for number in range(1000)]
    server.add("charges", sorted([*times, *times[100:130], *times[500:700:3]]))
    server.set_clock(times[-1] + 1)


@pytest.mark.parametrize("by", ["last_id", "token", "offset"])
@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize(
    ("unit", "granularity", "seconds"), [("seconds", 60, 7), ("iso", 86400, 3000), ("milliseconds", 3600, 301)]
)
def test_every_object_once(unit: str, granularity: int, seconds: int, order: str, by: str, tmp_path: Path) -> None:
    endpoint = {"unit": unit, "order": order, "paging": by, "granularity": granularity}
    with RestServer({"charges": endpoint}) as server:
        fill(server, seconds)
        time = {"unit": unit, "granularity": granularity}
        origin, found = read_all(server, tmp_path, time, order=order, paging={"by": by, "size": 20})
        assert found == Counter(origin.rows())
        asked = {server_time for each in server.requests("charges") for server_time in bounds(each["query"], unit)}
        assert len(asked) > 4, "ranges were cut"
        assert {at % granularity for at in asked} == {0}


def bounds(query: dict[str, str], unit: str) -> list[float]:
    """The times in a request's filter, in seconds."""
    values = [query[name] for name in ("created[gte]", "created[lt]") if name in query]
    if unit == "iso":
        return [datetime.fromisoformat(value).timestamp() for value in values]
    return [int(value) / Unit(unit).ticks for value in values]


def test_without_the_option_objects_are_lost_or_the_stream_fails_and_explain_says_so(tmp_path: Path) -> None:
    """What the option is for: nobody can see from a page that a filter was rounded."""
    with RestServer({"charges": {"unit": "iso", "granularity": 86400}}) as server:
        fill(server, 3000)
        origin, found = read_all(server, tmp_path, {"unit": "iso"}, paging={"size": 20})
        assert found != Counter(origin.rows())
        opened = origin.open()
        texts = [each.text for each in opened.explain("charges", opened.content("charges"))]
        assert any("set `granularity` under `time`" in text for text in texts)
        opened.close()
        exact = List(server, tmp_path, time={"unit": "iso", "granularity": 86400}).open()
        texts = [each.text for each in exact.explain("charges", exact.content("charges"))]
        assert "the filter rounds to 1d: objects are read, and read again, once that time is over" in texts
        exact.close()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"time_range": {"from": "2026-01-01T10:30"}}, "`from` of `time_range`, 2026-01-01T10:30, is no multiple"),
        ({"time_range": {"to": "2026-01-02T00:00:01"}}, "`to` of `time_range`, 2026-01-02T00:00:01, is no multiple"),
    ],
)
def test_bounds_that_are_no_multiples_are_refused(options: dict[str, Any], what: str, tmp_path: Path) -> None:
    with RestServer({"charges": {}}) as server:
        origin = List(server, tmp_path, time={"granularity": 86400}, **options)
        opened = origin.open()
        with pytest.raises(StreamRefused, match=what):
            opened.content("charges")
        opened.close()


def test_changes_are_found_once_the_step_is_over(tmp_path: Path) -> None:
    with RestServer({"charges": {"granularity": 3600}}) as server:
        changes = {"rescan": "6h", "updated": "updated"}
        origin = List(server, tmp_path, time={"lag": 0, "granularity": 3600}, changes=changes)
        server.add("charges", [EPOCH + number * 300 for number in range(100)])
        server.set_clock(EPOCH + 100 * 300)
        last, runs = None, list[set[str]]()
        for run, hours in enumerate((0, 1, 2)):
            for number in (95, 50) if run == 1 else ():
                server.alter("charges", f"ch_{number:08}", amount=-number, updated=server.now)
            server.set_clock(server.now + hours * 3600)
            opened = origin.open()
            moved = drain(opened, origin, last, run=f"run {run}")
            opened.close()
            last = moved[-1].slice.position if moved else last
            runs.append({str(row) for one in moved for row in one.rows})
        assert runs[0] == {f"ch_{number:08}" for number in range(96)}, "created in hours that are over"
        new = {f"ch_{number:08}" for number in range(96, 100)}
        assert runs[1] >= {"ch_00000050", "ch_00000095", *new}
        # Objects of the hour before are delivered again: they may have changed in it.
        assert runs[1] <= {"ch_00000050", *(f"ch_{number:08}" for number in range(84, 100))}
        assert runs[2] <= {"ch_00000050", "ch_00000095", *new}
