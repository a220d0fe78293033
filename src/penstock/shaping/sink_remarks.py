"""Remarks that several sinks make about a content: columns that become strings, rows that stay."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.core.content import Content
from penstock.ports import Remark
from penstock.shaping.resolved_shape import ResolvedShape
from penstock.shaping.types import family

#: names of sources for types of strings, in lower case: `Column.origin` is in a source's own words
_STRINGS = frozenset(
    {"text", "string", "character varying", "varchar", "character", "char", "bpchar", "name", "citext"}
)


def explain_strings(content: Content, also: Sequence[str] = ()) -> list[Remark]:
    """Say which columns are strings in the sink and something else at the source.

    `also`: families of types that this sink holds as strings.
    """
    found = [
        f"{column.name} ({column.origin})"
        for column in content.reads
        if column.origin
        and family(column.type) in ("text", *also)
        and re.sub(r"\(.*\)", "", column.origin).lower() not in _STRINGS
    ]
    return [Remark("gap", f"strings here, of another type at the source: {', '.join(found)}")] if found else []


def explain_stale_rows(content: Content) -> list[Remark]:
    """Say, of a sink that keeps one row for each key, what becomes of a row that no longer meets the filter."""
    shape = ResolvedShape.of(content)
    if not content.filter and (shape is None or shape.where is None):
        return []
    text = "a row that no longer meets `where` after an update is not delivered: its last version stays"
    return [Remark("gap", text)]
