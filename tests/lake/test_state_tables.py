"""State tables in a real lake: slices, crashes, and what a state table is refused for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.lake.state_tables import STREAM, StateWorld
from tests.lake.test_folding import DELETE, Case, document, query, set_

from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.testing.contracts.delivery import Crash, Crashing

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

Worlds = Callable[..., StateWorld]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, spark_provider: SparkSessionProvider) -> Worlds:
    folder, numbers = tmp_path_factory.mktemp("state"), count(1)
    return lambda **more: StateWorld(folder, f"n{next(numbers)}", spark_provider, **more)


def image(key: str, *ops: Any) -> dict[str, Any]:
    return document(*ops, key=key, creates=True)


def posts(post: str, title: str | None) -> dict[str, Any]:
    return query({"field": "post", "eq": post}, set_("title", title))


def test_random_slices_in_a_real_lake(worlds: Worlds) -> None:
    world, random = worlds(), Random(7)
    cases = [Case(random, f"c{number}") for number in range(20)]
    for _ in range(4):
        world.land(*(case.document() for case in cases for _ in range(3)))
        world.check()


def test_a_slice_that_died_anywhere_is_applied_once(worlds: Worlds) -> None:
    """Each place of a crash, and then the same slice again by another process."""
    world = worlds()
    world.land(image("a", set_("post", "p1")), image("b", set_("post", "p1")), document(set_("size", 1), key="early"))
    probe = Crashing()
    world.land(posts("p1", "x"), image("c", set_("post", "p1")), document(DELETE, key="b"), probe=probe)
    points = probe.points
    assert {"lake.part_written", "lake.folded", "lake.staged", "lake.merged", "lake.side_staged"} <= {*points}
    for place in range(len(points)):
        rows = world.rows([posts("p1", f"title {place}"), image(f"new{place}"), document(set_("size", place), key="z")])
        rows += world.rows([document(DELETE, key=f"new{place - 1}")])
        slice_ = world.next_slice()
        with pytest.raises(Crash):
            world.try_slice(rows, probe=Crashing(at_call=place))
        held = world.sink().held(STREAM)
        if held is None or held.position != slice_.position:
            assert points[place] != "lake.landed"
            world.check()
            world.try_slice(rows)
        world.expect(rows, slice_)
        world.check()
