"""The marks of a rest stream: what remains of its time range and what is read, or the run that read it whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.marks import Mark
from penstock.core.marks import Position as Held
from penstock.core.subdivision import Order, Position
from penstock.errors import StreamRefused
from penstock.sources.rest.content import BY_CURSOR, BY_TIME, ListContent
from penstock.sources.rest.times import Unit

#: runs in a row without an answer about a range that are worth a warning
ABANDONED_RUNS = 3
#: ids that a mark keeps of the records before its cursor
TRAIL = 20
#: stands for the beginning of a list among those ids
BEGINNING = ""


def order_of(content: ListContent) -> Order:
    return Order.NEWEST_FIRST if content.order == "newest" else Order.ASCENDING


def position_mark(position: Position, unit: str) -> Mark:
    return Mark.of({**position.to_document(), "unit": unit})


def read_position(mark: Mark | None) -> Position:
    """The position of a mark; nothing is read where there is none. ValueError if it is not one of ours."""
    return Position((), ()) if mark is None else Position.from_document(mark.document)


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """How far a list is read that grows at its end."""

    #: where the next page begins; None: at the beginning
    cursor: str | None = None
    #: ids of the records that were delivered from that page on: dropped if they come again
    seen: tuple[str, ...] = ()
    #: the last ids that were delivered before that page, in the order of the list; BEGINNING comes before all
    trail: tuple[str, ...] = (BEGINNING,)

    def earlier(self) -> Iterator[CursorPosition]:
        """Where reading may begin again if the object that the cursor names is deleted, the latest first.

        Only where a cursor is an id. What was delivered after such a place is dropped when it comes again.
        """
        for number in range(len(self.trail) - 2, -1, -1):
            after, before = self.trail[number + 1 :], self.trail[: number + 1]
            yield CursorPosition(before[-1] or None, (*after, *self.seen), before)

    def move_on(self, cursor: str, ids: Sequence[str], seen: Sequence[str]) -> CursorPosition:
        """The place after a page with these ids. `seen` was delivered from there on."""
        return CursorPosition(cursor, tuple(seen), (*self.trail, *ids)[-TRAIL:])

    def mark(self) -> Mark:
        return Mark.of({"cursor": self.cursor, "seen": list(self.seen), "trail": list(self.trail)})

    @classmethod
    def read(cls, mark: Mark | None) -> CursorPosition:
        """KeyError, TypeError or ValueError if it is not one of ours."""
        if mark is None:
            return cls()
        cursor, seen = mark.document["cursor"], mark.document["seen"]
        # Marks that were made before there was a trail know no place before their cursor.
        trail = mark.document.get("trail", [])
        if not isinstance(cursor, str | None) or not isinstance(seen, list) or not isinstance(trail, list):
            raise ValueError("it has no cursor")
        return cls(cursor, tuple(map(str, seen)), tuple(map(str, trail)))


def whole_mark(run: str) -> Mark:
    return Mark.of({"run": run})


def refuse_mark(stream: str, error: Exception) -> StreamRefused:
    """The refusal of a stored mark that another source has made."""
    return StreamRefused(
        f"the stored mark is not one of this stream: {error}",
        next_step=f"`penstock state reset FILE --stream {stream}` reads it again from the beginning",
        stream=stream,
    )


def accept(stream: str, last: Held, content: Content) -> None:
    """StreamRefused if a stored position does not fit what would be read now."""
    if last.mark is None:
        return
    reset = f"`penstock state reset FILE --stream {stream}` reads it again from the beginning"
    now = ListContent.read(content)
    try:
        before = ListContent.read(Content.parse(last.content))
        document = last.mark.document
        if now.mode == BY_TIME:
            Position.from_document(document)
            if document["unit"] != now.unit and before.unit == now.unit:
                raise ValueError(f"its unit is {document['unit']}")
        elif now.mode == BY_CURSOR:
            CursorPosition.read(last.mark)
        elif not isinstance(document["run"], str):
            raise ValueError("it names no run")
    except (KeyError, ValueError, TypeError) as error:
        raise refuse_mark(stream, error) from None
    for name in ("api", "path", "params", "id", "mode", "time", "unit", "order", "parent", "parent_column"):
        was, is_ = getattr(before, name), getattr(now, name)
        if was != is_:
            raise StreamRefused(
                f"the mark was made with {name} {was or 'none'}, and the stream now has {is_ or 'none'}",
                next_step=f"restore the configuration, or {reset}",
                stream=stream,
            )


def describe(mark: Mark | None) -> str:
    """A mark, human-readable."""
    if mark is None:
        return "the beginning"
    document = mark.document
    if "cursor" in document:
        return f"read up to cursor {document['cursor']}" if document["cursor"] else "the first page is read"
    if "run" in document:
        return f"read whole by run {str(document['run'])[:8]}"
    position, unit = Position.from_document(document), Unit(document["unit"])
    spans = [f"{_show(span.gte, unit, 'the beginning')} to {_show(span.lt, unit, 'now')}" for span in position.covered]
    read = f"read: {', '.join(spans[:3])}" + (f" and {len(spans) - 3} more ranges" if len(spans) > 3 else "")
    if not spans:
        read = "nothing is read"
    ranges = len(position.remaining)
    left = "nothing remains" if not ranges else "1 range remains" if ranges == 1 else f"{ranges} ranges remain"
    return f"{read}; {left}"


def describe_abandoned(position: Position, unit: str) -> list[str]:
    """Warnings about ranges for which several runs in a row got no answer."""
    at = Unit(unit)
    return [
        f"the range from {_show(each.gte, at, 'the beginning')} to {_show(each.lt, at, 'now')} was unanswered at "
        f"the end of {each.abandoned} runs in a row: the API may be unable to list it; a longer --time-limit may help"
        for each in position.remaining
        if each.abandoned >= ABANDONED_RUNS
    ]


def _show(time: int | None, unit: Unit, otherwise: str) -> str:
    return otherwise if not time else unit.show(time)
