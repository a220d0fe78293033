"""How far a stream is in reading objects again, to find their changes; and how a mark carries it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Json
from penstock.core.marks import Mark
from penstock.core.subdivision import Position, Range, Span
from penstock.core.subdivision.spans import intersect

#: the mark's field
FIELD = "rescan"


@dataclass(frozen=True, slots=True)
class Rescan:
    """What is still to be read again."""

    #: the time since which changes are to be looked for, in the stream's unit; None: they never were
    checked: int | None = None
    #: when the reading that is under way began; None: none is
    began: int | None = None
    #: what it has left; () with `began`: it has just ended
    remaining: tuple[Range, ...] = ()

    @property
    def is_under_way(self) -> bool:
        return bool(self.remaining)

    def begin(self, now: int, window: Span, covered: tuple[Span, ...]) -> Rescan:
        """Read everything again that was read before and lies in the window."""
        spans = [found for span in covered if (found := intersect(span, window)) is not None]
        return Rescan(self.checked, now, tuple(Range(span.gte, span.lt) for span in spans))

    def proceed(self, remaining: tuple[Range, ...]) -> Rescan:
        """The same after some pages. Once nothing remains, changes are looked for since it began."""
        return Rescan(self.checked, self.began, remaining) if remaining else Rescan(self.began)

    def is_due(self, now: int, every: int) -> bool:
        return self.checked is None or now >= self.checked + max(1, every)


def split_mark(mark: Mark | None) -> tuple[Mark | None, Rescan]:
    """A mark as the list has it, and the rescan in it. KeyError, TypeError or ValueError if it is not one of ours."""
    if mark is None or FIELD not in mark.document:
        return mark, Rescan()
    document = dict(mark.document)
    return Mark.of({name: value for name, value in document.items() if name != FIELD}), _read(document[FIELD])


def join_mark(mark: Mark, rescan: Rescan) -> Mark:
    """A mark with the rescan in it."""
    if rescan == Rescan():
        return mark
    ranges = Position(rescan.remaining).to_document()["remaining"]
    kept: dict[str, Json] = {"checked": rescan.checked, "began": rescan.began, "remaining": ranges}
    return Mark.of({**mark.document, FIELD: kept})


def _read(document: Any) -> Rescan:
    if not isinstance(document, Mapping):
        raise ValueError("its field `rescan` is not an object")
    checked, began = document["checked"], document["began"]
    if not isinstance(checked, int | None) or not isinstance(began, int | None):
        raise ValueError("its field `rescan` has no times")
    position = Position.from_document({"remaining": document["remaining"], "covered": []})
    return Rescan(checked, began, position.remaining)
