"""What fetching a stream from an API has cost so far, and which parts of its range of time are done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

#: a part of a range, as shares of it: (0.0, 0.5) is its first half
Part = tuple[float, float]


@dataclass(frozen=True, slots=True)
class FetchCounts:
    """One stream, in this execution."""

    records: int = 0
    #: pages that brought records
    pages: int = 0
    #: requests, including those that failed or brought nothing
    requests: int = 0
    retries: int = 0
    #: seconds that requests waited for the rate limit or before a retry, all requests together
    waited: float = 0.0
    #: seconds since the first page was asked for
    seconds: float = 0.0
    #: the range of time that is read; None: the stream is not read by time
    begin: str | None = None
    end: str | None = None
    #: the parts of the range that are done, wherever they lie
    done: tuple[Part, ...] = ()

    @property
    def requests_per_page(self) -> float | None:
        return self.requests / self.pages if self.pages else None

    @property
    def records_per_second(self) -> float | None:
        return self.records / self.seconds if self.seconds > 0 and self.records else None

    @property
    def share_done(self) -> float | None:
        """The share of the range that is done; None: there is no range."""
        return None if self.begin is None else min(1.0, sum(upto - after for after, upto in self.done))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From JSON, where tuples are lists."""
        return cls(**{**document, "done": tuple((after, upto) for after, upto in document.get("done", ()))})


def shares_of(spans: Iterable[tuple[int, int]], low: int, high: int) -> tuple[Part, ...]:
    """Spans, which are in order and apart, as shares of the range from `low` to `high`; what is outside is left out."""
    parts: list[Part] = []
    for begin, end in spans:
        after, upto = (round((min(max(time, low), high) - low) / (high - low), 4) for time in (begin, end))
        if parts and after <= parts[-1][1]:
            parts[-1] = parts[-1][0], max(upto, parts[-1][1])
        elif after < upto:
            parts.append((after, upto))
    return tuple(parts)
