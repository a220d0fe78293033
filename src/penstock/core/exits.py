"""Exit codes: one for several pipelines."""

from __future__ import annotations

from collections.abc import Iterable

#: What needs a person goes before what a later run may cure. A signal goes before all: the rest was not done.
ORDER = (2, 1, 3, 4, 5, 0)
#: `penstock verify` found differences
DIFFERENT = 5


def worst(codes: Iterable[int]) -> int:
    """The code that stands for all: a signal's (above 128), then 2, 1, 3, 4, 5, 0."""
    return min(codes, key=_rank, default=0)


def _rank(code: int) -> int:
    if code > 128:
        return -1
    return ORDER.index(code) if code in ORDER else 0
