"""What happened last night: `status`, `state show` and `runs` after failures, quiet nights and a dead scheduler."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from tests.harness.doubles import LoopMover, MemorySource, Rows
from tests.store.memory_store import MemoryStore
from typer.testing import CliRunner, Result

from penstock import wiring
from penstock.cli import app
from penstock.cli.runs.report import document, lines
from penstock.cli.shared.status_document import pipeline_document, pipeline_lines
from penstock.core.content import Content
from penstock.core.reports import WHOLE_RUN, Problem, RunReport
from penstock.errors import ConnectionFailed, StreamFailed
from penstock.ports import Owner
from penstock.store import location, open_store

FILE = """\
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://db/x"}
    sink: {type: files, directory: out, format: ndjson}
    streams: {orders: {}, items: {}}
"""
NOW = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
FULL = Problem("the disk is full", "Nothing was lost.", "penstock run FILE --stream items")


class Source(MemorySource):
    """Can be unreachable, and fail on a stream."""

    reachable = True
    broken: str | None = None

    def connect(self) -> None:
        if not self.reachable:
            raise ConnectionFailed("no route to db:5432", next_step="see that the server is up")

    def content(self, stream: str) -> Content:
        if stream == self.broken:
            raise StreamFailed("the table is locked", next_step=f"penstock check FILE --stream {stream}")
        return super().content(stream)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    streams = {"orders": Rows(), "items": Rows()}
    for stream in streams.values():
        stream.arrive(1)
    source = Source(streams)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "build_source", lambda *_, **__: source)
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    Path("shop.yaml").write_text(FILE)
    return source


def penstock(*words: str) -> Result:
    return CliRunner().invoke(app, words, prog_name="penstock")


def run(*words: str) -> int:
    return penstock("run", "shop.yaml", *words).exit_code


def status(*words: str) -> dict[str, Any]:
    [pipeline] = json.loads(penstock("status", "shop.yaml", "--json", *words).stdout)["pipelines"]
    return dict(pipeline)


def by_name(pipeline: dict[str, Any]) -> dict[str, Any]:
    return {stream["stream"]: stream for stream in pipeline["streams"]}


def text(*words: str) -> list[str]:
    return penstock(*words, "shop.yaml").stdout.splitlines()


# ---------------------------------------------------------------- status


def test_a_stream_that_fails_comes_first_with_its_error_and_next_step(source: Source) -> None:
    assert run() == 0
    source.broken = "items"
    assert [run(), run()] == [1, 1]
    items = by_name(status())["items"]
    error = items["last_error"]
    assert (error["what"], error["failures"]) == ("the table is locked", 2)
    assert error["next_step"] == "penstock check shop.yaml --stream items"
    assert error["since"] < error["at"]
    shown = text("status")
    assert shown[1].startswith("  items: slice 1, 1 row delivered")
    assert re.fullmatch(r"    failed 2 times since .* UTC, last .* ago \(.* UTC\): the table is locked", shown[2])
    assert shown[3] == "    Next: penstock check shop.yaml --stream items"
    # `state show` says the same.
    marks = text("state", "show")
    assert marks[0].startswith("shop/items: slice 1")
    assert [re.sub(r"\S+ s ago", "", line) for line in shown[2:4]] == [
        re.sub(r"\S+ s ago", "", f"  {line}") for line in marks[1:3]
    ]
    assert penstock("status", "shop.yaml", "--stream", "orders").stdout.count("failed") == 2  # the last runs

    source.broken = None
    assert run() == 0
    assert by_name(status())["items"]["last_error"]["failures"] == 0
    assert any(", succeeded since: the table is locked" in line for line in text("status"))


def test_a_database_that_was_away_all_night_is_seen_in_the_morning(source: Source) -> None:
    assert run() == 0
    source.reachable = False
    assert [run() for _ in range(3)] == [3, 3, 3]
    found = status()
    assert (found["last_error"]["what"], found["last_error"]["failures"]) == ("no route to db:5432", 3)
    assert text("status")[1:3][1] == "  Next: see that the server is up"
    assert found["last_run_at"] > by_name(found)["orders"]["looked_at"]


def test_an_idle_run_leaves_when_it_looked(source: Source) -> None:
    assert run() == 0
    first = status()
    assert run() == 0
    second = status()
    assert second["last_run_at"] > first["last_run_at"]
    assert by_name(second)["orders"]["looked_at"] > by_name(first)["orders"]["looked_at"]
    assert len(second["runs"]) == 1, "no run record, no lease"
    assert "; last run ended " in text("status")[0]
    assert run("--stream", "items") == 0
    third = by_name(status())
    assert third["orders"]["looked_at"] == by_name(second)["orders"]["looked_at"] < third["items"]["looked_at"]
    assert [line for line in text("status") if line.startswith("    last checked ")] != []


def test_resets_undos_and_recovers_are_shown_as_what_they_are(source: Source) -> None:
    assert run() == 0
    for command in ("reset", "undo", "recover"):
        stream = ["--stream", "orders"] if command != "recover" else []
        assert penstock("state", command, "shop.yaml", *stream, "--yes").exit_code == 0
    assert [run["verb"] for run in status()["runs"]] == ["recover", "undo", "reset", "run"]
    listed = [line.split("UTC  ")[1].split()[0] for line in text("status")[-4:]]
    assert listed == ["recover", "undo", "reset", "complete"]


def test_an_idle_run_beside_a_writer_that_does_not_end_is_right_and_says_so(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run() == 0
    monkeypatch.setattr(location, "LOCK_WAIT_SECONDS", 0.1)
    with closing(sqlite3.connect(".penstock/store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = penstock("run", "shop.yaml")
    assert done.exit_code == 0
    assert "shop: nothing new in 2 streams" in done.stdout
    assert re.search(r"warning: shop: `penstock status` will not show this run: .*store.db is busy", done.stderr)


def test_a_run_says_soon_what_it_waits_for(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run() == 0
    monkeypatch.setattr(location, "WAIT_REPORT_SECONDS", 0.1)
    with closing(sqlite3.connect(".penstock/store.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        ending = Timer(1.0, other.rollback)
        ending.start()
        done = penstock("run", "shop.yaml")
        ending.join()
    assert done.exit_code == 0
    said = done.stdout + done.stderr
    assert re.search(r"shop: waiting for the store .*store\.db, which another process is writing to", said)
    assert said.index("waiting for the store") < said.index("nothing new in 2 streams")
    assert "is busy" not in said


def test_what_a_failed_run_left_stands_below_the_error_and_a_stop_is_said_once() -> None:
    store = MemoryStore()
    lease = store.acquire("shop", Owner("t", "box", 7), now=NOW, ttl=30, gone=lambda _: True)
    store.start_run(lease, "r1", now=NOW)
    progress = json.dumps({"left": 1200, "left_exact": False})
    store.save_progress(lease, "r1", totals="{}", streams={"items": progress})
    store.stop(lease, "items", FULL.what, now=NOW)
    store.save_report("shop", RunReport(NOW, looked=True, failed=True, problems={"items": FULL}))
    found = pipeline_document(store, "shop", ["items"], describe_mark=str, gone=lambda _: True, now=NOW)
    assert pipeline_lines(found, NOW)[1:5] == [
        "  items: not started",
        "    stopped: failed 0.0 s ago (2026-11-16 08:00:00 UTC): the disk is full",
        "    Next: penstock run FILE --stream items",
        "    left: about 1,200 rows",
    ]


def wide(store: MemoryStore, streams: int, failing: int) -> dict[str, Any]:
    names = [f"s{number}" for number in range(streams)]
    problems = dict.fromkeys(names[-failing:], FULL) if failing else {}
    store.save_report("shop", RunReport(NOW, looked=True, failed=bool(failing), problems=problems))
    return pipeline_document(store, "shop", names, describe_mark=str, gone=lambda _: True, now=NOW)


class Counting(MemoryStore):
    """Counts how often it is asked."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("streams", "state", "failures", "last_looks", "days", "runs", "holder"):
            type(self).asked += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("streams", [0, 1, 1000])
