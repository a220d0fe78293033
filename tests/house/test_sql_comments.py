"""No comment of a statement has a hole: a value with a line break in it would end the comment and be run."""

import re
from pathlib import Path

HOLE_IN_COMMENT = re.compile(r"--[^\n]*\{\w+\}|/\*(?:(?!\*/).)*\{\w+\}", re.DOTALL)


def test_a_hole_is_found() -> None:
    assert HOLE_IN_COMMENT.search("SELECT 1 -- for {name}")
    assert HOLE_IN_COMMENT.search("/* a\n {name} */ SELECT 1")
    assert not HOLE_IN_COMMENT.search("-- a comment\nSELECT {name} /* b */, {more}")


def test_no_comment_has_a_hole(top: Path) -> None:
    statements = sorted((top / "src").rglob("*.sql"))
    assert statements
    assert [path.name for path in statements if HOLE_IN_COMMENT.search(path.read_text())] == []
