"""Limits: what is left and what has been reached."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.core.strategies import given

from penstock.core.limits import Limits


@given(st.integers(0, 2**60), st.floats(0, 1e9))
def test_without_limits_nothing_is_reached(moved: int, elapsed: float) -> None:
    assert Limits().rows_left(moved) is None
    assert Limits().describe_reached(moved=moved, elapsed=elapsed) is None


@given(st.integers(0, 1000), st.integers(0, 2000))
def test_rows_are_reached_exactly_when_none_are_left(most: int, moved: int) -> None:
    limits = Limits(max_rows=most)
    left = limits.rows_left(moved)
    assert left == max(0, most - moved)
    assert (limits.describe_reached(moved=moved, elapsed=0.0) is not None) == (left == 0)


@given(st.floats(0, 1000), st.floats(0, 2000))
def test_time_is_reached_at_its_end(seconds: float, elapsed: float) -> None:
    reached = Limits(time_limit=seconds).describe_reached(moved=0, elapsed=elapsed)
    assert (reached is not None) == (elapsed >= seconds)
    left = Limits(time_limit=seconds).seconds_left(elapsed)
    assert left == max(0.0, seconds - elapsed)
    assert Limits().seconds_left(elapsed) is None


def test_the_limit_is_named() -> None:
    both = Limits(max_rows=10, time_limit=90)
    assert both.describe_reached(moved=10, elapsed=0) == "max_rows 10"
    assert both.describe_reached(moved=9, elapsed=90) == "time_limit 90 s"
    assert both.describe_reached(moved=9, elapsed=89.9) is None
