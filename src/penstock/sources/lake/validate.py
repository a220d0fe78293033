"""Checks a stream against its table: every problem of its options and columns, before anything is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from penstock.core.names import did_you_mean
from penstock.errors import StreamRefused, problems_of, refuse_all
from penstock.lake import names
from penstock.lake.table_state import TableState
from penstock.sources.lake.content import TableContent, read_columns
from penstock.sources.lake.options import StreamOptions


def validate(options: StreamOptions, state: TableState, table: str) -> TableContent:
    """Return what the stream reads of its table; StreamRefused with every problem."""
    fields = {field["name"]: field for field in state.columns}
    chosen = options.columns or [name for name in fields if name not in names.INTERNAL]
    readable = [fields[name] for name in chosen if name in fields and name not in names.INTERNAL]
    types = problems_of(partial(read_columns, [field]) for field in readable)
    refuse_all([*_find_problems(options, state, table, chosen), *types])
    return TableContent(
        table=table,
        columns=read_columns(readable),
        where=options.where,
        changes=names.DELETED in fields,
        key=state.key,
        uuid=state.uuid,
        start=str(options.from_),
    )


def _find_problems(
    options: StreamOptions, state: TableState, table: str, chosen: Sequence[str]
) -> Iterator[StreamRefused]:
    if not state.ours and not options.adopt:
        yield _refused(
            f"the table {table} was not created by penstock, so its rows have no order yet",
            "set `adopt: true` on the stream: the table gets the column _ingest_seq, and its files are rewritten "
            "once with a number in every row",
        )
    columns = [field["name"] for field in state.columns]
    for name in chosen:
        if name in names.INTERNAL:
            yield _refused(f"the column {name!r} is internal and cannot be read", "remove it from `columns`")
        elif name not in columns:
            hint = did_you_mean(name, columns)
            have = ", ".join(each for each in columns if each not in names.INTERNAL)
            yield _refused(f"there is no column {name!r} in the table{hint}", f"it has: {have}")
    if without := [name for name in state.key if name not in chosen]:
        yield _refused(
            f"`columns` leaves out {without[0]!r}, a part of the table's key, so deletes could not name their row",
            f"add {without[0]!r} to `columns`",
        )
    start = str(options.from_)
    if start.isdigit() and int(start) > state.head:
        yield _refused(
            f"from: {start} is in the future: the highest number of {table} is {state.head}",
            f"use `now`, `beginning`, or a number up to {state.head}",
        )


def _refused(what: str, step: str) -> StreamRefused:
    return StreamRefused(what, next_step=step)
