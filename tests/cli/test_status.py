"""What `status` and `state` say of a real store."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock import wiring
from penstock.cli.shared.status_document import pipeline_document, pipeline_lines
from penstock.cli.state.history import history
from penstock.core.content import Content
from penstock.core.marks import Mark
from penstock.core.outcome import Outcome
from penstock.core.slices import Slice, following
from penstock.ports import Owner, Store
from penstock.store import open_store

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
OWNER = Owner("t", "box", 77)
FILE = """\
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://db/x"}
    sink: {type: files, directory: out}
    streams: {orders: {cursor: id, unique: true}, items: {cursor: id, unique: true}}
"""


def planned(store: Store, number: int) -> Slice:
    last = store.state("shop", "orders").last
    return following(last, pipeline="shop", stream="orders", upto=Mark.of({"id": str(number)}), content=Content(()))


def filled(store: Store, *, release: bool = True) -> None:
    """Two slices of orders done, a third open."""
    lease = store.acquire("shop", OWNER, now=NOW, ttl=30, gone=lambda _: False)
    store.start_run(lease, "r1", now=NOW)
    for number in (1, 2):
        slice_ = planned(store, number)
        store.intend(lease, slice_, now=NOW, run="r1")
        store.advance(lease, slice_, rows=1000, bytes_=1 << 20, now=NOW, run="r1")
    store.intend(lease, planned(store, 3), now=NOW, run="r1")
    if release:
        totals = json.dumps({"rows": 2000})
        ended = NOW + timedelta(seconds=65)
        store.end_run(lease, "r1", now=ended, status="failed", has_more=True, totals=totals, streams={})
        store.release(lease)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / ".penstock" / "store.db"))


def text(store: Store, *, gone: bool = False, after: float = 125) -> list[str]:
    now = NOW + timedelta(seconds=after)
    document = pipeline_document(
        store,
        "shop",
        ["orders", "items"],
        describe_mark=lambda mark: f"<{mark}>",
        gone=lambda _: gone,
        now=now,
    )
    assert json.loads(json.dumps(document)) == document
    return pipeline_lines(document, now)


def test_a_pipeline_that_nobody_runs(store: Store) -> None:
    with closing(store):
        filled(store)
        assert text(store) == [
            "shop: not running",
            "  orders: slice 2, 2,000 rows delivered (2.0 MiB), moved 2 min 5 s ago (2026-11-15 12:00:00 UTC)",
            '    mark: <{"id":"2"}>',
            '    open: slice 3 (<{"id":"3"}>); the next run finishes it first',
            "  items: not started",
            "  last runs:",
            "    2026-11-15 12:00:00 UTC  failed in 1 min 5 s, 2,000 rows, more to do",
        ]


def test_what_became_of_rows(store: Store) -> None:
    with closing(store):
        lease = store.acquire("shop", OWNER, now=NOW, ttl=30, gone=lambda _: False)
        store.start_run(lease, "r1", now=NOW)
        for number, outcome in enumerate([Outcome(created=990, folded=10), Outcome(updated=1, stale=1999)], start=1):
            store.intend(lease, slice_ := planned(store, number), now=NOW, run="r1")
            rows = outcome.rows
            store.advance(lease, slice_, rows=rows, bytes_=rows, now=NOW, run="r1", outcome=outcome)
        totals = {"rows": 2005, "outcome": {"created": 1, "updated": 1, "stale": 1999}}
        store.save_progress(lease, "r1", totals=json.dumps(totals), streams={})
        assert text(store) == [
            "shop: process 77 on box has sent no heartbeat since 2026-11-15T12:00:00.000000Z; the next run takes over",
            "  orders: slice 2, 3,000 rows delivered (2.9 KiB), moved 2 min 5 s ago (2026-11-15 12:00:00 UTC)",
            "    rows: 990 created, 1 updated, 1,999 skipped as stale, 10 folded",
            '    mark: <{"id":"2"}>',
            "  items: not started",
            "  last runs:",
            "    2026-11-15 12:00:00 UTC  killed, 2,005 rows (1 created, 1 updated, 1,999 skipped as stale)",
        ]


def test_rows_that_were_delivered_before_it_was_kept(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(store):
        filled(store)
        lease = store.acquire("shop", OWNER, now=NOW, ttl=30, gone=lambda _: False)
        intent = store.state("shop", "orders").intent
        assert intent is not None
        store.advance(lease, intent, rows=5, bytes_=0, now=NOW, run="r1", outcome=Outcome(created=2, equal=3))
        before = "; not recorded for earlier rows"
        assert text(store)[2] == f"    rows: 2 created, 3 skipped as equal{before}"
    (tmp_path / "shop.yaml").write_text(FILE)
    history(str(tmp_path / "shop.yaml"), stream=["orders"])
    newest, older = capsys.readouterr().out.splitlines()[1:3]
    assert "advance, slice 3, 5 rows (2 created, 3 skipped as equal); mark: " in newest
    assert "advance, slice 2, 1,000 rows; mark: " in older
    history(str(tmp_path / "shop.yaml"), stream=["orders"], as_json=True)
    [orders] = json.loads(capsys.readouterr().out)["pipelines"][0]["streams"]
    changes = orders["changes"]
    assert [change["outcome"] for change in changes] == [{"created": 2, "equal": 3}, None, None]


def test_who_holds_a_pipeline(store: Store) -> None:
    with closing(store):
        filled(store, release=False)
        running = "shop: running in process 77 on box, last heartbeat 2026-11-15T12:00:00.000000Z"
        assert text(store, after=5)[0] == running
        assert text(store, after=5)[-1] == "    2026-11-15 12:00:00 UTC  running, 0 rows"
        expired = "has sent no heartbeat since 2026-11-15T12:00:00.000000Z; the next run takes over"
        assert text(store, after=60)[0] == f"shop: process 77 on box {expired}"
        gone = "shop: process 77 on box ended without releasing it; the next run takes over"
        assert text(store, gone=True)[0] == gone
        assert text(store, gone=True)[-1] == "    2026-11-15 12:00:00 UTC  killed, 0 rows"


def test_a_stopped_stream(store: Store) -> None:
    with closing(store):
        lease = store.acquire("shop", OWNER, now=NOW, ttl=30, gone=lambda _: False)
        store.stop(lease, "orders", "the sink is behind", now=NOW)
        assert text(store)[1:3] == ["  orders: not started", "    stopped: the sink is behind"]


def command(folder: Path, *words: str, answer: str | None = None) -> tuple[int, str, str]:
    """Run a command; with an answer, at a terminal."""
    arguments = [sys.executable, "-m", "penstock", *words]
    if answer is None:
        done = subprocess.run(
            arguments, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        done = subprocess.run(arguments, cwd=folder, stdin=theirs, capture_output=True, text=True, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path, store: Store) -> Path:
    with closing(store):
        filled(store)
    (tmp_path / "shop.yaml").write_text(FILE)
    return tmp_path


def test_the_commands_read_the_same_store(folder: Path) -> None:
    code, shown, errors = command(folder, "status", "shop.yaml", "--json")
    assert (code, errors) == (0, "")
    orders = json.loads(shown)["pipelines"][0]["streams"][0]
    assert (orders["slice"], orders["rows"], orders["mark"]) == (2, 2000, {"id": "2"})
    code, shown, errors = command(folder, "state", "show", "shop.yaml", "--stream", "orders")
    assert (code, errors) == (0, "")
    assert '  as stored: {"id": "2"}' in shown.splitlines()
    assert command(folder, "state", "show", "shop.yaml", "--stream", "order") == (
        2,
        "",
        "error: there is no stream 'order'; did you mean 'orders'?\nNothing was read or written.\n"
        "Next: list the streams: `penstock status shop.yaml`\n",
    )


@pytest.mark.parametrize("answer", [None, "n\n", "\n"])
def test_a_reset_says_what_it_reads_again_and_asks(folder: Path, answer: str | None) -> None:
    before = wiring.load(str(folder / "shop.yaml"))
    code, told, errors = command(folder, "state", "reset", "shop.yaml", "--stream", "orders", answer=answer)
    assert code == 2
    assert told.startswith("shop/orders: 2,000 rows delivered so far; mark: ")
    assert told.splitlines()[1].startswith("  Every row is read again from the beginning: the row count is unknown")
    assert told.splitlines()[2] == "Rows delivered so far stay in the sink."
    reason = "this command needs a confirmation" if answer is None else "not confirmed"
    assert errors.startswith(f"error: {reason}")
    with closing(wiring.open_store(before)) as opened:
        state = opened.state("shop", "orders")
        assert (state.reset_wanted, state.rows) == (False, 2000)
