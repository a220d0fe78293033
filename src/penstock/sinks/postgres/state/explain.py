"""Explain what a stream in mode `state` keeps."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.ops import Layout
from penstock.core.sizes import shown_duration
from penstock.links.postgres.literals import quote
from penstock.ports import Remark
from penstock.sinks.postgres.options import StreamConfig
from penstock.sinks.postgres.target import Target


def explain_state(config: StreamConfig, layout: Layout, target: Target | None) -> Iterator[Remark]:
    """`target`: the table; None: it does not exist yet, and is created with indexes on the matches."""
    yield Remark("guarantee", f"lands in {config.table}: one row for each entity, each slice in one transaction")
    yield Remark(
        "guarantee",
        "an op that is not understood, or whose value its column cannot hold, is quarantined with the reason",
    )
    for fan_out in layout.fan_outs:
        if target is not None and not any(
            set(index.columns[: len(fan_out.match)]) == set(fan_out.match) for index in target.indexes
        ):
            columns = ", ".join(map(quote, fan_out.match))
            yield Remark(
                "advice",
                f"each slice with a fan-out of {fan_out.table} reads all of {config.table}; with an index it does not: "
                f"CREATE INDEX ON {config.table.quoted} ({columns});",
            )
    age = config.options.early_for
    if age is not None:
        yield Remark("gap", f"ops whose entity has not come after {shown_duration(age)} are dropped")
    yield Remark("gap", "if others write the same columns of the table, their values are replaced by later ops only")
    if not config.options.triggers:
        yield Remark(
            "gap", f"the triggers of {config.table} do not run for these rows; other writers wait for each slice"
        )
