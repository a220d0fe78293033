"""The stamp of a record in a spool: when its version was current, and whether it is a delete. Pure.

A line of a stream with changes is `<microseconds since 1970><u|d> <record>`. A version with a higher time replaces one
with a lower time; a delete also one with the same time.

A page is stamped with the second in which it was asked for, by the server's clock: what it shows is at least that new.
An event is stamped with its own second and, in microseconds, its place among the events of that second, which begins at
1. So an event replaces a page of the same second, and the later of two events the earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.links.http.failures import Answer

MICROS = 1_000_000
UPSERT, DELETE = b"u", b"d"
#: the highest place that has a microsecond of its own
LAST_PLACE = MICROS - 1


def page_second(answer: Answer) -> int:
    """The second in which a page was asked for, by the server's clock, or by this machine's if the server has none."""
    at = answer.date or datetime.now(UTC)
    return math.floor(at.timestamp() - answer.seconds)


def stamp_page(texts: Sequence[bytes], second: int) -> list[bytes]:
    """The records of a page as lines of a spool."""
    head = b"%d%b " % (second * MICROS, UPSERT)
    return [head + text for text in texts]


def stamp_event(text: bytes, second: int, place: int, *, is_delete: bool) -> bytes:
    """The object of an event as a line of a spool; `place` counts the events of one second, from 1."""
    return b"%d%b %b" % (second * MICROS + min(place, LAST_PLACE), DELETE if is_delete else UPSERT, text)


def read_stamp(line: bytes) -> tuple[int, bool, bytes]:
    """The time of a line in microseconds, whether it is a delete, and the record."""
    head, _, text = line.partition(b" ")
    return int(head[:-1]), head[-1:] == DELETE, text


def version_of(updated: int, page: int) -> int:
    """The time of a version that says when it was changed, in microseconds.

    A version that was read in the very second of its change may be replaced by another of that second. One that was
    read later is the last of its second, so it counts one microsecond more.
    """
    return updated + (1 if page // MICROS > updated // MICROS else 0)
