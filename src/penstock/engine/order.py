"""In which order streams take their turns where the sink wants some ahead of others. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

#: for a stream, those that must have nothing left before it begins
Ahead = Mapping[str, Collection[str]]


def next_of(waiting: Sequence[str], ahead: Ahead, later: Collection[str] = ()) -> int:
    """The place of the first stream that waits for none of the others; the first, if each waits for another.

    Those that may come `later` do, where another can go first.
    """
    free = [
        place
        for place, name in enumerate(waiting)
        if not any(other in waiting for other in ahead.get(name, ()) if other != name)
    ]
    return next((place for place in free if waiting[place] not in later), free[0] if free else 0)


def from_the_end(names: Sequence[str], ahead: Ahead) -> list[str]:
    """The streams that have others ahead of them or after them, those that come last first."""
    concerned = {name for name in names if ahead.get(name)} | {other for name in names for other in ahead.get(name, ())}
    left, found = [name for name in names if name in concerned], list[str]()
    while left:
        found.append(left.pop(next_of(left, ahead)))
    return found[::-1]
