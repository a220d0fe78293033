"""Half-open ranges over keys that only the source can compare: `after` is outside, `upto` is inside.

Ranges chain: where one ends the next begins, so a row is in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The keys k with after < k <= upto; an open side is None."""

    #: excluded lower bound; None: from the beginning
    after: Key | None
    #: included upper bound; None: to the end
    upto: Key | None


def cut(whole: Range, bounds: Iterable[Key]) -> list[Range]:
    """Cut a range at the given inner bounds, which the source has put in its own order."""
    pieces: list[Range] = []
    after = whole.after
    for bound in bounds:
        if bound in (after, whole.upto):
            continue
        pieces.append(Range(after, bound))
        after = bound
    pieces.append(Range(after, whole.upto))
    return pieces


def tiles(pieces: Sequence[Range], whole: Range) -> bool:
    """Whether the pieces cover the whole, in order, without gap or overlap."""
    if not pieces or pieces[0].after != whole.after or pieces[-1].upto != whole.upto:
        return False
    joints = [(left.upto, right.after) for left, right in zip(pieces, pieces[1:], strict=False)]
    return all(left == right and left is not None for left, right in joints)
