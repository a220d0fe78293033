"""The end of a run's time inside a gather: what was fetched is the slice, and the rest is left."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source

from penstock.core.fetches import FetchCounts
from penstock.core.marks import Position
from penstock.ports import Budget
from penstock.sources.rest import gathering, reporting
from penstock.testing.contracts.source import Moved, begin, each_once, next_slice, read

BUDGET = Budget(bytes=1 << 26)


@pytest.mark.parametrize("options", [{"time": {"lag": 0}}, {"incremental": True, "order": "oldest"}])
def test_a_gather_ends_with_what_it_has(tmp_path: Path, options: dict[str, Any]) -> None:
    with RestServer({"charges": {"order": options.get("order", "newest")}}, latency=0.02) as server:
        origin = List(server, tmp_path, **options)
        origin.arrive(6000)
        opened = origin.open()
        content, ceiling = begin(opened, origin, None, "one")
        assert ceiling is not None
        moved: list[Moved] = []
        last: Position | None = None
        budget = replace(BUDGET, seconds=0.1)
        while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=budget):
            moved.append(read(opened, origin, slice_))
            last = slice_.position
            budget = BUDGET
        opened.close()
        assert 0 < len(moved[0].rows) < 6000
        assert len(moved) == 2
        assert each_once([row for one in moved for row in one.rows], origin.rows())


def test_a_request_without_an_answer_is_left_to_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As is one that waits before a retry; it is no failure of the stream."""
    monkeypatch.setattr(gathering, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 0.0)
    with RestServer({"charges": {}}) as server:
        hung = False

        def report(stream: str, doing: str, *, fetched: FetchCounts | None = None, **_: Any) -> None:
            nonlocal hung
            if fetched and fetched.records >= 300 and not hung:
                hung = True
                server.set_faults(latency=60)

        origin = List(server, tmp_path, time={"lag": 0})
        origin.arrive(6000)
        opened = source(server, tmp_path, {"charges": origin.options}, report=report)
        content, ceiling = begin(opened, origin, None, "one")
        assert ceiling is not None
        begun = time.monotonic()
        budget = replace(BUDGET, seconds=0.5)
        first = next_slice(opened, origin, None, content=content, ceiling=ceiling, budget=budget)
        assert first is not None
        assert time.monotonic() - begun < 10
        rows = list(read(opened, origin, first).rows)
        assert 300 <= len(rows) < 6000
        server.set_faults()
        last = first.position
        while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=BUDGET):
            rows += read(opened, origin, slice_).rows
            last = slice_.position
        opened.close()
        assert each_once(rows, origin.rows())


def test_a_range_without_an_answer_in_several_runs_in_a_row_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure of the stream, even if nothing at all was fetched: the run is limited, and has more."""
    monkeypatch.setattr(gathering, "GRACE_SECONDS", 0.1)
    with RestServer({"charges": {}}) as server:
        origin = List(server, tmp_path, time={"lag": 0}, time_range={"from": "2026-01-01"})
        origin.arrive(300)
        said: list[str] = []
        last: Position | None = None
        for number in range(1, 5):
            server.set_faults()
            opened = source(server, tmp_path, {"charges": origin.options}, said=said)
            content, ceiling = begin(opened, origin, last, str(number))
            assert ceiling is not None
            assert opened.plan("charges", content, last.mark if last else None, ceiling, BUDGET)
            server.set_faults(latency=60 if number < 4 else 0)
            budget = replace(BUDGET, seconds=0.2) if number < 4 else BUDGET
            slice_ = next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=budget)
            assert slice_ is not None
            last = slice_.position
            rows = read(opened, origin, slice_).rows
            opened.close()
            assert len(rows) == (300 if number == 4 else 0)
            assert ("abandoned" in str(last.mark)) == (number < 4)
            assert len(said) == (1 if number > 2 else 0)
        assert said[0].startswith("charges: the range from 2026-01-01T00:00:00Z to 2026-01-01T00:00:09Z was unanswered")
        assert "at the end of 3 runs in a row" in said[0]
