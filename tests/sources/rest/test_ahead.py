"""Pages that are fetched ahead: asked for once, and thrown away where the mark or the ceiling is another one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source

from penstock.core.marks import Position
from penstock.ports import Budget
from penstock.sources.rest import Options
from penstock.testing.contracts.source import Moved, begin, each_once, next_slice, read

LOOK = Budget(bytes=1 << 20, rows=1, look=True)
BUDGET = Budget(bytes=300_000, workers=2)


def test_the_next_slice_is_fetched_while_this_one_moves(tmp_path: Path) -> None:
    with RestServer({"charges": {}}) as server:
        origin = List(server, tmp_path, time={"lag": 0})
        origin.arrive(6000)
        opened = origin.open()
        content, ceiling = begin(opened, origin, None, "one")
        assert ceiling is not None
        moved: list[Moved] = []
        last: Position | None = None
        while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=BUDGET):
            before = len(server.requests())
            time.sleep(0.3)
            after = len(server.requests())
            moved.append(read(opened, origin, slice_))
            last = slice_.position
            if len(moved) == 1:
                assert after > before
        opened.close()
        assert len(moved) > 2
        assert each_once([row for one in moved for row in one.rows], origin.rows())
        cursors = [tuple(sorted(each["query"].items())) for each in server.requests()]
        assert len(set(cursors)) == len(cursors), "a page was asked for twice"


def test_what_was_fetched_under_another_mark_or_ceiling_is_thrown_away(tmp_path: Path) -> None:
    with RestServer({"charges": {}}) as server:
        origin = List(server, tmp_path, time={"lag": 0})
        origin.arrive(4000)
        opened = origin.open()
        content, ceiling = begin(opened, origin, None, "one")
        assert ceiling is not None
        first = next_slice(opened, origin, None, content=content, ceiling=ceiling, budget=BUDGET)
        assert first is not None
        origin.arrive(100)
        content, higher = begin(opened, origin, None, "two")
        assert higher is not None
        assert higher != ceiling
        moved: list[Moved] = []
        last: Position | None = None
        # From the beginning again, as after a reset.
        while slice_ := next_slice(opened, origin, last, content=content, ceiling=higher, budget=BUDGET):
            moved.append(read(opened, origin, slice_))
            last = slice_.position
        opened.close()
        assert each_once([row for one in moved for row in one.rows], origin.rows())


def test_other_streams_begin_while_the_first_one_is_read(tmp_path: Path) -> None:
    names = ["charges", "refunds", "payouts"]
    with RestServer({name: {} for name in names}, latency=0.02) as server:
        for name in names:
            server.arrive(name, 1000)
        opened = source(server, tmp_path, {name: {"time": {"lag": 0}} for name in names})
        origins = [List(server, tmp_path, time={"lag": 0}) for _ in names]
        about = {}
        for origin, name in zip(origins, names, strict=True):
            origin.stream = name
            content = opened.content(name)
            ceiling = opened.ceiling(name, content, "one")
            assert ceiling is not None
            assert opened.plan(name, content, None, ceiling, LOOK)
            about[name] = content, ceiling
        server.forget_requests()
        content, ceiling = about["charges"]
        slice_ = next_slice(opened, origins[0], None, content=content, ceiling=ceiling, budget=Budget(bytes=1 << 24))
        assert slice_ is not None
        assert {each["path"] for each in server.requests()} == {f"/v1/{name}" for name in names}
        # The ceiling that pages are fetched under stays.
        assert opened.ceiling("refunds", about["refunds"][0], "one") == about["refunds"][1]
        for origin, name in zip(origins[1:], names[1:], strict=True):
            content, ceiling = about[name]
            slice_ = next_slice(opened, origin, None, content=content, ceiling=ceiling, budget=Budget(bytes=1 << 24))
            assert slice_ is not None
            assert each_once(read(opened, origin, slice_).rows, origin.rows())
        opened.close()
        assert len(server.requests()) == 30


def test_every_stream_has_its_first_page_before_any_has_its_second(tmp_path: Path) -> None:
    names = [f"list_{number}" for number in range(4)]
    with RestServer({name: {} for name in names}, latency=0.02) as server:
        for name in names:
            server.arrive(name, 500)
        opened = source(server, tmp_path, {name: {"time": {"lag": 0}} for name in names}, concurrency=1)
        about = {}
        for name in names:
            content = opened.content(name)
            ceiling = opened.ceiling(name, content, "one")
            assert ceiling is not None
            assert opened.plan(name, content, None, ceiling, LOOK)
            about[name] = content, ceiling
        server.forget_requests()
        origin = List(server, tmp_path)
        origin.stream = "list_0"
        content, ceiling = about["list_0"]
        assert next_slice(opened, origin, None, content=content, ceiling=ceiling, budget=Budget(bytes=1 << 24))
        opened.close()
        paths = [each["path"] for each in server.requests()]
        assert set(paths[:4]) == {f"/v1/{name}" for name in names}


@pytest.mark.parametrize("most", [1, 3, 10])
def test_no_more_streams_at_the_same_time_than_allowed(most: int, tmp_path: Path) -> None:
    names = [f"list_{number}" for number in range(6)]
    with RestServer({name: {} for name in names}, latency=0.01) as server:
        for name in names:
            server.arrive(name, 1000)
        options = {name: {"time": {"lag": 0}} for name in names}
        opened = source(server, tmp_path, options, max_concurrent_streams=most)
        about = {}
        for name in names:
            content = opened.content(name)
            ceiling = opened.ceiling(name, content, "one")
            assert ceiling is not None
            assert opened.plan(name, content, None, ceiling, LOOK)
            about[name] = content, ceiling
        server.forget_requests()
        origin = List(server, tmp_path)
        for number, name in enumerate(names):
            origin.stream = name
            content, ceiling = about[name]
            slice_ = next_slice(opened, origin, None, content=content, ceiling=ceiling, budget=Budget(bytes=1 << 24))
            assert slice_ is not None
            assert each_once(read(opened, origin, slice_).rows, origin.rows())
            if number == 0:
                time.sleep(0.3)
                assert len({each["path"] for each in server.requests()}) == min(most, 6)
        opened.close()


@pytest.mark.parametrize(
    ("options", "streams", "requests"),
    [
        ({}, 1, 5),
        ({}, 8, 5),
        ({"rate_limit": 20}, 1, 5),
        ({"rate_limit": 20}, 8, 20),
        ({"rate_limit": 3}, 8, 3),
        ({"rate_limit": 0.2}, 8, 1),
        ({"rate_limit": 3, "concurrency": 7}, 8, 7),
    ],
)
def test_the_requests_at_the_same_time(options: dict[str, Any], streams: int, requests: int) -> None:
    assert Options(base_url="http://localhost", **options).requests_at_once(streams) == requests
