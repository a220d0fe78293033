"""The display as it looks, compared with pictures kept as text.

After a change that is meant, look at the difference and keep the new pictures:
`UPDATE_SNAPSHOTS=1 pytest tests/cli/display`.
"""

from __future__ import annotations

import difflib
import io
import os
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from tests.cli.display.scenes import SCENES

from penstock.cli.display.frame import draw_frame
from penstock.cli.display.summary import summary_table
from penstock.cli.display.view import Viewport

PLACE = Path(__file__).parent / "snapshots"
UPDATE = "UPDATE_SNAPSHOTS"

#: scene, picture, width, height, ASCII only
PICTURES = [
    *((scene, "frame", 100, 24, False) for scene in SCENES),
    *(
        (scene, "closing", 100, 24, False)
        for scene in (
            "done",
            "failed_to_the_end",
            "limited",
            "held_back_to_the_end",
            "many",
            "fetched_to_the_end",
            "skipped_and_failed",
        )
    ),
    ("busy", "frame", 160, 24, False),
    ("busy", "frame", 60, 24, False),
    ("busy", "frame", 40, 24, False),
    ("one_failed", "frame", 60, 24, False),
    ("one_failed", "frame", 100, 9, False),
    ("many", "frame", 60, 12, False),
    ("held_back", "frame", 60, 24, True),
    ("fetching", "frame", 60, 24, True),
    ("one_failed", "frame", 100, 24, True),
    ("done", "closing", 60, 24, False),
    ("done", "closing", 40, 24, True),
]
IN_COLOUR = [("one_failed", "frame"), ("failed_to_the_end", "closing")]


def picture(scene: str, kind: str, viewport: Viewport) -> RenderableType:
    view = SCENES[scene]().view()
    return draw_frame(view, viewport) if kind == "frame" else summary_table(view, viewport)


def drawn(what: RenderableType, width: int, *, colour: bool = False) -> str:
    """What a terminal would be sent."""
    out = io.StringIO()
    Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
        _environ={},
    ).print(what, end="")
    return out.getvalue()


def same_as_kept(name: str, text: str) -> None:
    path = PLACE / name
    if os.environ.get(UPDATE):
        path.write_text(text)
    kept = path.read_text() if path.exists() else ""
    if text != kept:
        difference = difflib.unified_diff(kept.splitlines(), text.splitlines(), "kept", "now", lineterm="")
        pytest.fail(f"{name} looks different; {UPDATE}=1 keeps it:\n" + "\n".join(difference), pytrace=False)


@pytest.mark.parametrize(("scene", "kind", "width", "height", "ascii_only"), PICTURES)
def test_it_looks_as_it_did(scene: str, kind: str, width: int, height: int, ascii_only: bool) -> None:
    viewport = Viewport(width, height, ascii_only)
    name = f"{scene}-{kind}-{width}x{height}{'-ascii' if ascii_only else ''}.txt"
    text = drawn(picture(scene, kind, viewport), width)
    assert text.isascii() or not ascii_only
    same_as_kept(name, text)


@pytest.mark.parametrize(("scene", "kind"), IN_COLOUR)
def test_it_has_its_colours(scene: str, kind: str) -> None:
    text = drawn(picture(scene, kind, Viewport(100, 24)), 100, colour=True)
    same_as_kept(f"{scene}-{kind}-colour.txt", text.replace("\x1b", "ESC"))


def test_every_kept_picture_is_looked_at() -> None:
    names = {f"{s}-{k}-{w}x{h}{'-ascii' if a else ''}.txt" for s, k, w, h, a in PICTURES}
    names |= {f"{scene}-{kind}-colour.txt" for scene, kind in IN_COLOUR}
    assert {path.name for path in PLACE.iterdir()} == names


def test_a_run_that_is_told_to_stop_says_so() -> None:
    text = drawn(draw_frame(SCENES["busy"]().view(stopping=True), Viewport(100, 24)), 100)
    assert "stopping" in text.splitlines()[0]
