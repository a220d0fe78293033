"""Pauses between tries. What a pause is worth is decided in `penstock.core.retry`."""

from __future__ import annotations

import time
from random import SystemRandom

from penstock.core.retry import Backoff

# Not the generator of the `random` module: processes that were forked from one parent would draw the same numbers.
_CHANCE = SystemRandom()


def pause(backoff: Backoff, failures: int, *, at_least: float = 0.0, at_most: float | None = None) -> None:
    """Sleep after that many failures in a row.

    `at_least` is what the other side asked for; `at_most` is what is left until a deadline.
    """
    seconds = backoff.seconds(failures, _CHANCE.random(), at_least=at_least)
    time.sleep(seconds if at_most is None else min(seconds, max(0.0, at_most)))
