"""Which files to compact together: windows of the order, so that files stay apart in it whatever they are sorted by.

Pure: decides from the census alone. Files that are as they should be end a window, so that a table's large files are
not written again each time a few small ones have come.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.lake.pieces import overlapping
from penstock.lake.upkeep.census import Census, Entry

#: of the target: a file of this size is large enough
LARGE_ENOUGH = 0.75
#: deleted rows of a file for which it is worth being written again
DEAD_SHARE = 0.1
#: how much is rewritten at once, in target sizes for each partition; on a keyed table landings wait meanwhile
WINDOW, KEYED_WINDOW = 8, 1


@dataclass(frozen=True)
class Window:
    """The files with numbers in (after, upto]."""

    after: int
    upto: int
    entries: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)


@dataclass(frozen=True)
class Rules:
    """What is worth being written again."""

    target: int
    least: int
    #: files of one window may overlap: they are sorted by something else
    sorted_otherwise: bool
    keyed: bool

    def windows(self, census: Census) -> list[Window]:
        """The windows with work, in order."""
        return [_window(run) for run in self._runs(census) if self._worth(run)]

    def deletes_wanted(self, census: Census) -> bool:
        """Whether the delete files should be merged into fewer."""
        concerned = sum(1 for entry in census.entries if entry.deletes)
        return census.deletes - concerned >= self.least - 1

    def _runs(self, census: Census) -> Iterator[list[Entry]]:
        """Neighbours in the order that are not as they should be, as many as are rewritten at once."""
        run: list[Entry] = []
        for group in overlapping(census.numbered, lambda entry: entry.bounds):
            partitions = len({entry.partition for entry in (*run, *group)})
            full = partitions * self.target * (KEYED_WINDOW if self.keyed else WINDOW)
            settled = self._settled(group)
            if run and (settled or sum(entry.bytes for entry in run) >= full):
                yield run
                run = []
            if not settled:
                run += group
        if run:
            yield run

    def _settled(self, group: Sequence[Entry]) -> bool:
        large = all(entry.bytes >= LARGE_ENOUGH * self.target for entry in group)
        return large and not self._dead(group) and not self._mixed(group)

    def _worth(self, run: Sequence[Entry]) -> bool:
        live: dict[tuple[int, str], float] = defaultdict(float)
        for entry in run:
            live[entry.partition] += entry.live_bytes
        fewer = len(run) - sum(max(1, math.ceil(size / self.target)) for size in live.values())
        return fewer >= self.least - 1 or self._dead(run) or self._mixed(run)

    def _dead(self, entries: Sequence[Entry]) -> bool:
        return any(entry.rows and entry.dead / entry.rows >= DEAD_SHARE for entry in entries)

    def _mixed(self, entries: Sequence[Entry]) -> bool:
        """Whether files of one partition overlap in the order, as others' compaction leaves them."""
        if self.sorted_otherwise:
            return False
        highest: dict[tuple[int, str], int] = {}
        for entry in sorted(entries, key=lambda entry: entry.bounds):
            low, high = entry.bounds
            if low <= highest.get(entry.partition, -1):
                return True
            highest[entry.partition] = high
        return False


def _window(run: Sequence[Entry]) -> Window:
    lows, highs = zip(*(entry.bounds for entry in run), strict=True)
    return Window(min(lows) - 1, max(highs), tuple(run))
