"""Any run fits any terminal: no error, no line too wide, not one line too many."""

from __future__ import annotations

import io
from datetime import timedelta

from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType
from tests.cli.display.scenes import SCENES, START
from tests.core.strategies import given, messages

from penstock.cli.display import pace
from penstock.cli.display.columns import shorten
from penstock.cli.display.frame import draw_frame, wrap_text
from penstock.cli.display.summary import summary_table
from penstock.cli.display.view import View, Viewport
from penstock.core.messages import Message
from penstock.core.progress import fold

looks = st.builds(Viewport, st.integers(20, 200), st.integers(5, 60), st.booleans())


def lines(what: RenderableType) -> list[str]:
    """Drawn on something very wide: what is too wide must be seen, not cut off by the console."""
    out = io.StringIO()
    Console(file=out, width=10_000, force_terminal=False, color_system=None, _environ={}).print(what, end="")
    return out.getvalue().split("\n")[:-1]


def view(said: list[Message], seconds: int = 60) -> View:
    last = max((message.ts for message in said if message.ts), default=START)
    return View("shop", fold(said), last + timedelta(seconds=seconds), pace.fold(said))


@given(st.lists(messages, max_size=12), looks, st.integers(0, 10**6))
def test_any_run_fits_any_terminal(said: list[Message], viewport: Viewport, seconds: int) -> None:
    for what in (draw_frame(view(said, seconds), viewport), summary_table(view(said, seconds), viewport)):
        drawn = lines(what)
        assert [line for line in drawn if cell_len(line) > viewport.width] == []
        assert all(line.isprintable() for line in drawn)
        assert not viewport.ascii or all(line.isascii() for line in drawn)
    assert 1 <= len(lines(draw_frame(view(said, seconds), viewport))) <= viewport.height


@given(st.sampled_from(sorted(SCENES)), looks)
def test_every_scene_fits_any_terminal(scene: str, viewport: Viewport) -> None:
    drawn = lines(draw_frame(SCENES[scene]().view(), viewport))
    assert len(drawn) <= viewport.height
    assert max(map(cell_len, drawn)) <= viewport.width


@given(st.sampled_from(sorted(SCENES)), st.integers(60, 200), st.integers(10, 60))
def test_what_is_at_work_and_what_failed_is_always_seen(scene: str, width: int, height: int) -> None:
    drawn = "\n".join(lines(draw_frame(SCENES[scene]().view(), Viewport(width, height))))
    if scene in ("busy", "one_failed"):
        assert "▸ order" in drawn
    if scene == "many":
        assert ("▸ table" in drawn, "✗ table" in drawn, "there is no table" in drawn) == (True, True, True)


@given(st.text(max_size=60), st.integers(0, 40), st.booleans(), st.booleans())
def test_a_shortened_text_fits(text: str, width: int, ascii_only: bool, tail: bool) -> None:
    short = shorten(text, width, ascii_only=ascii_only, tail=tail)
    assert cell_len(short) <= width or cell_len(text) <= width
    assert short == text or cell_len(text) > width


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=20).map(" ".join), st.integers(9, 40))
def test_a_text_that_is_wrapped_loses_nothing(text: str, width: int) -> None:
    assert " ".join(wrap_text(text, width, 1000)) == text
    assert len(wrap_text(text, width, 2)) <= 2


@given(st.lists(messages, max_size=10), messages)
def test_a_slice_counts_once_for_the_pace(said: list[Message], message: Message) -> None:
    once = pace.fold([*said, message])
    again = pace.apply(once, message)
    assert again.samples == once.samples
    assert {name: stream.spent for name, stream in again.streams.items()} == {
        name: stream.spent for name, stream in once.streams.items()
    }


def test_the_rate_of_the_moment_falls_while_nothing_comes() -> None:
    scene = SCENES["busy"]()
    found = pace.fold(scene.messages)
    early, late = (found.recent(START + timedelta(seconds=seconds)) for seconds in (24, 240))
    assert early is not None
    assert late is not None
    assert 0 < late < early / 5
