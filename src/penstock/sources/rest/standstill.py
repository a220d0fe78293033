"""Finds ranges of time that get no further: requests that bring nothing new would otherwise go on for ever."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.subdivision.fold import SEEN_LIMIT
from penstock.errors import PenstockError, StreamFailed

#: how often in a row a range, or a list, is read again because the API refuses a cursor, without anything new
RESTARTS = 5
#: pages in a row without a record that a range may have, although more are said to follow
MOST_EMPTY_PAGES = 10_000


@dataclass
class Standstill:
    """What each range, by its key, has tried since it last brought a record."""

    _restarts: dict[int, int] = field(default_factory=dict)
    #: where its pages without a new record lead to
    _cursors: dict[int, set[str | None]] = field(default_factory=dict)

    #: records of those pages
    _again: dict[int, int] = field(default_factory=dict)

    def move_on(self, key: int) -> None:
        """A page brought records, or ended the range."""
        self._restarts.pop(key, None)
        self._cursors.pop(key, None)
        self._again.pop(key, None)

    def restart(self, key: int) -> bool:
        """The range is read again from the last time seen; whether that has happened too often."""
        self._cursors.pop(key, None)
        self._again.pop(key, None)
        self._restarts[key] = self._restarts.get(key, 0) + 1
        return self._restarts[key] > RESTARTS

    def is_read_again(self, key: int) -> bool:
        """Whether the range was read again since it last brought a record."""
        return key in self._restarts

    def meet(self, key: int, cursor: str | None, records: int, size: int) -> bool:
        """A page whose records are all known leads to a cursor; whether such pages go round in circles.

        Where pages are counted, every cursor is another one, but no more records come again than a mark remembers.
        """
        met = self._cursors.setdefault(key, set())
        again = self._again[key] = self._again.get(key, 0) + records
        if cursor in met or again > SEEN_LIMIT + 2 * size or len(met) > MOST_EMPTY_PAGES:
            return True
        met.add(cursor)
        return False

    def refuse(self, stream: str, refused: PenstockError) -> StreamFailed:
        """The failure of a range whose cursors the API refuses."""
        return StreamFailed(
            f"the API refuses to go on in a list: the page was asked for again from the last time seen, {RESTARTS} "
            f"times, and nothing new came. {refused.what}",
            next_step="run again once the API lists these objects; if it always refuses the cursor, correct `paging` "
            "of the stream, or set `size` under it to as many objects as share a second",
            stream=stream,
        )
