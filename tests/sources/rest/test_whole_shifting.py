"""Lists that are read whole while objects are created and deleted between their pages: no other object is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source
from tests.sources.rest.test_paging import WAYS

from penstock.core.content import Content
from penstock.errors import StreamFailed
from penstock.ports import Budget
from penstock.testing.contracts.source import drain

SIZE = 20


class AtEachPage:
    """A probe that calls a function after each page."""

    def __init__(self, change: Callable[[int], None]) -> None:
        self._change, self._pages = change, 0

    def at(self, point: str, **about: Any) -> None:
        if point == "rest.page_spooled":
            self._pages += 1
            self._change(self._pages)


def read_whole(origin: List, change: Callable[[int], None], said: list[str] | None = None) -> Counter[Any]:
    """How often each object is delivered; `change` is called after each page with its number."""
    opened = source(
        origin.server, origin.folder, {"charges": origin.options}, said=said, probe=AtEachPage(change), concurrency=2
    )
    try:
        moved = drain(opened, origin, budget=Budget(bytes=1 << 24))
    finally:
        opened.close()
    return Counter(row for one in moved for row in one.rows)


def whole(server: RestServer, folder: Path, way: str, order: str, **paging: Any) -> List:
    return List(server, folder, order=order, paging={**WAYS[way][1].get("paging", {}), "size": SIZE, **paging})


@pytest.mark.parametrize("prefetched", [False, True], ids=["before the next request", "after it"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_deletes_and_inserts_between_pages_hide_no_other_object(
    way: str, order: str, prefetched: bool, tmp_path: Path
) -> None:
    """Some of what was read is deleted at each page, in one case more than a page, and objects are created."""
    chance = random.Random(16)
    # The next page is asked for while the one before is written: it comes late or at once.
    with RestServer({"charges": WAYS[way][0] | {"order": order}}, latency=0.0 if prefetched else 0.02) as server:
        origin = whole(server, tmp_path, way, order)
        server.arrive("charges", 400, in_a_second=7)
        objects = [id_ for id_, _ in server.objects("charges")]
        in_order = objects if order == "oldest" else objects[::-1]
        removed: set[str] = set()

        def change(page: int) -> None:
            read = [id_ for id_ in in_order[: (page - 1) * (SIZE - 2)] if id_ not in removed]
            few = 30 if page == 8 else 3 if page % 2 else 0
            for id_ in chance.sample(read, min(few, len(read))):
                server.remove("charges", id_)
                removed.add(id_)
            if page in (3, 10) or page > 30:
                server.arrive("charges", 5)

        found = read_whole(origin, change)
        stayed = set(objects) - removed
        assert len(removed) > 30
        assert {id_ for id_ in stayed if found[id_] != 1} == set()
        assert max(found.values()) == 1


@pytest.mark.parametrize("more", ["has_more", None])
@pytest.mark.parametrize("way", ["page", "offset"])
@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 39, 40, 41])
def test_the_last_page(count: int, way: str, more: str | None, tmp_path: Path) -> None:
    """Full, short or empty; where the API does not say that it is the last one, too."""
    with RestServer({"charges": WAYS[way][0]}) as server:
        origin = whole(server, tmp_path, way, "newest", more=more)
        server.arrive("charges", count)
        said: list[str] = []
        assert read_whole(origin, lambda _: None, said) == Counter(origin.rows())
        assert said == []


@pytest.mark.parametrize("way", ["page", "offset"])
@pytest.mark.parametrize("more", ["has_more", None])
def test_all_of_the_last_page_is_deleted_or_moves_up(way: str, more: str | None, tmp_path: Path) -> None:
    with RestServer({"charges": WAYS[way][0]}) as server:
        origin = whole(server, tmp_path, way, "newest", more=more)
        server.arrive("charges", 45)
        objects = [id_ for id_, _ in server.objects("charges")][::-1]

        def change(page: int) -> None:
            if page == 1:
                for id_ in objects[1:15]:
                    server.remove("charges", id_)

        assert set(objects[15:]) <= set(read_whole(origin, change))


def test_an_overlap_costs_few_requests_and_a_second_look_one_for_each_page(tmp_path: Path) -> None:
    for way, most in (("offset", 23), ("page", 2 * 20 - 1)):
        with RestServer({"charges": WAYS[way][0]}) as server:
            origin = whole(server, tmp_path / way, way, "newest")
            server.arrive("charges", 20 * SIZE)
            read_whole(origin, lambda _: None)
            assert len([each for each in server.requests() if each["query"]["limit"] != "1"]) <= most


def test_pages_of_one_object(tmp_path: Path) -> None:
    with RestServer({"charges": {"paging": "offset", "most": 1}}) as server:
        origin = whole(server, tmp_path, "offset", "newest")
        server.arrive("charges", 12)
        assert read_whole(origin, lambda _: None) == Counter(origin.rows())


def test_an_offset_that_the_server_rounds_to_pages_is_said(tmp_path: Path) -> None:
    """Nothing overlaps then, and deletes cannot be noticed; the list is read as before."""
    with RestServer({"charges": {"paging": "offset", "rounds_offset": True}}) as server:
        origin = whole(server, tmp_path, "offset", "newest")
        server.arrive("charges", 130)
        said: list[str] = []
        assert read_whole(origin, lambda _: None, said) == Counter(origin.rows())
        assert said[:1] == [
            "charges: the pages of the list do not continue each other after 10 tries: objects may be missed until "
            "the next run"
        ]


@pytest.mark.parametrize("by", ["page", "offset"])
def test_a_count_that_the_server_ignores_is_refused(by: str, tmp_path: Path) -> None:
    with RestServer({"charges": {"paging": "token"}}) as server:
        origin = whole(server, tmp_path, by, "newest")
        server.arrive("charges", 100)
        with pytest.raises(StreamFailed, match="gives the same page again and again"):
            read_whole(origin, lambda _: None)


@pytest.mark.parametrize(("by", "how"), [("page", "is asked for twice"), ("offset", "begins with the last object")])
def test_explain_says_how(by: str, how: str, tmp_path: Path) -> None:
    with RestServer({"charges": {"paging": by}}) as server:
        origin = whole(server, tmp_path, by, "newest")
        opened = origin.open()
        content: Content = opened.content("charges")
        texts = [each.text for each in opened.explain("charges", content)]
        opened.close()
        assert any(how in text and "hides no other" in text for text in texts)
