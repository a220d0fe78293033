"""`penstock run` on a real terminal: the real command, a real Postgres, an emulator that keeps the screen."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from tests.acceptance.shop import Shop
from tests.cli.display.terminals import Terminal
from tests.harness.command import START
from tests.harness.doubles import FIND_TESTS

_open: list[Terminal] = []


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "halt").mkdir()
    yield Shop.open(database, tmp_path)
    while _open:
        _open.pop().close()


def start(shop: Shop, *words: str, halts: bool = False, environment: Mapping[str, str] | None = None) -> Terminal:
    """`penstock run shop.yaml` with a mover that starts no JVM; it may halt where its third slice is to be moved."""
    how: dict[str, str | int] = {"mover": "loop"}
    if halts:
        how |= {"point": "gate.asked", "nth": 3, "folder": str(shop.folder / "halt")}
    command = [*START, json.dumps(how), "run", "shop.yaml", *words]
    return opened(command, shop, environment)


def opened(command: list[str], shop: Shop, environment: Mapping[str, str] | None = None) -> Terminal:
    _open.append(Terminal(command, shop.folder, {"DATABASE_URL": shop.url, **(environment or {})}))
    return _open[-1]


def halted(shop: Shop, **environment: str) -> Terminal:
    """A run that stands still in its third slice, with its picture on the screen."""
    terminal = start(shop, halts=True, environment=environment)
    terminal.wait(lambda text: "moving" in text and "2 slices" in text)
    return terminal


def go(shop: Shop) -> None:
    (shop.folder / "halt" / "go").touch()


def test_a_run_from_start_to_end(shop: Shop) -> None:
    # The terminal has 100 columns, whatever some other one had.
    terminal = halted(shop, COLUMNS="50", LINES="5")
    shown = terminal.shown
    empty = shown.index("")
    # One line or two, as the numbers of this moment fit.
    head, (columns, orders, *rest) = " · ".join(shown[:empty]), shown[empty + 1 :]
    assert head.startswith("shop · running · ")
    assert " · 1,702 rows · " in head
    assert columns.split()[:3] == ["stream", "state", "slice:"]
    assert orders.startswith("▸ orders  moving")
    assert "━" in orders
    assert rest == []
    assert terminal.at == (len(shown), 0), "the cursor rests below the picture"
    go(shop)
    assert terminal.end() == 0
    table = terminal.shown
    assert table[0].split() == ["stream", "state", "rows", "size", "slices", "time", "rows/s", "mark"]
    assert table[1].split()[:3] == ["orders", "done", "3,000"]
    assert table[1].endswith("id 3000")
    assert table[2].startswith("shop: complete; 3,000 rows, ")
    assert len(table) == 3, "nothing is left of the picture"
    assert terminal.at == (3, 0)
    assert terminal.cursor_seen
    assert shop.compared().same


#: a picture would come after a minute only, however slow the machine is; the run must not wait for that
NOTHING_NEW = """
import atexit, sys
from penstock.cli import main
from penstock.cli.display import live
live.FIRST_FRAME_SECONDS = 60.0
atexit.register(lambda: print("rich" in sys.modules))
sys.argv = ["penstock", "run", "shop.yaml"]
main()
"""


def test_a_run_with_nothing_new_shows_no_picture(shop: Shop) -> None:
    assert start(shop).end() == 0
    terminal = opened([sys.executable, "-c", NOTHING_NEW], shop)
    assert terminal.end() == 0
    assert b"\x1b" not in terminal.sent
    first, second, imported = terminal.shown
    assert first == "shop: 1 stream: orders"
    assert second.startswith("shop: nothing new in 1 stream, ")
    assert imported == "False"


@pytest.mark.parametrize(("words", "environment"), [(["--plain"], {}), ([], {"TERM": "dumb"}), (["--json"], {})])
def test_lines_where_no_picture_is_wanted(shop: Shop, words: list[str], environment: dict[str, str]) -> None:
    terminal = start(shop, *words, environment=environment)
    assert terminal.end() == 0
    assert b"\x1b" not in terminal.sent


SEVERAL = """
  again:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out2}
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""


def test_several_pipelines_leave_a_table_each(shop: Shop) -> None:
    file = shop.folder / "shop.yaml"
    file.write_text(file.read_text() + SEVERAL)
    terminal = start(shop)
    assert terminal.end() == 0
    text = terminal.text
    assert [line.split()[:3] for line in terminal.shown if line.startswith("orders")] == [
        ["orders", "done", "3,000"]
    ] * 2
    assert text.index("shop: complete; 3,000 rows") < text.index("again: complete; 3,000 rows")


