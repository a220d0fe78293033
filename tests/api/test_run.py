"""`penstock.run` and `penstock.sync`: the command's messages, a clean stop, failures with a next step, any thread."""

from __future__ import annotations

import gc
import json
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.shop import Shop
from tests.harness.doubles import FIND_TESTS, LoopMover
from tests.harness.faults import Command

import penstock
from penstock import wiring
from penstock.api import runs
from penstock.core.messages import Catalog, Eof, Message, StateChanged, decode, encode
from penstock.errors import ConfigError, InputError, PenstockError

SILENT = 60.0


@pytest.fixture
def shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Three thousand orders, a dozen slices."""
    monkeypatch.setattr(wiring, "make_mover", lambda _house: LoopMover())
    monkeypatch.setenv("DATABASE_URL", database)
    return Shop.open(database, tmp_path, slice_bytes=32768)


@pytest.fixture
def file(shop: Shop) -> str:
    return str(shop.folder / "shop.yaml")


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")]


def state(file: str) -> Any:
    loaded = wiring.load(file)
    store = wiring.open_store(loaded)
    found = store.state("shop", "orders")
    store.close()
    return found


# ---------------------------------------------------------------- messages


def test_it_yields_what_the_command_prints(shop: Shop, file: str, tmp_path: Path) -> None:
    said = list(penstock.run(file))
    assert isinstance(said[0], Catalog)
    assert isinstance(said[-1], Eof)
    assert shop.compared().same
    (tmp_path / "other").mkdir()
    command = Command(tmp_path / "other", environment={"DATABASE_URL": shop.url})
    (tmp_path / "other" / "shop.yaml").write_text(Path(file).read_text())
    printed = command.run("run", "shop.yaml", "--json").messages
    assert [shape(message) for message in said] == [shape(decode(json.dumps(message))) for message in printed]


def shape(message: Message) -> dict[str, Any]:
    """A message without what differs from run to run."""
    document: dict[str, Any] = json.loads(encode(message))
    for key in ("_ts", "run", "slice_id", "ending_state", "run_progress", "request_progress", "cpu_seconds", "horizon"):
        document.pop(key, None)
    if document.get("mark"):
        document["mark"] = json.loads(document["mark"])["key"]
    return document


def test_a_run_with_nothing_new_starts_no_spark(shop: Shop, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    penstock.sync(file)

    def refuse(_house: Any) -> LoopMover:
        raise AssertionError("a mover was made")

    monkeypatch.setattr(wiring, "make_mover", refuse)
    summary = penstock.sync(file)
    assert (summary.rows, summary.exit_code, summary.has_more, summary.ok) == (0, 0, False, True)


def test_limits_and_streams(shop: Shop, file: str) -> None:
    summary = penstock.sync(file, "shop", streams=["orders"], max_rows=100)
    assert (summary.rows, summary.has_more, summary.pipelines["shop"].status) == (100, True, "limited")
    assert penstock.sync(file, streams="orders", overrides={"slice_bytes": "1MB"}).rows == 2900
    assert shop.compared().same


def test_overrides_are_as_strict_as_the_file(shop: Shop, file: str) -> None:
    with pytest.raises(ConfigError) as refused:
        penstock.run(file, overrides={"source.shcema": "sales"})
    assert "did you mean 'schema'" in str(refused.value)


# ---------------------------------------------------------------- bad input and failures


def test_bad_input_is_raised_at_once(shop: Shop, file: str) -> None:
    with pytest.raises(ConfigError):
        penstock.run(str(shop.folder / "none.yaml"))
    with pytest.raises(InputError, match="no pipeline 'shp'"):
        penstock.run(file, "shp")
    with pytest.raises(InputError, match="max_rows must be at least 1"):
        penstock.run(file, max_rows=0)
    with pytest.raises(InputError, match="time_limit must be greater than 0"):
        penstock.run(file, time_limit=0)
    assert threads() == []


def test_a_failure_is_said_and_raised_only_when_asked(shop: Shop, file: str) -> None:
    (shop.folder / "shop.yaml").write_text(Path(file).read_text().replace("tiebreaker: id", "tiebreaker: none"))
    run = penstock.run(file)
    summary = run.result()
    assert (summary.ok, summary.exit_code) == (False, 2)
    with pytest.raises(penstock.RunFailed) as failed:
        penstock.sync(file)
    error = failed.value
    assert isinstance(error, PenstockError)
    assert error.what.startswith("orders: ")
    assert "none" in error.what
    assert error.next_step
    assert error.pipeline == "shop"
    assert error.summary.exit_code == 2


def test_a_connection_that_fails_names_the_command_that_helps_with_the_file(shop: Shop, file: str) -> None:
    with pytest.raises(penstock.RunFailed) as failed:
        penstock.sync(file, overrides={"source.url": "postgresql://nobody@localhost:1/none"})
    assert failed.value.summary.exit_code == 3
    assert "FILE" not in failed.value.next_step


def test_a_store_that_cannot_be_opened_is_raised_to_whoever_iterates(shop: Shop, file: str) -> None:
    (shop.folder / "broken.db").write_text("this is no store")
    with pytest.raises(InputError):
        list(penstock.run(file, overrides={"store": "broken.db"}))
    assert threads() == []


def test_a_defect_is_not_swallowed(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(wiring, "assemble", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        list(penstock.run(file))
    assert threads() == []


# ---------------------------------------------------------------- a clean stop


def moved(run: Iterator[Message], slices: int) -> None:
    for message in run:
        slices -= isinstance(message, StateChanged)
        if not slices:
            return


def resumes(shop: Shop, file: str) -> None:
    """Nothing is held any more, and the next run ends what the first began."""
    assert threads() == []
    found = state(file)
    assert found.last is not None
    assert found.rows < 3000
    summary = penstock.sync(file)
    assert summary.rows == 3000 - found.rows
    assert shop.compared().same


def test_closing_it_stops_the_run(shop: Shop, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_UNREAD_MESSAGES", 1)
    run = penstock.run(file)
    moved(run, 2)
    run.close()
    assert list(run) == []
    summary = run.result()
    assert (summary.pipelines["shop"].status, summary.exit_code, summary.has_more) == ("interrupted", 143, True)
    resumes(shop, file)


def test_a_break_stops_the_run(shop: Shop, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_UNREAD_MESSAGES", 1)
    for message in penstock.run(file):
        if isinstance(message, StateChanged):
            break
    gc.collect()
    resumes(shop, file)


def test_leaving_its_with_stops_the_run_also_by_an_error(
    shop: Shop, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_UNREAD_MESSAGES", 1)

    def failing() -> None:
        with penstock.run(file) as run:
            moved(run, 1)
            raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        failing()
    resumes(shop, file)


def test_closing_it_while_parts_move_leaves_the_slice_open(
    shop: Shop, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, given_up = threading.Event(), threading.Event()

    class Long(LoopMover):
        def move(self, *_: Any) -> Any:
            moving.set()
            assert given_up.wait(SILENT)
            raise penstock.PenstockError("given up", next_step="run again")

        def cancel(self) -> None:
            given_up.set()

    with monkeypatch.context() as patch:
        patch.setattr(wiring, "make_mover", lambda _house: Long())
        with penstock.run(file) as run:
            assert moving.wait(SILENT)
        assert run.result().pipelines["shop"].status == "interrupted"
    assert state(file).intent is not None
    said = list(penstock.run(file))
    assert any(getattr(message, "resumed", False) for message in said)
    assert shop.compared().same


def test_one_who_takes_no_messages_holds_the_run_up_and_can_still_close_it(
    shop: Shop, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_UNREAD_MESSAGES", 2)
    run = penstock.run(file)
    deadline = time.monotonic() + SILENT
    while not run._work.messages.full() and time.monotonic() < deadline:
        time.sleep(0.01)
    run.close()
    resumes_or_begins = state(file)
    assert resumes_or_begins.rows < 3000
    assert penstock.sync(file).rows == 3000 - resumes_or_begins.rows


# ---------------------------------------------------------------- threads and signals


def test_it_works_in_any_thread_and_touches_no_signal(shop: Shop, file: str) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(penstock.sync(file)))
    thread.start()
    thread.join(SILENT)
    assert found[0].rows == 3000
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_two_runs_at_once_in_one_process(shop: Shop, file: str, tmp_path: Path) -> None:
    found: list[Any] = []
    where = [{"store": f"store{n}.db", "sink.directory": f"out{n}"} for n in (1, 2)]
    workers = [threading.Thread(target=lambda w=w: found.append(penstock.sync(file, overrides=w))) for w in where]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SILENT)
    assert [summary.rows for summary in found] == [3000, 3000]


SCRIPT = (
    FIND_TESTS
    + """
