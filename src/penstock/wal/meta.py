"""What a sender says of its origin with a batch, and the last of it by source: for lag and metrics.

It decides nothing: what is taken and what is read does not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Document
from penstock.wal.persistent_map import PersistentMap

#: sources of a stream that are remembered, the last ones heard of
MOST_SOURCES = 1000
#: characters of a source's name, a cursor or an id
MOST_CHARACTERS = 1000
_FIELDS = ("source", "cursor", "max_id", "lag_rows", "lag_seconds")
_LARGEST = 2**63 - 1
_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Meta:
    """How far the origin of a batch was read; None: the sender did not say."""

    #: the origin's name
    source: str | None = None
    #: up to where it was read
    cursor: int | str | None = None
    #: the highest id that it has
    max_id: int | str | None = None
    #: rows of it that are not sent yet
    lag_rows: int | None = None
    #: since the oldest of them was written
    lag_milliseconds: int | None = None

    @property
    def lag_seconds(self) -> float | None:
        return None if self.lag_milliseconds is None else self.lag_milliseconds / _MILLISECONDS

    def document(self) -> Document:
        """Without the fields that are None."""
        found = {
            "source": self.source,
            "cursor": self.cursor,
            "max_id": self.max_id,
            "lag_rows": self.lag_rows,
            "lag_milliseconds": self.lag_milliseconds,
        }
        return {name: value for name, value in found.items() if value is not None}


def read_meta(document: Mapping[str, Any]) -> Meta:
    """The meta that a sender sends as JSON; ValueError names the field that is wrong."""
    if unknown := sorted(set(document) - set(_FIELDS)):
        raise ValueError(f"{unknown[0][:40]} is not one of {', '.join(_FIELDS)}")
    source, seconds = document.get("source"), document.get("lag_seconds")
    if not (source is None or (isinstance(source, str) and 0 < len(source) <= MOST_CHARACTERS)):
        raise ValueError(f"source must be a string of 1 to {MOST_CHARACTERS} characters")
    for name in ("cursor", "max_id"):
        value = document.get(name)
        if not (value is None or _is_int(value, -_LARGEST) or (isinstance(value, str) and _is_short(value))):
            raise ValueError(f"{name} must be a whole number or a string of up to {MOST_CHARACTERS} characters")
    rows = document.get("lag_rows")
    if not (rows is None or _is_int(rows)):
        raise ValueError("lag_rows must be a whole number from 0 on")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not (seconds is None or (is_number and 0 <= seconds <= _LARGEST / _MILLISECONDS)):
        raise ValueError("lag_seconds must be a number from 0 on")
    milliseconds = None if seconds is None else round(seconds * _MILLISECONDS)
    return Meta(source, document.get("cursor"), document.get("max_id"), rows, milliseconds)


def _is_int(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def _is_short(value: str) -> bool:
    return len(value) <= MOST_CHARACTERS


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a log holds of one source."""

    #: each field as it was last sent
    meta: Meta = Meta()
    #: acknowledged since the log began
    batches: int = 0
    rows: int = 0
    #: those of the rows that are ops
    ops: int = 0
    #: microseconds since 1970, by the log's clock, of the last batch
    at: int = 0


#: by name; "" where neither meta nor key names one
Sources = PersistentMap[str, SourceState]


def with_batch(sources: Sources, name: str, meta: Meta | None, rows: int, kind: str, at: int) -> Sources:
    """The sources after a batch of one of them."""
    held = sources.get(name, SourceState())
    ops = held.ops + (rows if kind == "ops" else 0)
    said = held.meta if meta is None else Meta(**{**held.meta.document(), **meta.document()})  # type: ignore[arg-type]
    after = sources.having(name, SourceState(said, held.batches + 1, held.rows + rows, ops, at))
    if len(after) <= MOST_SOURCES:
        return after
    # By name too: two readers that fold the same records must forget the same one.
    longest_ago = min(after, key=lambda each: (after[each].at, each))
    return PersistentMap((each, state) for each, state in after.items() if each != longest_ago)


def to_document(sources: Sources) -> Document:
    return {
        name: [dict(each.meta.document()), each.batches, each.rows, each.ops, each.at] for name, each in sources.items()
    }


def from_document(document: Mapping[str, Any]) -> Sources:
    return PersistentMap(
        (name, SourceState(Meta(**meta), batches, rows, ops, at))
        for name, (meta, batches, rows, ops, at) in document.items()
    )