def test_the_store_is_asked_as_often_for_a_thousand_streams_as_for_one(streams: int) -> None:
    store = Counting()
    Counting.asked = 0
    found = wide(store, streams, min(streams, 2))
    assert Counting.asked == 6
    shown = pipeline_lines(found, NOW + timedelta(minutes=1))
    assert shown[0] == "shop: not running; last run ended 1 min 0 s ago (2026-11-16 08:00:00 UTC)"
    if streams:
        assert shown[2].startswith("    failed 1 min 0 s ago (2026-11-16 08:00:00 UTC): the disk is full")
    else:
        assert shown[1:] == ["  no streams yet"]


# ---------------------------------------------------------------- runs


def reported_days(store: MemoryStore, *reports: tuple[float, dict[str, Any]]) -> None:
    """Reports so many days before now."""
    for before, report in reports:
        store.save_report("shop", RunReport(NOW - timedelta(days=before), looked=True, **report))


def test_days_with_a_bar_of_rows_failures_and_days_without_a_run() -> None:
    store = MemoryStore()
    reported_days(
        store,
        (4, {"rows": 3_000_000, "bytes": 5 << 20}),
        (3, {"rows": 10}),
        (3, {"idle": True}),
        (1, {"failed": True, "rows": 1_500_000}),
        (1, {"failed": True, "problems": {WHOLE_RUN: FULL}}),
        (0, {"idle": True}),
    )
    found = document(store, "shop", 14, NOW, each=False)
    assert json.loads(json.dumps(found)) == found
    assert lines(found, ascii_only=False) == [
        "shop: 6 runs in 5 days, 2 with nothing new, 2 failed; 4,500,010 rows, 5.0 MiB",
        "  day         runs  idle  failed       rows",
        "  2026-11-12     1     0       0  3,000,000  ██████████████████████████████",
        "  2026-11-13     2     1       0         10  ▏",
        "  2026-11-14     0     0       0          0  no runs",
        "  2026-11-15     2     0       2  1,500,000  ✗✗ ███████████████",
        "  2026-11-16     1     1       0          0",
    ]
    assert lines(document(store, "shop", 2, NOW, each=False), ascii_only=True)[2:] == [
        "  2026-11-15     2     0       2  1,500,000  xx ##############################",
        "  2026-11-16     1     1       0          0",
    ]
    assert lines(document(store, "other", 2, NOW, each=False), ascii_only=True) == ["other: no runs in this period"]


