"""Marks of a lake stream: a table, known by its uuid, the number up to which it was read, and the snapshot by then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.documents import Json
from penstock.core.marks import Mark
from penstock.errors import StreamRefused


def mark_of(uuid: str, seq: int, at: Mapping[str, Json] | None = None, *, began: int = 0) -> Mark:
    """`at`: the snapshot whose head it was read up to, so that a rollback of the table is noticed.

    `began`: deletes up to this number were in the table before the stream read its first row, so that it never
    delivered the rows that they are about.
    """
    # By the name under which sinks look for what they may show of a mark.
    document: dict[str, Json] = {"table": uuid, "key": [str(seq)]}
    return Mark.of(document | ({"at": at} if at else {}) | ({"began": began} if began else {}))


def began_of(mark: Mark | None) -> int:
    """The number up to which a stream needs no deletes; 0: it needs them all."""
    began: Any = mark.document.get("began", 0) if mark else 0
    if mark is not None and not isinstance(began, int):
        raise malformed(mark)
    return int(began)


def snapshot_of(mark: Mark) -> tuple[int, int] | None:
    """The id and sequence number of the snapshot that a mark was made from; None: it does not say."""
    at: Any = mark.document.get("at")
    try:
        return (int(at["snapshot"]), int(at["sequence"])) if at is not None else None
    except (KeyError, TypeError, ValueError):
        raise malformed(mark) from None


def seq_of(mark: Mark) -> int:
    """The number; StreamRefused if the mark is not one of ours."""
    found: Any = mark.document.get("key")
    if not isinstance(found, list) or len(found) != 1 or not str(found[0]).isdecimal():
        raise malformed(mark)
    return int(found[0])


def table_of(mark: Mark) -> str:
    found: Any = mark.document.get("table")
    if not isinstance(found, str):
        raise malformed(mark)
    return found


def malformed(mark: Mark) -> StreamRefused:
    return StreamRefused(
        f"the stored mark {mark.text} is not one that a lake source makes",
        next_step="use the source that the mark was made from, or `penstock state reset` the stream",
    )
