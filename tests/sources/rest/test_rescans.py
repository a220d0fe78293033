"""Reading objects again: what is still to be read, when it is due, and how the mark carries it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.marks import Mark
from penstock.core.subdivision import Range, Span
from penstock.sources.rest.rescans import Rescan, join_mark, split_mark

BARE = Mark.of({"remaining": [], "covered": [{"gte": 0, "lt": 100}], "unit": "seconds"})


def test_what_was_read_and_lies_in_the_window_is_read_again() -> None:
    covered = (Span(None, 20), Span(40, 60), Span(80, 100))
    begun = Rescan(checked=70).begin(100, Span(50, 100), covered)
    assert begun == Rescan(70, 100, (Range(50, 60), Range(80, 100)))
    assert begun.is_under_way
    cut = begun.proceed((Range(80, 90, cursor="c"),))
    assert (cut.checked, cut.began) == (70, 100)
    # Changes are looked for since the beginning of the last reading, not since its end.
    assert cut.proceed(()) == Rescan(checked=100)
    assert not Rescan().begin(100, Span(50, 100), (Span(0, 50),)).is_under_way


def test_when_it_is_due() -> None:
    assert Rescan().is_due(5, 0)
    assert not Rescan(5).is_due(5, 0), "one run reads a window once"
    assert Rescan(5).is_due(6, 0)
    assert not Rescan(5).is_due(14, 10)
    assert Rescan(5).is_due(15, 10)


def test_the_mark_carries_it() -> None:
    for rescan in (Rescan(), Rescan(7), Rescan(7, 9, (Range(1, 2), Range(3, 4, cursor="x", last=3, seen=("a",))))):
        assert split_mark(join_mark(BARE, rescan)) == (BARE, rescan)
    assert join_mark(BARE, Rescan()) == BARE
    broken: tuple[Any, ...] = ([], {"checked": 1}, {"checked": "1", "began": None, "remaining": []})
    for each in broken:
        with pytest.raises((KeyError, ValueError)):
            split_mark(Mark.of({"rescan": each}))
