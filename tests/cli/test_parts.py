"""The command's smaller parts: times, exit codes, next steps, signals."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import typer

from penstock.cli.shared.parameters import duration
from penstock.core.exits import worst
from penstock.errors import filled


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2m30", 150),
        (" 5 ", 5),
        ("0.5", 0.5),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "m", "-5", "10x", "1m2h", "inf", "nan", "0", "0m"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        duration(text)


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 4], 4),
        ([4, 3], 3),
        ([3, 1], 1),
        ([1, 2], 2),
        ([2, 130], 130),
        ([0, 143, 1], 143),
    ],
)
def test_the_worst_code_wins(codes: list[int], code: int) -> None:
    assert worst(codes) == worst(reversed(codes)) == code


def test_next_steps_name_the_file() -> None:
    quoted = r"penstock state reset 'a\1 b.yaml' --stream x"
    assert filled("penstock state reset FILE --stream x", r"a\1 b.yaml") == quoted
    assert filled("PROFILE and FILES stay", "x") == "PROFILE and FILES stay"


BROKEN = """
import sys
from datetime import UTC, datetime
from penstock.cli.shared.output import Output
from penstock.core.messages import Log
heard = []
output = Output("f", "shop", as_json=True, broken=lambda: heard.append(1))
for _ in range(100_000):
    output.emit(Log(level="info", text="x", ts=datetime.now(UTC)))
    if heard:
        break
output.emit(Log(level="info", text="x", ts=datetime.now(UTC)))
print(len(heard), file=sys.stderr)
"""


def test_when_nobody_reads_the_output_it_ends_quietly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BROKEN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, told = process.communicate()
    assert (process.returncode, told) == (0, "1\n")


SCRIPT = """
import os, signal, sys, time
from penstock.cli.shared.signals import Signals
class Engine:
    heard = []
    def stop(self, number):
        self.heard.append(number)
        print("stop", number, flush=True)
with Signals() as signals:
    signals.watch(Engine())
    for number in map(int, sys.argv[1:]):
        os.kill(os.getpid(), number)
    print("end", signals.number, flush=True)
"""


def signalled(*numbers: int) -> tuple[int, str]:
    words = [str(int(number)) for number in numbers]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_first_signal_stops_the_engine() -> None:
    assert signalled(signal.SIGTERM) == (0, "stop 15\nend 15\n")
    assert signalled(signal.SIGINT) == (0, "stop 2\nend 2\n")


def test_a_second_interrupt_ends_at_once_and_a_second_term_does_not() -> None:
    assert signalled(signal.SIGINT, signal.SIGINT) == (130, "stop 2\n")
    assert signalled(signal.SIGTERM, signal.SIGINT) == (130, "stop 15\n")
    assert signalled(signal.SIGINT, signal.SIGTERM) == (0, "stop 2\nend 2\n")
