"""Lists that change while they are read: objects appear, vanish or get another time; pages are cut; filters ignored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source
from tests.sources.rest.test_paging import WAYS

from penstock.errors import StreamFailed
from penstock.ports import Budget
from penstock.testing.contracts.source import begin, drain, next_slice, read

#: one page in each slice, so that the list can change between any two pages
ONE_PAGE = Budget(bytes=1 << 20, rows=20)


def read_while_changing(origin: List, change: Callable[[int], None], run: str = "one") -> Counter[Any]:
    """How often each object is delivered by a run; `change` is called after each slice with its number."""
    opened = origin.open()
    content, ceiling = begin(opened, origin, None, run)
    assert ceiling is not None
    found: Counter[Any] = Counter()
    last, number = None, 0
    while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=ONE_PAGE):
        found.update(read(opened, origin, slice_).rows)
        last, number = slice_.position, number + 1
        change(number)
    opened.close()
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_objects_that_are_deleted_hide_no_others(way: str, order: str, tmp_path: Path) -> None:
    """With pages that are counted, every page after a delete would begin too late."""
    endpoint, options = WAYS[way]
    with RestServer({"charges": {**endpoint, "order": order}}) as server:
        time = {"lag": 0, "unit": options.get("unit", "seconds")}
        origin = List(server, tmp_path, order=order, time=time, paging={**options.get("paging", {}), "size": 20})
        server.arrive("charges", 300, in_a_second=7)
        objects = origin.rows()
        delivered = objects if (order == "oldest") else objects[::-1]

        def delete(number: int) -> None:
            if number == 4:
                for id_ in delivered[3:60:8]:
                    server.remove("charges", str(id_))

        found = read_while_changing(origin, delete)
        assert found == Counter(objects)


@pytest.mark.parametrize("way", ["last_id", "page", "offset"])
def test_objects_that_appear_late_shift_no_others(way: str, tmp_path: Path) -> None:
    endpoint, options = WAYS[way]
    with RestServer({"charges": endpoint}) as server:
        time = {"lag": 0, "unit": options.get("unit", "seconds")}
        origin = List(server, tmp_path, time=time, paging={**options.get("paging", {}), "size": 20})
        server.arrive("charges", 300, in_a_second=7)
        objects = origin.rows()
        newest = server.objects("charges")[-1][1]
        found = read_while_changing(origin, lambda number: server.add("charges", [newest - 1] * 9))
        assert {id_: found[id_] for id_ in objects if found[id_] != 1} == {}


@pytest.mark.parametrize("way", ["last_id", "page", "offset"])
def test_an_object_whose_time_changes_is_delivered_again_and_hides_no_others(way: str, tmp_path: Path) -> None:
    """A list by `updated`: the object that the cursor names moves to the top, too."""
    endpoint, options = WAYS[way]
    with RestServer({"charges": {**endpoint, "time_field": "updated"}}) as server:
        time = {"lag": 0, "unit": options.get("unit", "seconds"), "field": "updated"}
        origin = List(server, tmp_path, time=time, paging={**options.get("paging", {}), "size": 20})
        server.arrive("charges", 300, in_a_second=7)
        objects = [str(id_) for id_ in origin.rows()]
        updated = [objects[-20], objects[-25], objects[-61], objects[10]]

        def update(number: int) -> None:
            if number in (1, 3):
                for id_ in updated if number == 1 else [objects[-60]]:
                    server.update("charges", id_, server.now)
                server.set_clock(server.now + 5)

        opened = origin.open()
        content, ceiling = begin(opened, origin, None, "one")
        assert ceiling is not None
        found: Counter[Any] = Counter()
        last, number = None, 0
        while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=ONE_PAGE):
            found.update(read(opened, origin, slice_).rows)
            last, number = slice_.position, number + 1
            update(number)
        assert max(found.values()) == 1
        again = [row for one in drain(opened, origin, last, run="two") for row in one.rows]
        opened.close()
        assert set(again) == {*updated, objects[-60]}
        assert set(found) | set(again) == set(objects)


@pytest.mark.parametrize("more", ["has_more", None])
def test_numbered_pages_that_the_server_cuts_are_refused(more: str | None, tmp_path: Path) -> None:
    """It gives 40 objects, and page 2 begins after 100: 60 would be missing. All have one time."""
    with RestServer({"charges": {"paging": "page", "most": 40, "counts_what_was_asked": True}}) as server:
        server.arrive("charges", 250, in_a_second=300)
        for options in ({"time": {"lag": 0}}, {}):
            origin = List(server, tmp_path, paging={"by": "page", "more": more}, **options)
            opened = origin.open()
            with pytest.raises(StreamFailed, match="the page before it has 40 objects, although 100 were asked for"):
                drain(opened, origin)
            opened.close()
            origin = List(server, tmp_path, paging={"by": "page", "more": more, "size": 40}, **options)
            opened = origin.open()
            rows = [row for one in drain(opened, origin) for row in one.rows]
            opened.close()
            assert Counter(rows) == Counter(origin.rows())


def test_numbered_pages_that_the_server_cuts_are_read_by_time_where_they_can_be(tmp_path: Path) -> None:
    with RestServer({"charges": {"paging": "page", "most": 40, "counts_what_was_asked": True}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, paging={"by": "page"})
        server.arrive("charges", 500)
        opened = origin.open()
        rows = [row for one in drain(opened, origin) for row in one.rows]
        opened.close()
        assert Counter(rows) == Counter(origin.rows())


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_filter_that_the_server_ignores_is_refused(order: str, tmp_path: Path) -> None:
    """Without a configured range: as soon as several workers read, or a second run does."""
    with RestServer({"charges": {"order": order, "ignores_filter": True}}) as server:
        origin = List(server, tmp_path, order=order, time={"lag": 0}, paging={"size": 10})
        server.arrive("charges", 1000)
        opened = source(server, tmp_path, {"charges": origin.options}, concurrency=4)
        with pytest.raises(StreamFailed, match="the API ignores the filter"):
            drain(opened, origin, budget=Budget(bytes=1 << 24))
        opened.close()


def test_a_filter_that_the_server_ignores_is_harmless_for_one_worker_that_reads_the_newest_first(
    tmp_path: Path,
) -> None:
    with RestServer({"charges": {"ignores_filter": True}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, paging={"size": 10})
        server.arrive("charges", 300)
        opened = source(server, tmp_path, {"charges": origin.options}, concurrency=1)
        moved = drain(opened, origin, budget=Budget(bytes=1 << 24))
        server.arrive("charges", 50)
        moved += drain(opened, origin, moved[-1].slice.position, run="two", budget=Budget(bytes=1 << 24))
        opened.close()
        assert Counter(row for one in moved for row in one.rows) == Counter(origin.rows())


def test_the_same_id_in_two_slices_is_delivered_with_both_times(tmp_path: Path) -> None:
    """Nothing remembers all ids: `explain` says that such an object is delivered again."""
    with RestServer({"charges": {"odd": {"90": {"id": "ch_00000010"}}}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, paging={"size": 20})
        server.arrive("charges", 100)
        found = read_while_changing(origin, lambda number: None)
        assert found["ch_00000010"] == 2
        opened = origin.open()
        gaps = [each.text for each in opened.explain("charges", opened.content("charges")) if each.kind == "gap"]
        opened.close()
        assert "an object that is listed again with another created is delivered again" in gaps