def test_the_runs_of_the_command_and_each_of_them(source: Source) -> None:
    assert penstock("runs", "shop.yaml").stdout.startswith("There is no store at ")
    assert run("--max-rows", "1") == 0
    assert [run(), run()] == [0, 0]
    source.broken = "items"
    source.streams["items"].arrive(2)
    assert run() == 1
    assert penstock("state", "reset", "shop.yaml", "--stream", "orders", "--yes").exit_code == 0
    today = text("runs")
    assert today[0].startswith("shop: 4 runs in 1 day, 1 with nothing new, 1 failed; 2 rows")
    assert today[2].split()[1:] == ["4", "1", "1", "2", "✗", "█" * 30]
    each = text("runs", "--each")[2:]
    assert [line.split("UTC")[1].split()[0] for line in each] == ["limited", "complete", "failed", "reset:"]
    [pipeline] = json.loads(penstock("runs", "shop.yaml", "--each", "--days", "3", "--json").stdout)["pipelines"]
    assert [(run["verb"], run["rows"]) for run in pipeline["runs"]] == [
        ("run", 1),
        ("run", 1),
        ("run", 0),
        ("reset", 0),
    ]
    assert pipeline["days"][0]["rows"] == 2
    assert penstock("runs", "shop.yaml", "--days", "0").exit_code == 2


def test_a_thousand_days_and_a_thousand_runs_of_a_real_store(tmp_path: Path) -> None:
    with closing(open_store(str(tmp_path / "store.db"))) as store:
        for day in range(30, 0, -1):
            store.save_report("shop", RunReport(NOW - timedelta(days=day), looked=True, rows=day))
        found = document(store, "shop", 1000, NOW, each=True)
    assert len(found["days"]) == 31
    assert sum(day["rows"] for day in found["days"]) == 465
    assert found["runs"] == []
