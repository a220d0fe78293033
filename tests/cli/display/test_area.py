"""The area at the end of a terminal, as an emulator shows it."""

from __future__ import annotations

import os

import pyte
import pytest
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from tests.core.strategies import given

from penstock.cli.display.region import Region


class Screen:
    """An emulated terminal with an area on it."""

    def __init__(self, columns: int = 20, lines: int = 10) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.screen.set_mode(pyte.modes.LNM)
        stream = pyte.Stream(self.screen)
        console = Console(force_terminal=True, width=columns, _environ={})
        self.area = Region(console, stream.feed, lambda: os.terminal_size((self.screen.columns, self.screen.lines)))

    @property
    def shown(self) -> list[str]:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n").split("\n")


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_a_picture_takes_the_place_of_the_one_before(screen: Screen) -> None:
    screen.area.print_above("$ penstock run")
    screen.area.paint(Text("one\ntwo\nthree"))
    screen.area.paint(Text("uno\ndue"))
    assert screen.shown == ["$ penstock run", "uno", "due"]
    assert (screen.screen.cursor.y, screen.screen.cursor.x) == (3, 0)


def test_what_is_written_meanwhile_stays_above(screen: Screen) -> None:
    screen.area.paint(Text("one\ntwo", style="red"))
    screen.area.print_above("a warning of more than one line\nand another")
    screen.area.paint(Text("one\nthree"))
    assert screen.shown == ["a warning of more th", "an one line", "and another", "one", "three"]


def test_an_empty_line_is_empty(screen: Screen) -> None:
    screen.area.paint(Text("one\ntwo"))
    screen.area.paint(Text("one\n\ntwo"))
    assert screen.shown == ["one", "", "two"]


def test_the_last_picture_stays(screen: Screen) -> None:
    screen.area.paint(Text("one\ntwo\nthree"))
    screen.area.finish(Text("the end"))
    screen.area.paint(Text("next"))
    assert screen.shown == ["the end", "next"]


def test_an_empty_picture_takes_the_one_before_away(screen: Screen) -> None:
    screen.area.paint(Text("one\ntwo"))
    screen.area.finish(Text("", end=""))
    assert screen.shown == [""]


def test_a_full_line_keeps_its_last_letter(screen: Screen) -> None:
    screen.area.print_above("x" * 20)
    screen.area.paint(Text("y" * 20))
    assert screen.shown == ["x" * 20, "y" * 20]


def test_nothing_is_sent_for_a_picture_that_is_there_already() -> None:
    sent: list[str] = []
    area = Region(Console(width=20, _environ={}), sent.append, lambda: os.terminal_size((20, 10)))
    for _ in range(3):
        area.paint(Text("same"))
    assert len(sent) == 1


def test_a_terminal_that_folds_what_became_too_wide() -> None:
    """As most do; the emulator does not, so its lines are folded here."""
    wide, narrow = Screen(20), Screen(8)
    wide.area.print_above("$ run")
    wide.area.paint(Text("one two three four"))
    stream = pyte.Stream(narrow.screen)
    stream.feed("$ run\none two three four\n")
    wide.area._write = stream.feed
    wide.area._size = lambda: os.terminal_size((8, 10))
    wide.area.paint(Text("one"))
    assert narrow.shown == ["$ run", "one"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=12))
def test_whatever_is_painted_and_written_nothing_is_lost_or_left(acts: list[tuple[bool, int]]) -> None:
    screen = Screen(lines=60)
    above: list[str] = []
    picture: list[str] = []
    for number, (paints, lines) in enumerate(acts):
        text = [f"{number}.{line}" for line in range(lines)]
        if paints:
            picture = text
            screen.area.paint(Text("\n".join(text), end="\n" if text else ""))
        elif text:
            above += text
            screen.area.print_above("\n".join(text))
    assert screen.shown == ([*above, *picture] or [""])
