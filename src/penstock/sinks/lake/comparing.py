"""A stream's lake table as a comparison sees it, and whose rows are in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.lake.comparing import SparkRows, explain_difference, has_order
from penstock.lake.table_state import TableState
from penstock.ports import ComparedColumns, SinkComparison, Spark, StreamInfo, not_comparable
from penstock.sinks.lake.options import StreamOptions


def compare(
    stream: StreamInfo,
    options: StreamOptions,
    key: Sequence[str],
    columns: ComparedColumns,
    state: TableState | None,
    table: str,
    spark: Spark,
) -> SinkComparison:
    """The table's side of a comparison; NotComparable if the stream cannot be compared."""
    if state is None:
        raise not_comparable(stream.name, f"there is no table {table} yet", "penstock run FILE")
    if options.mode == "state":
        raise not_comparable(stream.name, "the rows of the source are documents of ops, and the table has entities")
    source_key = columns.identifying
    if options.mode == "merge" and set(key) != set(source_key):
        raise not_comparable(
            stream.name,
            f"its key in the sink is {', '.join(key)}, and the source's primary key is {', '.join(source_key)}",
        )
    types = {column["name"]: column["type"] for column in state.columns}
    for column in columns.key:
        why = explain_difference(types.get(column.name), column)
        if why is None and not has_order(str(types[column.name])):
            why = f"{types[column.name]} has no common order"
        if why:
            raise not_comparable(stream.name, f"of its key column {column.name}: {why}")
    reasons = {column.name: explain_difference(types.get(column.name), column) for column in columns.values}
    kept = tuple(column for column in columns.values if reasons[column.name] is None)
    skipped = {name: why for name, why in reasons.items() if why is not None}
    return SinkComparison(
        rows=SparkRows(
            spark=spark,
            table=table,
            key=columns.key,
            values=kept,
            types=types,
            appends=options.mode == "append",
            deleted_at=options.marker,
        ),
        columns=replace(columns, values=kept, skipped={**columns.skipped, **skipped}),
        appends=options.mode == "append",
        keeps_deleted=options.deletes == "ignore",
    )


def explain_foreign_rows(state: TableState | None, pipeline: str, stream: str) -> str | None:
    """Why a row of the table may be someone else's; None: nothing says so, as far as the table's history is kept."""
    if state is None:
        return None
    others = [about for about in state.links() if about != (pipeline, stream)]
    if others:
        return f"{'/'.join(others[0])} lands in the table too"
    if state.adopted:
        return "another program created the table"
    if any(snapshot.foreign for snapshot in state.line()):
        return "another program has written to the table"
    return None
