"""Which columns of a shaped stream are delivered as the source has them, so that both sides can be compared.

Also says, for every sink, when a search for deleted rows makes no sense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.core.content import Content
from penstock.errors import StreamRefused
from penstock.ports import ComparedColumn, ComparedColumns, StreamInfo, not_comparable
from penstock.shaping.resolved_shape import ResolvedShape


def choose_columns(stream: str, content: Content, given: ComparedColumns) -> ComparedColumns:
    """The source's columns by their delivered names. Those that were changed on the way are not compared."""
    resolved = ResolvedShape.of(content)
    if resolved is not None and resolved.where is not None:
        raise not_comparable(
            stream, "`shape` filters its rows outside of the source", "move the condition to `where` of the stream"
        )
    names = dict(resolved.names) if resolved else {column.name: column.name for column in content.reads}
    skipped = {names[name]: why for name, why in given.skipped.items() if name in names}
    changed = _changed(resolved) | _drifted(content, names)
    for column in given.key:
        why = changed.get(column.name, None if column.name in names else "it is not delivered")
        if why:
            raise not_comparable(stream, f"of its key column {column.name}: {why}")
    values = [column for column in given.values if column.name in names]
    skipped |= {names[column.name]: changed[column.name] for column in values if column.name in changed}
    kept = [column for column in values if column.name not in changed]
    skipped |= {
        name: "it is gone at the source" for name in content.names if name not in names.values() and content.drift
    }
    return ComparedColumns(
        tuple(replace(column, name=names[column.name]) for column in given.key),
        tuple(replace(column, name=names[column.name]) for column in kept),
        skipped,
        tuple(names[name] for name in given.identifying),
    )


def name_as_read(content: Content, columns: ComparedColumns) -> ComparedColumns:
    """Compared columns by the names that the source has for them."""
    resolved = ResolvedShape.of(content)
    if resolved is None:
        return columns
    old = {new: name for name, new in resolved.names}

    def rename(column: ComparedColumn) -> ComparedColumn:
        return replace(column, name=old[column.name])

    return replace(
        columns,
        key=tuple(map(rename, columns.key)),
        values=tuple(map(rename, columns.values)),
        identity=tuple(old[name] for name in columns.identifying),
    )


def check_delete_search(stream: StreamInfo, key: Sequence[str], deletes: str) -> None:
    """StreamRefused if a sink cannot delete rows that the source no longer has.

    `key`: its key; empty if it keeps every version of a row.
    """
    if not key:
        raise StreamRefused(
            "the sink keeps every version of a row",
            next_step="let it keep one row for each key: `mode: upsert` in Postgres, `mode: merge` in a lake",
            stream=stream.name,
        )
    if set(key) != set(stream.primary_key):
        raise StreamRefused(
            f"its key in the sink is {', '.join(key)}, and the source's primary key is "
            f"{', '.join(stream.primary_key) or 'not delivered'}",
            next_step="use the primary key in the sink",
            stream=stream.name,
        )
    if deletes == "ignore":
        raise StreamRefused(
            "the sink ignores deletes", next_step="set `deletes: hard` or `deletes: soft`", stream=stream.name
        )


def _changed(resolved: ResolvedShape | None) -> dict[str, str]:
    """Columns whose values a shape changes, by the source's names."""
    if resolved is None:
        return {}
    return {
        **dict.fromkeys(resolved.cast, "it is cast"),
        **dict.fromkeys(resolved.mask, "it is masked"),
        **dict.fromkeys(resolved.hash, "it is hashed"),
    }


def _drifted(content: Content, names: dict[str, str]) -> dict[str, str]:
    """Columns that the sink has in another type, by the source's names."""
    if content.drift is None:
        return {}
    landed = {column.name: column.type for column in content.columns}
    given = {column.name: column.type for column in content.drift.reads}
    return {
        old: "the sink has it in another type, or stores its values separately"
        for old, new in names.items()
        if new in given and given[new] != landed.get(new)
    }
