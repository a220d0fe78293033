"""Explains what holds for a stream that lands in a lake table, and what does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.core.drift import absent
from penstock.core.sizes import shown_duration
from penstock.core.slices import Kind
from penstock.lake.table_state import TableState
from penstock.ports import Remark
from penstock.sinks.lake.checks import Checks


def explain(checks: Checks, state: TableState | None) -> Sequence[Remark]:
    """Remarks about a stream and its table, which may not exist yet; where it lands comes first."""
    lake, key = checks.lake, ", ".join(checks.key)
    where = f"lands in the table {lake.namespace}.{checks.table} of {lake.warehouse}"
    if checks.kind is Kind.REFRESH:
        found = [
            Remark("guarantee", f"{where}: each run replaces the one before, in one commit"),
            Remark("gap", "readers of the table get each refresh as new rows, and no deletes"),
        ]
    elif checks.options.mode == "state":
        found = [
            Remark("guarantee", f"{where}: one current row for each {key}; a slice of ops is one commit"),
            Remark("guarantee", "ops that come before their entity are kept until it comes")
            if checks.options.early_for is None
            else Remark(
                "gap", f"ops whose entity has not come after {shown_duration(checks.options.early_for)} are dropped"
            ),
            Remark(
                "gap", "ops that are not understood, or do not convert, are in quarantine: `penstock quarantine list`"
            ),
        ]
    elif checks.options.mode == "merge":
        newest = f", the one with the highest {checks.newer_than}" if checks.newer_than else ""
        found = [
            Remark("guarantee", f"{where}: one current row for each {key}{newest}; a slice is one commit"),
            Remark(
                "gap", "readers of the table get its current rows, not versions that came and went between two runs"
            ),
        ]
        if checks.content.changes:
            found += _explain_deletes(checks)
        if gone := absent(checks.content):
            what = f"{', '.join(gone)} {'are' if len(gone) > 1 else 'is'} gone at the source"
            found.append(Remark("gap", f"{what}: a row that is updated from now on is NULL there, in its new version"))
    else:
        found = [
            Remark("guarantee", f"{where}: a log of versions; each slice is one commit, in the order of commits"),
            Remark(
                "gap",
                "an updated row is delivered again, next to its older versions; the highest _ingest_seq is newest",
            ),
        ]
        if key:
            found.append(Remark("advice", f"`mode: merge` would keep one current row for each {key}"))
    if state is not None and not state.ours:
        what = "the table is not penstock's: the first slice adds the column _ingest_seq"
        found.append(Remark("gap", f"{what}; when it is first read, {state.size} are rewritten once"))
    return found


def _explain_deletes(checks: Checks) -> Iterator[Remark]:
    options = checks.options
    if options.marker:
        yield Remark("guarantee", f"a row that is deleted at the source stays, with the time of it in {options.marker}")
    elif options.deletes == "ignore":
        yield Remark("gap", "deletes at the source are ignored: the rows stay as they are")
    elif checks.newer_than:
        yield Remark(
            "gap", "a deleted row comes back if an older version of it arrives after upkeep has removed its tombstone"
        )
