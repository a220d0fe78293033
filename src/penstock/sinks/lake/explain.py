"""What holds for a stream that lands in a lake table, and what does not, in words."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.slices import Kind
from penstock.lake.lake import Lake
from penstock.lake.table_state import TableState
from penstock.ports import Remark, StreamInfo


def explain(
    lake: Lake,
    table: str,
    mode: str,
    key: Sequence[str],
    stream: StreamInfo,
    *,
    newer_than: str | None,
    gone: Sequence[str],
    adopts: TableState | None = None,
) -> Sequence[Remark]:
    """Where it lands comes first. `gone`: columns of the table that the source no longer has.

    `adopts`: a table that penstock did not make.
    """
    found = _remarks(lake, table, mode, key, stream, newer_than=newer_than, gone=gone)
    if adopts is None:
        return found
    what = "the table is not penstock's: the first slice adds the column _ingest_seq"
    return [*found, Remark("gap", f"{what}; when it is first read, {adopts.size} are rewritten once")]


def _remarks(
    lake: Lake,
    table: str,
    mode: str,
    key: Sequence[str],
    stream: StreamInfo,
    *,
    newer_than: str | None,
    gone: Sequence[str],
) -> Sequence[Remark]:
    where = f"lands in the table {lake.namespace}.{table} of {lake.warehouse}"
    if stream.kind is Kind.REFRESH:
        return (
            Remark("guarantee", f"{where}: each run takes the place of the one before, in one commit"),
            Remark("gap", "readers of the table are given each refresh as new rows, and no deletes"),
        )
    if mode == "merge":
        newest = f", the one with the highest {newer_than}" if newer_than else ""
        found = [
            Remark("guarantee", f"{where}: one current row for each {', '.join(key)}{newest}; a slice is one commit"),
            Remark("gap", "readers of the table are given its state, not versions that came and went between two runs"),
        ]
        if gone:
            what = f"{', '.join(gone)} {'are' if len(gone) > 1 else 'is'} gone at the source"
            found.append(Remark("gap", f"{what}: a row that is updated from now on is NULL there, in its new version"))
        return found
    found = [
        Remark("guarantee", f"{where}: a log of versions; each slice is one commit, in the order of commits"),
        Remark("gap", "an updated row is delivered again beside its older versions; the highest _ingest_seq is newest"),
    ]
    if key:
        found.append(Remark("advice", f"`mode: merge` would keep one current row for each {', '.join(key)}"))
    return found
