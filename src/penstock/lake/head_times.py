"""Records which head the table had at which time, in a property, so that the age of rows is known without snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from penstock.lake import names
from penstock.lake.table_state import TableState

#: the property: [[milliseconds, head], …], oldest first
HEAD_TIMES = "penstock.times"
#: how many are kept; beyond it, those that lie closest together go
MAX_NOTES = 200

Times = list[tuple[int, int]]


def read_times(state: TableState) -> Times:
    """Read the times from the property and the snapshots, oldest first."""
    found = {(int(at), int(head)) for at, head in json.loads(state.properties.get(HEAD_TIMES, "[]"))}
    for snapshot in state.line():
        if names.HEAD in snapshot.summary:
            found.add((snapshot.at_ms, int(snapshot.summary[names.HEAD])))
    return sorted(found)


def head_at(times: Times, moment: datetime) -> int:
    """The highest head known at a time: every row at or below it had landed by then; 0: none is known."""
    at_ms = int(moment.timestamp() * 1000)
    return max((head for at, head in times if at <= at_ms), default=0)


def thin(times: Iterable[tuple[int, int]], most: int = MAX_NOTES) -> Times:
    """Thin the times to the limit, spread evenly. Leaving one out only makes rows seem younger."""
    kept: Times = []
    for at, head in sorted(times):
        if kept and head <= kept[-1][1]:
            continue  # nothing has landed since
        kept.append((at, head))
    while len(kept) > most:
        gaps = [kept[index + 1][0] - kept[index - 1][0] for index in range(1, len(kept) - 1)]
        del kept[1 + gaps.index(min(gaps))]
    return kept


def format_times(state: TableState, *more: tuple[int, int]) -> str:
    """Format the property, before snapshots with these times are removed."""
    return json.dumps(thin([*read_times(state), *more]), separators=(",", ":"))
