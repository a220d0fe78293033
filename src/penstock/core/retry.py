"""How often something is tried, and how long to pause between tries. `penstock.links.pause` does the pausing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from the first one up to the longest one."""

    first_seconds: float
    longest_seconds: float
    #: the share of a pause that is left to chance, so that two writers do not meet again: 1 is any pause from 0 up
    jitter: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.first_seconds <= self.longest_seconds or not 0 <= self.jitter <= 1:
            raise ValueError(f"not a backoff: {self}")

    def seconds(self, failures: int, chance: float, *, at_least: float = 0.0) -> float:
        """Return the pause after that many failures in a row.

        `chance` is a random number from 0 to 1. `at_least` is a pause that the other side asked for (Retry-After): it
        counts even where it is longer than the longest pause.
        """
        # An exponent is bounded: 2.0 ** 2000 raises OverflowError.
        longest = min(self.longest_seconds, self.first_seconds * 2.0 ** min(max(failures, 1) - 1, 64))
        return max(at_least, longest * (1 - self.jitter * (1 - chance)))


NO_PAUSE = Backoff(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Retry:
    """A limit on tries, and the pauses between them.

    for attempt in RETRY.attempts():
        try:
            return commit()
        except LostRace:
            if RETRY.is_last(attempt):
                raise
            pause(RETRY.backoff, attempt)

    Where every failure is followed by a pause, `links.pause.iterate_tries` does the pausing.
    """

    tries: int
    backoff: Backoff = NO_PAUSE

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"at least one try is needed: {self}")

    def attempts(self) -> range:
        """Return the numbers of the tries: 1, 2, 3, …"""
        return range(1, self.tries + 1)

    def is_last(self, attempt: int) -> bool:
        return attempt >= self.tries

    def is_due(self, failures: int, seconds_since: float) -> bool:
        """Whether to try again now, where failures and the time of the last one outlive the process.

        A last failure in the future, after a change of the clock, delays nothing.
        """
        if failures == 0:
            return True
        return failures < self.tries and not 0 <= seconds_since < self.backoff.seconds(failures, 1.0)
