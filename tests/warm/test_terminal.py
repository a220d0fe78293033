"""A run in a worker on a terminal: the same picture, and Ctrl-C reaches it in a process group of its own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.display.terminals import Terminal
from tests.harness.command import START
from tests.warm.kit import WarmShop, warm_shop


@pytest.fixture
def warm(database: str, tmp_path: Path) -> Iterator[WarmShop]:
    with warm_shop(database, tmp_path) as made:
        yield made


@pytest.fixture
def terminal(warm: WarmShop) -> Iterator[Terminal]:
    """A command on a terminal whose run in the worker stands still in its third slice, with its picture shown."""
    place = warm.halt_next("gate.asked", nth=3)
    command = [*START, json.dumps({"mover": "loop"}), "run", "shop.yaml"]
    shown = Terminal(command, warm.folder, warm.shop.command.environment)
    try:
        shown.wait(lambda text: "moving" in text and "2 slices" in text)
        yield shown
    finally:
        (place / "go").touch()
        shown.close()


def test_the_picture_is_the_same(terminal: Terminal, warm: WarmShop) -> None:
    assert warm.run_pid() != terminal.process.pid
    head, orders = terminal.shown[0], terminal.shown[-1]
    assert head.startswith("shop · running · ")
    assert orders.startswith("▸ orders  moving")
    assert "━" in orders
    warm.go()
    assert terminal.end() == 0
    table = terminal.shown
    assert table[0].split() == ["stream", "state", "rows", "size", "slices", "time", "rows/s", "mark"]
    assert table[1].split()[:3] == ["orders", "done", "3,000"]
    assert table[2].startswith("shop: complete; 3,000 rows, ")
    assert len(table) == 3, "nothing is left of the picture"
    assert terminal.cursor_seen
    assert warm.await_idle()["runs"] == 1
    warm.check_whole()


def test_an_interrupt_of_the_terminal(terminal: Terminal, warm: WarmShop) -> None:
    os.killpg(terminal.process.pid, signal.SIGINT)
    warm.go()
    assert terminal.end() == 130
    assert "stopped by signal 2; 1,702 rows" in terminal.text
    assert terminal.cursor_seen
    assert warm.await_idle()["runs"] == 1
    warm.check_whole()
