"""Every way to ask for the next page, with the server's pages cut short, in every unit and both orders."""

from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source

from penstock.errors import StreamFailed
from penstock.ports import Budget
from penstock.testing.contracts.source import Moved, drain, each_once

WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "last_id": ({}, {}),
    "token": ({"paging": "token"}, {"paging": {"by": "token"}}),
    "link": ({"paging": "link", "unit": "milliseconds"}, {"paging": {"by": "link"}, "unit": "milliseconds"}),
    "next_url": ({"paging": "next_url"}, {"paging": {"by": "next_url"}}),
    "page": ({"paging": "page", "unit": "iso"}, {"paging": {"by": "page"}, "unit": "iso"}),
    "offset": ({"paging": "offset"}, {"paging": {"by": "offset"}}),
}


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("way", WAYS)
def test_every_object_once(way: str, order: str, tmp_path: Path) -> None:
    endpoint, options = WAYS[way]
    time = {"lag": 0, "unit": options.get("unit", "seconds")}
    with RestServer({"charges": {**endpoint, "order": order, "most": 40}}) as server:
        # The server gives 40 where 100 are asked for; with a number of the page this would skip some.
        paging = {**options.get("paging", {}), **({"size": 40} if way == "page" else {})}
        origin = List(server, tmp_path, order=order, time=time, paging=paging)
        origin.arrive(2000)
        opened = origin.open()
        budget = Budget(bytes=200_000, workers=2)
        moved = drain(opened, origin, budget=budget)
        assert len(moved) > 1
        origin.arrive(100)
        moved += drain(opened, origin, moved[-1].slice.position, run="two", budget=budget)
        opened.close()
        assert each_once([row for one in moved for row in one.rows], origin.rows())


def test_without_a_field_for_more_pages_are_asked_for_until_one_is_empty(tmp_path: Path) -> None:
    with RestServer({"charges": {"most": 30}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, paging={"more": None})
        origin.arrive(95)
        opened = origin.open()
        moved = drain(opened, origin)
        opened.close()
        assert each_once([row for one in moved for row in one.rows], origin.rows())


def test_a_cursor_whose_object_is_deleted_does_not_stop_the_stream(tmp_path: Path) -> None:
    with RestServer({"charges": {}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, paging={"size": 20})
        origin.arrive(200)
        wanted = origin.rows()
        opened = origin.open()
        first = drain(opened, origin, budget=Budget(bytes=1 << 20, rows=50))[0]
        last = first.slice.upto
        assert last is not None
        cursor = last.document["remaining"][0]["cursor"]
        server.remove("charges", cursor)
        rest = drain(opened, origin, first.slice.position)
        opened.close()
        assert each_once([row for one in (first, *rest) for row in one.rows], wanted)


def test_a_next_page_that_is_the_first_again_is_found(tmp_path: Path) -> None:
    with RestServer({"charges": {"paging": "next_url"}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, paging={"by": "next_url", "field": "url"})
        origin.arrive(200)
        opened = origin.open()
        # The field holds a path on the same server, which the server answers with the first page again.
        with pytest.raises(StreamFailed):
            drain(opened, origin)
        opened.close()


@pytest.mark.parametrize("way", ["last_id", "token", "next_url"])
def test_a_list_that_grows_at_its_end_is_read_onward(way: str, tmp_path: Path) -> None:
    """The last page has no token: it is asked for again, and what it had is dropped."""
    endpoint, options = WAYS[way]
    with RestServer({"charges": {**endpoint, "order": "oldest"}}) as server:
        paging = {**options.get("paging", {}), "size": 30}
        origin = List(server, tmp_path, incremental=True, order="oldest", paging=paging)
        opened = origin.open()
        assert drain(opened, origin) == []
        moved: list[Moved] = []
        for run, count in enumerate((95, 0, 1, 40, 5, 200)):
            origin.arrive(count)
            last = moved[-1].slice.position if moved else None
            server.forget_requests()
            found = drain(opened, origin, last, run=str(run))
            assert bool(found) == bool(count)
            moved += found
        opened.close()
        assert each_once([row for one in moved for row in one.rows], origin.rows())


@pytest.mark.parametrize("way", ["link", "next_url"])
def test_a_next_address_is_asked_for_as_it_is(way: str, tmp_path: Path) -> None:
    """Parameters that it has several times, or without a value, say which objects it lists."""
    endpoint, options = WAYS[way]
    more = "&status=open&status=paid&query="
    with RestServer({"charges": {**endpoint, "more_query": more + "&api_key=repeated"}}) as server:
        origin = List(server, tmp_path, paging={**options.get("paging", {}), "size": 20})
        origin.arrive(50)
        opened = source(server, tmp_path, {"charges": origin.options}, auth={"query": {"api_key": "a-secret"}})
        moved = drain(opened, origin)
        opened.close()
        assert each_once([row for one in moved for row in one.rows], origin.rows())
        queries = [each["whole_query"] for each in server.requests() if "page_token" in each["query"]]
        assert len(queries) == 2
        assert all(query.endswith(f"{more}&api_key=a-secret") for query in queries)
