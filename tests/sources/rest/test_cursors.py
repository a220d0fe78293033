"""Cursors that the API refuses or ignores: read again without doubles where that is possible, else refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source
from tests.sources.rest.test_paging import WAYS

from penstock.core.marks import Mark, Position
from penstock.errors import StreamFailed
from penstock.ports import Budget
from penstock.sources.rest import RestSource
from penstock.sources.rest.marks import TRAIL, CursorPosition
from penstock.sources.rest.standstill import RESTARTS
from penstock.testing.contracts.source import Moved, begin, drain, each_once, next_slice, read

BUDGET = Budget(bytes=1 << 20)


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer({"charges": {}}) as server:
        yield server


def move_all(opened: RestSource, origin: List, moved: list[Moved]) -> None:
    """Like `drain`, and keeps the slices before a failure."""
    content, ceiling = begin(opened, origin, None, "one")
    assert ceiling is not None
    last: Position | None = None
    while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=BUDGET):
        moved.append(read(opened, origin, slice_))
        last = slice_.position


# ---------------------------------------------------------------- lists by time


@pytest.mark.parametrize(
    ("way", "in_a_second", "status"),
    [
        ("last_id", 20, 400),
        ("last_id", 45, 404),
        ("last_id", 300, 422),
        ("token", 45, 400),
        ("token", 300, 404),
        ("next_url", 300, 400),
    ],
)
def test_a_server_that_refuses_every_cursor_fails_the_stream(
    way: str, in_a_second: int, status: int, tmp_path: Path
) -> None:
    """A second that fills a page can only be read by a cursor. Asking for it again must end."""
    endpoint, options = WAYS[way]
    with RestServer({"charges": {**endpoint, "refuses_cursors": status}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, paging={**options.get("paging", {}), "size": 20})
        server.arrive("charges", 300, in_a_second=in_a_second)
        opened = origin.open()
        moved: list[Moved] = []
        with pytest.raises(StreamFailed, match=r"refuses to go on in a list.*nothing new came.*No such page") as failed:
            move_all(opened, origin, moved)
        assert "paging" in failed.value.next_step
        assert len(server.requests()) < 12 * RESTARTS
        # What came before it was delivered, and once the server takes cursors, the rest is.
        server.change("charges", refuses_cursors=0)
        moved += drain(opened, origin, moved[-1].slice.position, run="two", budget=BUDGET)
        opened.close()
        assert each_once([row for one in moved for row in one.rows], origin.rows())


@pytest.mark.parametrize("way", ["last_id", "token", "page", "offset"])
def test_a_server_that_ignores_the_cursor_within_a_second_fails_the_stream(way: str, tmp_path: Path) -> None:
    endpoint, options = WAYS[way]
    with RestServer({"charges": {**endpoint, "ignores_cursors": True}}) as server:
        time = {"lag": 0, "unit": options.get("unit", "seconds")}
        origin = List(server, tmp_path, time=time, paging={**options.get("paging", {}), "size": 20})
        server.arrive("charges", 50, in_a_second=50)
        opened = origin.open()
        with pytest.raises(StreamFailed, match="the same pages again and again"):
            drain(opened, origin, budget=BUDGET)
        opened.close()
        assert len(server.requests()) < (100 if way in ("page", "offset") else 10)


def test_many_objects_that_cursors_name_may_be_deleted_within_a_second(server: RestServer, tmp_path: Path) -> None:
    """More often than a range may be read again without anything new: each time something new came."""
    origin = List(server, tmp_path, time={"lag": 0}, paging={"size": 10})
    server.arrive("charges", 200, in_a_second=200)
    wanted = origin.rows()
    opened = origin.open()
    content, ceiling = begin(opened, origin, None, "one")
    assert ceiling is not None
    moved: list[Moved] = []
    last: Position | None = None
    budget = Budget(bytes=1 << 20, rows=10)
    while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=budget):
        moved.append(read(opened, origin, slice_))
        last = slice_.position
        remaining: Any = last.mark.document["remaining"] if last.mark else []
        if remaining and remaining[0]["cursor"]:
            server.remove("charges", remaining[0]["cursor"])
    opened.close()
    assert len(moved) > RESTARTS + 3
    assert each_once([row for one in moved for row in one.rows], wanted)


# ---------------------------------------------------------------- lists that grow at their end


ONWARD: dict[str, Any] = {"incremental": True, "order": "oldest", "paging": {"size": 10}}


def deliver(origin: List, moved: list[Moved], run: str, budget: Budget = BUDGET) -> list[Moved]:
    """What a run of its own delivers."""
    opened = origin.open()
    try:
        found = drain(opened, origin, moved[-1].slice.position if moved else None, run=run, budget=budget)
    finally:
        opened.close()
    moved += found
    return found


def ids_of(moved: list[Moved]) -> list[Any]:
    return [row for one in moved for row in one.rows]


@pytest.mark.parametrize(
    ("arriving", "deleted", "size"),
    [(0, 1, 10), (0, 7, 1), (1, 1, 1), (4, 2, 3), (4, TRAIL - 1, 3), (25, 1, 10), (25, 7, 3), (25, TRAIL - 1, 10)],
)
def test_a_list_is_read_on_although_the_object_it_was_read_up_to_is_deleted(
    arriving: int, deleted: int, size: int, tmp_path: Path
) -> None:
    with RestServer({"charges": {"order": "oldest"}}) as server:
        origin = List(server, tmp_path, **(ONWARD | {"paging": {"size": size}}))
        origin.arrive(25)
        moved: list[Moved] = []
        deliver(origin, moved, "one")
        wanted = origin.rows()
        for id_ in wanted[-deleted:]:
            server.remove("charges", str(id_))
        origin.arrive(arriving)
        wanted = [*wanted, *origin.rows()[25 - deleted :]]
        assert bool(deliver(origin, moved, "two")) == bool(arriving)
        assert ids_of(moved) == wanted
        # The next object that is deleted does not matter either.
        if arriving > 1:
            server.remove("charges", str(wanted[-1]))
        origin.arrive(3)
        deliver(origin, moved, "three")
        assert ids_of(moved) == [*wanted, *origin.rows()[-3:]]


def test_a_short_list_is_read_on_although_all_that_it_had_is_deleted(tmp_path: Path) -> None:
    with RestServer({"charges": {"order": "oldest"}}) as server:
        origin = List(server, tmp_path, **ONWARD)
        origin.arrive(7)
        moved: list[Moved] = []
        deliver(origin, moved, "one")
        wanted = origin.rows()
        for id_ in wanted:
            server.remove("charges", str(id_))
        origin.arrive(5)
        deliver(origin, moved, "two")
        assert ids_of(moved) == [*wanted, *origin.rows()]


def test_objects_that_are_deleted_while_a_list_is_read_on(tmp_path: Path) -> None:
    with RestServer({"charges": {"order": "oldest"}}) as server:
        origin = List(server, tmp_path, **ONWARD)
        origin.arrive(100)
        wanted = origin.rows()
        opened = origin.open()
        content, ceiling = begin(opened, origin, None, "one")
        assert ceiling is not None
        found, last = list[Any](), None
        budget = Budget(bytes=1 << 20, rows=10)
        while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=budget):
            found += read(opened, origin, slice_).rows
            last = slice_.position
            for id_ in found[-3:]:
                server.remove("charges", id_)
        opened.close()
        assert found == wanted


def test_where_no_place_is_left_the_stream_fails_and_says_how_to_go_on(tmp_path: Path) -> None:
    with RestServer({"charges": {"order": "oldest"}}) as server:
        origin = List(server, tmp_path, **ONWARD)
        origin.arrive(60)
        moved: list[Moved] = []
        deliver(origin, moved, "one")
        for id_ in origin.rows()[-TRAIL - 5 :]:
            server.remove("charges", str(id_))
        origin.arrive(5)
        server.forget_requests()
        with pytest.raises(StreamFailed, match=r"no longer knows the place.*No such object") as failed:
            deliver(origin, moved, "two")
        assert "`penstock state reset FILE --stream charges`" in failed.value.next_step
        assert "a second time" in failed.value.next_step
        assert len(server.requests()) < 2 * TRAIL + 10
        again: list[Moved] = []
        deliver(origin, again, "three")
        assert ids_of(again) == origin.rows()


@pytest.mark.parametrize("way", ["token", "next_url"])
def test_a_token_that_is_no_longer_valid_fails_the_stream_and_says_how_to_go_on(way: str, tmp_path: Path) -> None:
    endpoint, options = WAYS[way]
    with RestServer({"charges": {**endpoint, "order": "oldest"}}) as server:
        origin = List(server, tmp_path, **(ONWARD | {"paging": {**options["paging"], "size": 10}}))
        origin.arrive(25)
        moved: list[Moved] = []
        deliver(origin, moved, "one")
        origin.arrive(5)
        server.change("charges", refuses_cursors=400)
        with pytest.raises(StreamFailed, match=r"no longer knows the place.*No such page") as failed:
            deliver(origin, moved, "two")
        assert "`penstock state reset FILE --stream charges`" in failed.value.next_step
        server.change("charges", refuses_cursors=0)
        deliver(origin, moved, "three")
        assert ids_of(moved) == origin.rows()


def test_a_request_that_is_refused_with_and_without_its_cursor_is_no_deleted_object(tmp_path: Path) -> None:
    with RestServer({"charges": {"order": "oldest"}}) as server:
        origin = List(server, tmp_path, **ONWARD)
        origin.arrive(25)
        moved: list[Moved] = []
        deliver(origin, moved, "one")
        server.change("charges", status=422)
        with pytest.raises(StreamFailed, match="always answers 422"):
            deliver(origin, moved, "two")


def test_a_mark_without_earlier_places_is_read(tmp_path: Path) -> None:
    """Made before marks had them: the list is read on, and from then on they are kept."""
    position = CursorPosition.read(Mark.of({"cursor": "ch_1", "seen": []}))
    assert [*position.earlier()] == []
    following = position.move_on("ch_3", ["ch_2", "ch_3"], [])
    assert [each.cursor for each in following.earlier()] == ["ch_2"]
    assert CursorPosition.read(following.mark()) == following


@pytest.mark.parametrize("way", ["last_id", "token", "next_url"])
def test_a_server_that_ignores_the_cursor_delivers_nothing_twice(way: str, tmp_path: Path) -> None:
    endpoint, options = WAYS[way]
    with RestServer({"charges": {**endpoint, "order": "oldest", "ignores_cursors": True}}) as server:
        origin = List(server, tmp_path, **(ONWARD | {"paging": {**options.get("paging", {}), "size": 10}}))
        origin.arrive(25)
        moved: list[Moved] = []
        with pytest.raises(StreamFailed, match="the same page again and again"):
            deliver(origin, moved, "one", Budget(bytes=1 << 20, rows=10))
        assert len(set(ids_of(moved))) == len(ids_of(moved))


# ---------------------------------------------------------------- what a look costs


@pytest.mark.parametrize("way", ["last_id", "token"])
def test_a_list_that_is_read_onward_costs_one_request_if_nothing_is_new(way: str, tmp_path: Path) -> None:
    endpoint, options = WAYS[way]
    with RestServer({"charges": {**endpoint, "order": "oldest"}}) as server:
        paging = {**options.get("paging", {}), "size": 10}
        origin = List(server, tmp_path, **(ONWARD | {"paging": paging}))
        origin.arrive(25)
        moved: list[Moved] = []
        deliver(origin, moved, "one")
        last = moved[-1].slice.position
        server.forget_requests()
        opened = source(server, tmp_path, {"charges": origin.options}, last_mark=lambda _: last.mark)
        opened.catalog()
        assert drain(opened, origin, last, run="two") == []
        assert len(server.requests()) == 1
        # Another look finds what is new since then.
        origin.arrive(5)
        assert ids_of(drain(opened, origin, last, run="three")) == origin.rows()[25:]
        opened.close()
