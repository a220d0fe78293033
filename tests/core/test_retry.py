"""Tries and the pauses between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.retry import Backoff, Retry

SECONDS = st.floats(min_value=0.001, max_value=60)


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0, jitter=0)
    assert [backoff.seconds(failures, 0.3) for failures in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_takes_any_share_of_the_pause() -> None:
    backoff = Backoff(1.0, 8.0)
    assert [backoff.seconds(2, chance) for chance in (0.0, 0.5, 1.0)] == [0.0, 1.0, 2.0]
    assert [Backoff(1.0, 8.0, jitter=0.5).seconds(2, chance) for chance in (0.0, 1.0)] == [1.0, 2.0]


def test_a_pause_that_the_other_side_asks_for_counts() -> None:
    assert Backoff(0.1, 1.0).seconds(1, 0.0, at_least=30.0) == 30.0


@given(first=SECONDS, longest=SECONDS, failures=st.integers(0, 10**6), chance=st.floats(0, 1), jitter=st.floats(0, 1))
def test_a_pause_is_never_longer_than_the_longest(
    first: float, longest: float, failures: int, chance: float, jitter: float
) -> None:
    backoff = Backoff(min(first, longest), longest, jitter)
    assert 0 <= backoff.seconds(failures, chance) <= longest


def test_attempts_are_counted_from_one() -> None:
    retry = Retry(3, Backoff(0.1, 1.0))
    assert [(attempt, retry.is_last(attempt)) for attempt in retry.attempts()] == [(1, False), (2, False), (3, True)]


@pytest.mark.parametrize(
    "made", [lambda: Backoff(2.0, 1.0), lambda: Backoff(1.0, 2.0, 1.5), lambda: Backoff(-1.0, 1.0)]
)
def test_a_backoff_that_makes_no_sense_is_refused(made: object) -> None:
    with pytest.raises(ValueError, match="not a backoff"):
        made()  # type: ignore[operator]  # a lambda of the list above


def test_no_try_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one try"):
        Retry(0, Backoff(0.1, 1.0))


def test_tries_of_several_processes_are_spaced() -> None:
    retry = Retry(3, Backoff(10.0, 10.0))
    assert retry.is_due(0, 0.0)
    assert [retry.is_due(1, seconds) for seconds in (0.0, 9.0, 11.0, -5.0)] == [False, False, True, True]
    assert [retry.is_due(failures, 11.0) for failures in (2, 3)] == [True, False]
