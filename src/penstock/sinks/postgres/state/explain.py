"""Explain what a stream in mode `state` keeps."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.sizes import shown_duration
from penstock.ports import Remark
from penstock.sinks.postgres.options import StreamConfig


def explain_state(config: StreamConfig) -> Iterator[Remark]:
    yield Remark("guarantee", f"lands in {config.table}: one row for each entity, each slice in one transaction")
    yield Remark(
        "guarantee",
        "an op that is not understood, or whose value its column cannot hold, is quarantined with the reason",
    )
    age = config.options.early_for
    if age is not None:
        yield Remark("gap", f"ops whose entity has not come after {shown_duration(age)} are dropped")
    yield Remark("gap", "if others write the same columns of the table, their values are replaced by later ops only")
    if not config.options.triggers:
        yield Remark(
            "gap", f"the triggers of {config.table} do not run for these rows; other writers wait for each slice"
        )