import sys
import time
import penstock
from penstock import wiring
from penstock.api import runs
from penstock.core.messages import StateChanged
from tests.harness.doubles import LoopMover
class Slow(LoopMover):
    moved = False

    def move(self, *what):
        if self.moved:
            time.sleep(5)  # the signal comes in the middle of the run, however busy the machine is
        self.moved = True
        return super().move(*what)

wiring.make_mover = lambda _house: Slow()
runs.WAITING = 1
run = penstock.run("shop.yaml")
for message in run:
    if isinstance(message, StateChanged):
        print("moved", flush=True)
        if "--leave" in sys.argv:
            sys.exit(7)
"""
)


def started(shop: Shop, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        cwd=shop.folder,
        env={**os.environ, "DATABASE_URL": shop.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background may ignore Ctrl-C, and a child would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_ctrl_c_stops_the_run_and_is_the_callers(shop: Shop, file: str) -> None:
    process = started(shop)
    assert process.stdout is not None
    assert process.stdout.readline() == "moved\n"
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=SILENT)
    assert "KeyboardInterrupt" in err
    with_holder = wiring.open_store(wiring.load(file))
    assert with_holder.holder("shop") is None, "it gave the pipeline back"
    with_holder.close()
    resumes(shop, file)


def test_a_process_that_ends_in_the_middle_gives_the_pipeline_back(shop: Shop, file: str) -> None:
    process = started(shop, "--leave")
    _, err = process.communicate(timeout=SILENT)
    assert (process.returncode, err) == (7, "")
    store = wiring.open_store(wiring.load(file))
    assert store.holder("shop") is None
    store.close()
    resumes(shop, file)


# ---------------------------------------------------------------- the package


def test_import_stays_quick() -> None:
    script = "import sys, penstock; print(sorted(m for m in sys.modules if m.startswith('penstock')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['penstock']\n"


def test_what_is_exported() -> None:
    for name in ("run", "sync", "read", "Run", "Summary", "RunFailed", "PenstockError"):
        assert getattr(penstock, name).__module__.startswith("penstock.")
        assert name in dir(penstock)
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        operator.attrgetter("rnu")(penstock)
