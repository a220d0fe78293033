"""Cursors that the API refuses or ignores: read again without doubles where that is possible, else refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.rest.lists import List
from tests.sources.rest.test_paging import WAYS

from penstock.core.marks import Position
from penstock.errors import StreamFailed
from penstock.ports import Budget
from penstock.sources.rest import ChangingSource
from penstock.sources.rest.standstill import RESTARTS
from penstock.testing.contracts.source import Moved, begin, drain, each_once, next_slice, read
from penstock.testing.rest_server import RestServer

BUDGET = Budget(bytes=1 << 20)


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer({"charges": {}}) as server:
        yield server


def move_all(opened: ChangingSource, origin: List, moved: list[Moved]) -> None:
    """Like `drain`, and keeps the slices before a failure."""
    content, ceiling = begin(opened, origin, None, "one")
    assert ceiling is not None
    last: Position | None = None
    while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=BUDGET):
        moved.append(read(opened, origin, slice_))
        last = slice_.position


# ---------------------------------------------------------------- lists by time


@pytest.mark.parametrize("status", [400, 404, 422])
@pytest.mark.parametrize("in_a_second", [20, 45, 300])
@pytest.mark.parametrize("way", ["last_id", "token", "next_url"])
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


def test_a_server_that_ignores_the_cursor_within_a_second_fails_the_stream(tmp_path: Path) -> None:
    with RestServer({"charges": {"ignores_cursors": True}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, paging={"size": 20})
        server.arrive("charges", 50, in_a_second=50)
        opened = origin.open()
        with pytest.raises(StreamFailed, match="the same pages again and again"):
            drain(opened, origin, budget=BUDGET)
        opened.close()
        assert len(server.requests()) < 10


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
