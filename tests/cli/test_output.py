"""Where messages go: the choice of a form, lines in long silences, processor time in the last message."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from datetime import timedelta

import pytest
import typer
from tests.cli.display.scenes import START, Scene, Tape, busy, connecting, fetching, starting

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.output import Output, live_wanted
from penstock.cli.shared.quiet_timer import progress_line
from penstock.core.messages import Eof, StreamStatus
from penstock.errors import InputError


@pytest.mark.parametrize(
    ("term", "terminal", "options", "live"),
    [
        ("xterm-256color", True, {}, True),
        ("xterm-256color", True, {"plain": True}, False),
        ("xterm-256color", True, {"as_json": True}, False),
        ("xterm-256color", False, {}, False),
        ("dumb", True, {}, False),
        ("", True, {}, False),
    ],
)
def test_a_picture_only_where_people_can_see_one(
    monkeypatch: pytest.MonkeyPatch, term: str, terminal: bool, options: dict[str, bool], live: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert live_wanted(**{"plain": False, "as_json": False} | options) is live


# ---------------------------------------------------------------- silence


def said_still(scene: Scene, after: float) -> str:
    view = scene.view()
    began = view.progress.updated or START
    return progress_line(view.progress, began + timedelta(seconds=after), START, "shop")


def test_what_a_long_silence_is_about() -> None:
    assert said_still(busy(), 65) == "shop/order_items: still moving slice 2 (360,000 rows), 1 min 5 s so far"
    assert said_still(starting(), 40) == "shop: still starting Spark, 40.0 s so far"
    still = (
        "118,300 records fetched, 1,939/s, 1.02 requests per page, 3 retries, waited 12.3 s, 41% of its range of time"
    )
    assert said_still(fetching(), 30) == f"shop/charges: still fetching pages: {still}"
    assert said_still(connecting(), 30) == "shop: still connecting, 30.0 s so far"
    tape = Tape().catalog("orders")
    assert said_still(Scene(tape.messages, 1.0), 31) == "shop: still checking for new rows, 31.0 s so far"
    tape.start("orders").intend("orders").moved("orders", 5)
    assert said_still(Scene(tape.messages, 1.0), 40) == "shop/orders: still committing slice 1, 40.0 s so far"


def lines_of(capsys: pytest.CaptureFixture[str], *, as_json: bool, quiet_seconds: float) -> list[str]:
    with Output("f", "shop", as_json=as_json, broken=lambda: None, quiet_seconds=quiet_seconds) as output:
        for message in busy().messages:
            output.emit(message)
        time.sleep(0.5)
    return capsys.readouterr().out.splitlines()


def test_a_long_move_is_not_silent(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, as_json=False, quiet_seconds=0.05)
    assert "still moving slice 2" in lines[-1]
    assert "still" not in lines_of(capsys, as_json=False, quiet_seconds=30.0)[-1]


def test_machines_get_messages_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, as_json=True, quiet_seconds=0.01)
    assert len(lines) == len(busy().messages)
    assert all(json.loads(line)["type"] for line in lines)


# ---------------------------------------------------------------- times


class Stream(io.StringIO):
    """A stream that is a terminal, or is not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("run", [True, False])
def test_the_time_is_before_each_line_of_a_run_that_goes_into_a_log(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, run: bool
) -> None:
    out, err = Stream(terminal), Stream(terminal)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with Output("f", "shop", as_json=False, summary=run, broken=lambda: None) as output:
        for message in Tape().catalog("orders").failed("orders", "broken", "mend it").eof("failed", 1).messages:
            output.emit(message)
    lines = out.getvalue().splitlines() + err.getvalue().splitlines()
    stamped = run and not terminal
    assert lines[0] == ("2026-11-15T12:00:00Z " if stamped else "") + "shop: 1 stream: orders"
    assert lines[-1] == ("2026-11-15T12:00:00Z " if stamped else "") + "Next: mend it"


def test_an_error_before_the_first_message_has_its_time_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), report_errors("f", dated=True):
        raise InputError("no such key", next_step="correct FILE")
    lines = capsys.readouterr().err.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)
    assert [line[21:] for line in lines][::2] == ["error: no such key", "Next: correct f"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(typer.Exit), report_errors("f", dated=True):
        raise InputError("no such key", next_step="correct FILE")
    assert capsys.readouterr().err.startswith("error: no such key\n")


# ---------------------------------------------------------------- next steps and processor time


def test_the_last_message_has_the_processor_time_and_next_steps_name_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tape = Tape().catalog("orders").failed("orders", "broken", "penstock run FILE --stream orders")
    with Output("my.yaml", "shop", as_json=True, broken=lambda: None) as output:
        for message in tape.eof("failed", 1, next_step="penstock status FILE").messages:
            output.emit(message)
    *_, failed, eof = map(json.loads, capsys.readouterr().out.splitlines())
    assert (failed["type"], failed["next_step"]) == (StreamStatus.type, "penstock run my.yaml --stream orders")
    assert (eof["type"], eof["next_step"]) == (Eof.type, "penstock status my.yaml")
    assert eof["cpu_seconds"] >= 0


COST = """
import os, resource, subprocess, sys
from penstock.cli.shared import cpu_time
BURN = "import time\\nwhile time.process_time() < 0.6: pass\\nprint(flush=True)\\ntime.sleep(60)"
# A child that starts another one and ends without waiting for it, as Spark's daemon does.
MIDDLE = "import subprocess, sys\\nchild = subprocess.Popen([sys.executable, '-c', %r])\\n" % BURN
MIDDLE += "print(child.pid, flush=True)\\nsys.stdin.readline()"
meter = cpu_time.CpuTime()
child = subprocess.Popen([sys.executable, "-c", MIDDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
worker = int(child.stdout.readline())
child.stdout.readline()
meter.sample()
child.stdin.close()
child.wait()
os.kill(worker, 9)
told = meter.seconds()
counted = sum(
    usage.ru_utime + usage.ru_stime
    for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
)
print(told - counted)
"""


def test_workers_that_nobody_waits_for_are_counted() -> None:
    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) > 0.5
