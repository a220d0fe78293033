"""Describes the tables that a lake source can read, and what holds for a stream that reads one, from metadata only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.lake import names
from penstock.lake.metadata_types import Unreadable, format_type, parse_type
from penstock.lake.table_state import TableState
from penstock.ports import DiscoveredStream, Remark
from penstock.sources.lake.content import TableContent


def describe_table(name: str, state: TableState) -> DiscoveredStream:
    """Describe a table and how it would be read: onward from a number, in penstock's order."""
    fields = [field for field in state.columns if field["name"] not in names.INTERNAL]
    unread = [field for field in fields if not _readable(field["type"])]
    keyed = state.keyed
    options: dict[str, Any] = {}
    reasons: list[str] = []
    if state.ours:
        reasons.append("read onward by _ingest_seq, which penstock gives to every row in the order of commits")
    else:
        options["adopt"] = True
        reasons.append(
            "not made by penstock: `adopt: true` gives it the column _ingest_seq and rewrites its files once"
        )
    if keyed:
        reasons.append("a keyed table: deletes come along")
    if unread:
        options["columns"] = [field["name"] for field in fields if field not in unread]
        types = ", ".join(f"{field['name']} ({format_type(field['type'])})" for field in unread)
        reasons.append(f"left out, because a type cannot be read from the lake: {types}")
    refused = None
    if unread and len(unread) == len(fields):
        refused = "none of its columns is of a type that can be read from the lake; add one that is"
    elif lost := [field["name"] for field in unread if field["name"] in state.key]:
        refused = f"the key column {lost[0]} is of a type that cannot be read from the lake; use another table"
    return DiscoveredStream(
        name=name,
        what=("keyed table" if keyed else "log") if state.ours else "table of others",
        columns=tuple((field["name"], format_type(field["type"])) for field in fields),
        primary_key=state.key,
        rows=_summed(state, "total-records"),
        bytes=_summed(state, "total-files-size"),
        options=options,
        reasons=tuple(reasons),
        refused=refused,
        options_if_renamed={"table": name},
    )


def explain(content: TableContent, state: TableState) -> Sequence[Remark]:
    """Explain what holds for a stream that reads a table, and what does not."""
    found = [
        Remark("guarantee", f"every row of {content.table} is delivered exactly once, in the order of commits"),
        Remark("guarantee", "this reader is registered in the table: retention waits for it"),
    ]
    if content.start == "now":
        found.append(Remark("gap", "rows from before the first run are not delivered (`from: now`)"))
    elif content.start.isdigit():
        found.append(Remark("gap", f"rows up to number {content.start} are not delivered (`from: {content.start}`)"))
    if state.keyed:
        found.append(Remark("guarantee", "deletes are delivered"))
        found.append(
            Remark("gap", "versions that came and went between two runs are not delivered: state, not history")
        )
    found.append(Remark("gap", "updates and deletes by other programs are reported, but not delivered"))
    if content.where:
        found.append(Remark("gap", f"rows for which this is not true are left out: {content.where}"))
        if not state.keyed:
            found.append(Remark("gap", "a filter on a log is final: what it left out does not come when it is changed"))
    if state.ours and not state.orderly:
        found.append(Remark("advice", "others have written to the table: the next run gives their rows numbers first"))
    if not state.ours:
        found.append(Remark("advice", f"the first run adds the column _ingest_seq and rewrites {state.size} once"))
    return found


def _readable(type_: Any) -> bool:
    try:
        parse_type(type_)
    except Unreadable:
        return False
    return True


def _summed(state: TableState, total: str) -> int | None:
    """A total that the newest snapshot states; None: it does not."""
    if state.main is None:
        return 0
    said = state.main.summary.get(total, "")
    return int(said) if said.isdigit() else None
