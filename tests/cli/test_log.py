"""`penstock log`: saved messages as lines, and how well the time was spent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import redirect_stderr
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.acceptance.shop import Shop
from tests.cli.display.scenes import START, Tape
from tests.core.strategies import given, messages

from penstock.cli.log.efficiency import STEPS, document, intervals, nothing_new
from penstock.cli.log.saved_messages import read
from penstock.cli.shared.output import Output
from penstock.core.fetches import FetchCounts
from penstock.core.messages import ConnectionStatus, Log, Message, StateChanged, StepDone, encode


def log(*words: str, given: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "log", *words],
        input=given,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def saved(*tapes: Tape) -> str:
    return "".join(encode(message) + "\n" for tape in tapes for message in tape.messages)


def shop() -> Tape:
    """12.9 s, 6 of them moving."""
    tape = Tape().catalog("orders", "items", "countries").start("orders", "items", "countries")
    tape.left("orders", 3000).slice("orders", 1000, after=4.0).slice("orders", 2000, after=1.0)
    tape.slice("items", 60, after=1.0).complete("orders", "items", "countries")
    return tape.eof(cpu_seconds=1.5)  # type: ignore[arg-type]  # a number, for once


def idle() -> Tape:
    tape = Tape().catalog("orders")
    tape.seconds += 100
    return tape.complete("orders").eof(cpu_seconds=0.5)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the summary


def test_the_time_goes_into_the_step_that_a_message_ends() -> None:
    [execution] = read(saved(shop()).splitlines()).executions
    found = document(execution)
    assert (found["pipeline"], found["status"], found["exit_code"]) == ("shop", "complete", 0)
    assert (found["rows"], found["slices"], found["cpu_seconds"]) == (3060, 3, 1.5)
    assert found["steps"] == {
        "look": 0.0,
        "plan": pytest.approx(0.4),
        "gather": 0,
        "start": 0,
        "move": pytest.approx(6.0),
        "commit": 0,
        "advance": pytest.approx(0.6),
        "close": pytest.approx(0.3),
        "other": 0,
    }
    assert found["seconds"] == pytest.approx(7.3)
    assert found["rows_per_second"] == pytest.approx(3060 / 7.3, abs=0.01)
    assert found["rows_per_second_moving"] == pytest.approx(510)
    assert found["rows_per_cpu_second"] == pytest.approx(2040)
    assert found["streams"][0] == {
        "stream": "orders",
        "rows": 3000,
        "bytes": 249000,
        "slices": 2,
        "rows_per_slice": 1500,
        "bytes_per_slice": 124500,
        "seconds": pytest.approx(5.7),
        "seconds_moving": pytest.approx(5.0),
        "fetched": None,
    }
    assert [stream["stream"] for stream in found["streams"]] == ["orders", "items"]
    assert [(gap["seconds"], gap["what"]) for gap in found["gaps"]] == [
        (pytest.approx(4.0), "moving slice 1 of orders"),
        (pytest.approx(1.0), "moving slice 2 of orders"),
        (pytest.approx(1.0), "moving slice 1 of items"),
    ]


def test_the_start_of_spark_is_a_step_of_its_own() -> None:
    tape = Tape().catalog("orders").start("orders").intend("orders").spark(after=0.5, took=12.0).done("orders", 10)
    found = document(read(saved(tape).splitlines()).executions[0])
    assert (found["steps"]["start"], found["steps"]["move"]) == (pytest.approx(12.5), pytest.approx(2.0))
    assert found["gaps"][0]["what"] == "starting Spark"


def test_what_fetching_has_cost_is_listed_for_each_stream() -> None:
    tape = Tape().catalog("charges", "refunds").start("charges", "refunds")
    tape.fetch("charges", FetchCounts(1200, 12, 15, 2, 3.5, 4.0)).fetch("refunds", FetchCounts(requests=1))
    tape.say(StepDone(stream="charges", step="gather", number=1), 3.0).slice("charges", 1200).complete("charges").eof()
    found = document(read(saved(tape).splitlines()).executions[0])
    assert found["steps"]["gather"] == pytest.approx(5.0)
    assert [(stream["stream"], stream["fetched"]) for stream in found["streams"]] == [
        (
            "charges",
            {
                "records": 1200,
                "pages": 12,
                "requests": 15,
                "requests_per_page": 1.25,
                "retries": 2,
                "seconds_waited": 3.5,
            },
        ),
        (
            "refunds",
            {"records": 0, "pages": 0, "requests": 1, "requests_per_page": None, "retries": 0, "seconds_waited": 0.0},
        ),
    ]
    shown = log("-", given=saved(tape)).stdout
    assert "  fetched  charges: 15 requests for 12 pages (1.25 each), 2 retried, waited 3.5 s\n" in shown
    assert "           refunds: 1 request for 0 pages, 0 retried, waited 0.0 s\n" in shown
    assert "done: 1,200 rows in 1 slice; 1,200 records fetched, 300/s, 1.25 requests per page, 2 retries" in shown


def test_a_failure_ends_the_step_it_happened_in() -> None:
    tape = Tape().catalog("orders").start("orders").intend("orders").failed("orders", "broken", "mend it")
    assert [(s.step, s.number) for s in intervals(tape.messages)] == [("look", None), ("plan", 1), ("move", 1)]
    tape = Tape().catalog("orders").start("orders").intend("orders").moved("orders", 5).failed("orders", "x", "y")
    assert intervals(tape.messages)[-1].what == "committing slice 1 of orders"


@given(st.lists(messages, max_size=15))
def test_any_messages_can_be_summed_up(said: list[Message]) -> None:
    book = read(map(encode, said))
    assert not book.problems
    assert [message for execution in book.executions for message in execution.messages] == said
    for execution in book.executions:
        found = document(execution)
        assert set(found["steps"]) == set(STEPS)
        assert json.loads(json.dumps(found))["rows"] == found["rows"]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_no_time_is_lost_between_the_steps(gaps: list[int]) -> None:
    moment = START
    said: list[Message] = []
    for number, gap in enumerate(gaps):
        moment += timedelta(seconds=gap)
        step = ("intend", "move", "commit")[number % 3]
        said.append(StepDone(ts=moment, stream="s", step=step, number=number))
        said.append(Log(ts=moment, level="info", text="x"))
    assert sum(interval.seconds for interval in intervals(said)) == sum(gaps[1:])


def test_what_a_run_with_nothing_new_costs() -> None:
    runs = [document(execution) for execution in read(saved(shop(), idle(), idle()).splitlines()).executions]
    assert nothing_new(runs) == {"runs": 2, "seconds_each": pytest.approx(100.3), "cpu_seconds_each": 0.5}
    assert nothing_new(runs[:1]) == {"runs": 0, "seconds_each": None, "cpu_seconds_each": None}


# ---------------------------------------------------------------- reading


def test_a_killed_run_and_the_one_after_it_are_two() -> None:
    killed = Tape().catalog("orders").start("orders").intend("orders")
    book = read(saved(killed, shop()).splitlines())
    assert [document(execution)["status"] for execution in book.executions] == ["killed", "complete"]


@given(st.integers(1, 400))
def test_a_file_cut_off_anywhere_is_read_as_far_as_it_goes(cut: int) -> None:
    text = saved(shop())[:-cut]
    book = read(text.splitlines(keepends=True))
    whole = text.count("\n")
    lost = 1 if text[text.rfind("\n") + 1 :] else 0
    assert len(book.problems) in (0, lost)
    assert sum(len(execution.messages) for execution in book.executions) == whole + lost - len(book.problems)
    if book.problems:
        assert (book.problems[0].line, book.problems[0].what[:8]) == (whole + 1, "truncate")


# ---------------------------------------------------------------- the command


def test_lines_table_and_summary() -> None:
    done = log(given=saved(shop(), idle()))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "2026-11-15T12:00:00Z shop: 3 streams: orders, items, countries",
        "2026-11-15T12:00:04Z shop/orders: slice 1 done: 1,000 rows, 81.1 KiB; mark: 1000",
    ]
    assert "2026-11-15T12:00:07Z shop: complete; 3,060 rows, 248.0 KiB in 3 slices, 7.3 s, 419 rows/s" in lines
    assert ["orders", "done", "3,000"] in [line.split()[:3] for line in lines]
    assert "  moved    3,060 rows, 248.0 KiB in 3 slices, 7.3 s: 419 rows/s, 510 rows/s while moving" in lines
    assert "  CPU      1.5 s: 2,040 rows per CPU second" in lines
    assert lines[-2:] == [
        "2 runs: 3,060 rows in 1 min 47 s",
        "nothing new in 1 run: 1 min 40 s, 0.5 s of CPU time each",
    ]


def test_the_lines_are_those_that_run_printed(capsys: pytest.CaptureFixture[str]) -> None:
    tape = Tape().catalog("orders", "items").start("orders", "items").slice("orders", 1000, after=4.0)
    tape.say(StateChanged(stream="items", version=1, number=1, slice_id="x", mark="9", reason="advance", at="id 9"))
    tape.failed("items", "broken", "penstock run shop.yaml").complete("orders").eof("failed", 1)
    refused = Tape().say(ConnectionStatus(side="source", connected=False, reason="no route", next_step="look"))
    refused.eof("failed", 3, request_progress={"pipeline": "shop"})  # type: ignore[arg-type]  # as the engine has it
    for said in (tape.messages, refused.messages):
        output = Output("shop.yaml", "shop", as_json=False, broken=lambda: None)
        with output, redirect_stderr(sys.stdout):  # as in `>> penstock.log 2>&1`
            for message in said:
                output.emit(message)
        printed = capsys.readouterr().out.splitlines()
        shown = log(given="".join(encode(message) + "\n" for message in said)).stdout.splitlines()
        assert shown[: len(printed)] == printed
        assert all(re.match(r"2026-11-15T12:00:\d\dZ ", line) for line in printed)
    assert "2026-11-15T12:00:01Z error: shop: source: no route" in printed


def test_a_long_silence_is_in_the_log_too() -> None:
    tape = Tape().catalog("orders").start("orders").intend("orders", 7).done("orders", 7, after=65)
    lines = log(given=saved(tape)).stdout.splitlines()
    assert lines[1:3] == [
        "2026-11-15T12:00:30Z shop/orders: still moving slice 1 (7 rows), 29.9 s so far",
        "2026-11-15T12:01:00Z shop/orders: still moving slice 1 (7 rows), 59.9 s so far",
    ]


def test_a_broken_last_line_and_a_foreign_one_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    lines = saved(shop()).splitlines()
    lines.insert(2, "Traceback (most recent call last):")
    (tmp_path / "run.ndjson").write_text("\n".join(lines)[:-40])
    done = log("run.ndjson", folder=tmp_path)
    assert done.returncode == 0
    assert "shop: no last message: the run was killed or is still running" in done.stdout
    assert done.stderr == (
        "run.ndjson, line 3: not a message: Traceback (most recent call last):\n"
        f"run.ndjson, line {len(lines)}: truncated: the run was killed or is still writing\n"
    )


def test_the_summary_as_a_document() -> None:
    done = log("-", "--json", given=saved(shop()) + "hello\n")
    found: dict[str, Any] = json.loads(done.stdout)
    assert list(found) == ["file", "runs", "nothing_new", "problems"]
    assert found["runs"][0]["rows"] == 3060
    assert found["problems"] == [{"line": found["problems"][0]["line"], "what": "not a message: hello"}]


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (["gone.ndjson"], "", "gone.ndjson cannot be read: No such file or directory"),
        (["."], "", ". cannot be read: Is a directory"),
        ([], "", "there are no messages in standard input"),
        ([], "hello\n", "there are no messages in standard input"),
    ],
)
def test_nothing_to_show(tmp_path: Path, words: list[str], given: str, said: str) -> None:
    done = log(*words, given=given, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {said}\nNothing was written.\nNext: ")


def test_what_a_real_run_said(database: str, tmp_path: Path) -> None:
    real = Shop.open(database, tmp_path)
    began = datetime.now(UTC)
    said = [real.command.run("run", "shop.yaml", "--json").out for _ in range(2)]
    found = json.loads(log("--json", given="".join(said)).stdout)
    first, second = found["runs"]
    took = (datetime.now(UTC) - began).total_seconds()
    assert (first["rows"], second["rows"], found["nothing_new"]["runs"]) == (3000, 0, 1)
    assert sum(first["steps"].values()) == pytest.approx(first["seconds"], abs=0.001)
    assert 0 < first["steps"]["move"] < first["seconds"] < took
    assert first["cpu_seconds"] > 0
    assert second["cpu_seconds"] > 0
    assert found["problems"] == []