#: a run that warns, and lets others write, while its picture is on the screen
WARNS = (
    FIND_TESTS
    + """
import time
from penstock import wiring
from penstock.core.messages import Log
from tests.harness import doubles
class Mover(doubles.LoopMover):
    def move(self, reader, writer, parts):
        time.sleep(1.0)
        print("written by someone")
        print("a complaint", file=sys.stderr)
        time.sleep(0.5)
        return super().move(reader, writer, parts)
wiring.make_mover = lambda spark_provider: Mover()
from penstock.cli import main
sys.argv = ["penstock", "run", "shop.yaml", "--max-rows", "500"]
main()
"""
)


def test_what_is_written_meanwhile_stays_above_the_table(shop: Shop) -> None:
    terminal = opened([sys.executable, "-c", WARNS], shop)
    assert terminal.end() == 0
    assert terminal.shown[:2] == ["written by someone", "a complaint"]
    assert terminal.shown[2].startswith("stream")
    assert "▸ orders".encode() in terminal.sent


BREAKS = (
    FIND_TESTS
    + """
import time
from penstock import wiring
from tests.harness import doubles
class Mover(doubles.LoopMover):
    def move(self, reader, writer, parts):
        time.sleep(1.0)
        raise KeyboardInterrupt
wiring.make_mover = lambda spark_provider: Mover()
from penstock.cli import main
sys.argv = ["penstock", "run", "shop.yaml"]
main()
"""
)


def test_an_end_that_nobody_foresaw_leaves_the_terminal_in_order(shop: Shop) -> None:
    terminal = opened([sys.executable, "-c", BREAKS], shop)
    assert terminal.end() != 0
    assert terminal.cursor_seen
    assert "running" not in terminal.text
    assert terminal.at[1] == 0


def test_interrupted(shop: Shop) -> None:
    terminal = halted(shop)
    terminal.signal(signal.SIGINT)
    terminal.wait(lambda text: "shop · stopping" in text)
    go(shop)
    assert terminal.end() == 130
    assert terminal.cursor_seen
    _, orders, last, _ = terminal.shown
    assert orders.split()[:2] == ["orders", "open"]
    assert last.startswith("shop: stopped by signal 2; ")
    assert terminal.at == (len(terminal.shown), 0)


def test_interrupted_twice(shop: Shop) -> None:
    terminal = halted(shop)
    terminal.signal(signal.SIGINT)
    terminal.wait(lambda text: "shop · stopping" in text)
    terminal.signal(signal.SIGINT)
    assert terminal.end() == 130
    assert terminal.cursor_seen
    *picture, last = terminal.shown
    assert last == "stopped immediately; run the same command again to resume"
    assert picture[-1].startswith("▸ orders")
    assert terminal.at == (len(terminal.shown), 0)


def test_killed(shop: Shop) -> None:
    terminal = halted(shop)
    terminal.signal(signal.SIGKILL)
    assert terminal.end() == -signal.SIGKILL
    assert terminal.cursor_seen
    assert terminal.at == (len(terminal.shown), 0)


def test_a_stream_that_fails_says_what_to_do_last(shop: Shop) -> None:
    with psycopg.connect(shop.url, autocommit=True) as db:
        db.execute("create table items (id bigint primary key, updated_at timestamptz)")
        db.execute("insert into items values (1, null)")
    file = shop.folder / "shop.yaml"
    file.write_text(file.read_text() + "      items: {cursor: updated_at, tiebreaker: id}\n")
    terminal = halted(shop)
    assert "✗ items" in terminal.text
    go(shop)
    assert terminal.end() in (1, 2)
    shown = terminal.shown
    assert shown[-1].startswith("Next: ") or shown[-2].startswith("Next: ")
    assert any(line.startswith("error: shop/items: ") for line in shown)
    assert any(line.startswith("shop: failed: 1 of 2 streams (items); 3,000 rows") for line in shown)
    assert not any(line.startswith("shop/items: failed: ") for line in shown), "the table has the reason"
    assert [line.split()[:2] for line in shown[1:3]] == [["orders", "done"], ["items", "failed"]]


def test_a_narrow_terminal(shop: Shop) -> None:
    terminal = halted(shop)
    assert "KiB" in terminal.text
    terminal.resize(40, 30)
    terminal.wait(lambda text: "KiB" not in text and "▸ orders" in text)
    go(shop)
    assert terminal.end() == 0
    assert "shop: complete; 3,000 rows" in terminal.text


def test_without_colours_and_without_more_than_ascii(shop: Shop) -> None:
    terminal = halted(shop, NO_COLOR="1", PYTHONIOENCODING="latin-1")
    go(shop)
    assert terminal.end() == 0
    assert terminal.sent.isascii()
    assert b"\x1b[3" not in terminal.sent, "a colour"
    assert b"> orders" in terminal.sent
