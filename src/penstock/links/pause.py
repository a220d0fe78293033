"""Pauses between tries. How long one is, `penstock.core.retry` decides. A run that is to end cuts it short."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import SystemRandom

from penstock.core.retry import Backoff, Retry
from penstock.errors import StreamFailed
from penstock.ports import is_never_cancelled

#: how often a pause looks whether the run is to end
_POLL_SECONDS = 0.2
# Not the generator of the `random` module: processes that were forked from one parent would draw the same numbers.
_CHANCE = SystemRandom()


def pause(
    backoff: Backoff,
    failures: int,
    *,
    at_least: float = 0.0,
    at_most: float | None = None,
    is_cancelled: Callable[[], bool] = is_never_cancelled,
) -> None:
    """Sleep after that many failures in a row. StreamFailed if the run is to end.

    `at_least` is what the other side asked for; `at_most` is what is left until a deadline.
    """
    left = backoff.seconds(failures, _CHANCE.random(), at_least=at_least)
    left = left if at_most is None else min(left, max(0.0, at_most))
    refuse_cancelled(is_cancelled)
    while left > _POLL_SECONDS and is_cancelled is not is_never_cancelled:
        time.sleep(_POLL_SECONDS)
        left -= _POLL_SECONDS
        refuse_cancelled(is_cancelled)
    time.sleep(left)


def iterate_tries(retry: Retry, is_cancelled: Callable[[], bool] = is_never_cancelled) -> Iterator[int]:
    """Return the numbers of the tries, from 1, and pause before each but the first. StreamFailed if the run is to end.

    for _ in iterate_tries(RETRY):
        with suppress(LostRace):
            return commit()
    raise StreamFailed(…)
    """
    for attempt in retry.attempts():
        if attempt > 1:
            pause(retry.backoff, attempt - 1, is_cancelled=is_cancelled)
        yield attempt


def refuse_cancelled(is_cancelled: Callable[[], bool]) -> None:
    """StreamFailed if the run is to end."""
    if is_cancelled():
        raise cancelled_error()


def cancelled_error() -> StreamFailed:
    """The run is to end: nothing is wrong with the stream."""
    return StreamFailed("the work was given up because the run is to end", next_step="run again to resume")
