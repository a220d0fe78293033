"""Where messages go: the choice of a form, lines in long silences, processor time in the last message."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from tests.cli.display.scenes import START, Scene, Tape, busy, connecting

from penstock.cli.shared.output import Output, live_wanted
from penstock.cli.shared.silence import still
from penstock.core.messages import Eof, StreamStatus


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
    return still(view.progress, began + timedelta(seconds=after), START, "shop")


def test_what_a_long_silence_is_about() -> None:
    assert said_still(busy(), 65) == "shop/order_items: still moving slice 2 (360,000 rows), 1 min 5 s so far"
    assert said_still(connecting(), 30) == "shop: still connecting, 30.0 s so far"
    tape = Tape().catalog("orders")
    assert said_still(Scene(tape.messages, 1.0), 31) == "shop: still looking for what is new, 31.0 s so far"
    tape.start("orders").intend("orders").moved("orders", 5)
    assert said_still(Scene(tape.messages, 1.0), 40) == "shop/orders: still committing slice 1, 40.0 s so far"


def lines_of(capsys: pytest.CaptureFixture[str], *, as_json: bool, patience: float) -> list[str]:
    with Output("f", "shop", as_json=as_json, broken=lambda: None, patience=patience) as output:
        for message in busy().messages:
            output.emit(message)
        time.sleep(0.5)
    return capsys.readouterr().out.splitlines()


def test_a_long_move_is_not_silent(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, as_json=False, patience=0.05)
    assert "still moving slice 2" in lines[-1]
    assert "still" not in lines_of(capsys, as_json=False, patience=30.0)[-1]


def test_machines_get_messages_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, as_json=True, patience=0.01)
    assert len(lines) == len(busy().messages)
    assert all(json.loads(line)["type"] for line in lines)


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
from penstock.cli.shared import cost
BURN = "import time\\nwhile time.process_time() < 0.6: pass\\nprint(flush=True)\\ntime.sleep(60)"
# A child that starts another one and ends without waiting for it, as Spark's daemon does.
MIDDLE = "import subprocess, sys\\nchild = subprocess.Popen([sys.executable, '-c', %r])\\n" % BURN
MIDDLE += "print(child.pid, flush=True)\\nsys.stdin.readline()"
meter = cost.Cost()
child = subprocess.Popen([sys.executable, "-c", MIDDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
worker = int(child.stdout.readline())
child.stdout.readline()
meter.look()
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
