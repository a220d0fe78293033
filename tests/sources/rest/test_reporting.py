"""What a source reports while it fetches: what the server was asked, and the parts of the range that are done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.harness.rest_server import RestServer
from tests.sources.rest.lists import List, source

from penstock.core.fetches import FetchCounts
from penstock.core.marks import Position
from penstock.ports import Budget
from penstock.sources.rest import reporting
from penstock.sources.rest.times import Unit
from penstock.testing.contracts.source import begin, next_slice

BUDGET = Budget(bytes=300_000, workers=2)


def fetch(server: RestServer, folder: Path, options: dict[str, Any], **more: Any) -> list[FetchCounts]:
    """Gather every slice of a list; what was reported."""
    reports: list[FetchCounts] = []

    def report(stream: str, doing: str, *, fetched: FetchCounts | None = None, **_: Any) -> None:
        assert (stream, doing) == ("charges", "fetching pages")
        assert fetched is not None
        reports.append(fetched)

    origin = List(server, folder, **options)
    opened = source(server, folder, {"charges": options}, report=report, **more)
    content, ceiling = begin(opened, origin, None, "one")
    assert ceiling is not None
    last: Position | None = None
    while slice_ := next_slice(opened, origin, last, content=content, ceiling=ceiling, budget=BUDGET):
        last = slice_.position
    opened.close()
    return reports


def test_the_last_report_is_what_the_server_was_asked(tmp_path: Path) -> None:
    with RestServer({"charges": {}}) as server:
        server.arrive("charges", 4000, in_a_second=10)
        first, *_, last = fetch(server, tmp_path, {"time": {"lag": 0}})
        assert (last.records, last.requests, last.retries) == (4000, len(server.requests()), 0)
        assert last.pages == 40 < last.requests
        assert last.done == ((0.0, 1.0),)
        oldest = min(at for _, at in server.objects("charges"))
        assert last.begin == Unit("seconds").show(oldest)
        assert first.records < 4000
        assert first.share_done is not None
        assert first.share_done < 1


def test_a_stream_reports_once_a_second_and_at_the_end_of_a_gather(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RestServer({"charges": {}}) as server:
        server.arrive("charges", 4000, in_a_second=10)
        monkeypatch.setattr(reporting, "REPORT_SECONDS", 1e9)
        few = fetch(server, tmp_path / "few", {"time": {"lag": 0}})
        monkeypatch.setattr(reporting, "REPORT_SECONDS", 0.0)
        many = fetch(server, tmp_path / "many", {"time": {"lag": 0}})
        assert len(many) >= 40 > len(few)
        # Only what lies behind is counted as done.
        shares = [each.share_done or 0.0 for each in many]
        assert [each.records for each in many] == sorted(each.records for each in many)
        assert all(0 <= share <= 1 for share in shares)


def test_retries_and_waits_are_counted(tmp_path: Path) -> None:
    with RestServer({"charges": {}}, errors=0.3) as server:
        server.arrive("charges", 1000, in_a_second=10)
        last = fetch(server, tmp_path, {"time": {"lag": 0}}, retries=50, rate_limit=200)[-1]
        assert last.requests == len(server.requests())
        assert last.retries > 0
        assert last.waited > 0
        assert last.records == 1000


def test_a_list_that_is_not_read_by_time_has_no_range(tmp_path: Path) -> None:
    with RestServer({"charges": {}}) as server:
        server.arrive("charges", 300)
        last = fetch(server, tmp_path, {})[-1]
        assert (last.records, last.pages, last.begin, last.share_done) == (300, 3, None, None)


def test_a_range_begins_where_it_is_configured_to(tmp_path: Path) -> None:
    with RestServer({"charges": {}}) as server:
        server.arrive("charges", 300)
        options = {"time": {"lag": 0}, "time_range": {"from": "2020-01-01"}}
        assert fetch(server, tmp_path, options)[-1].begin == "2020-01-01T00:00:00Z"
