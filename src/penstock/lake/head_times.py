"""When the head stood where: kept in a property, so that the age of rows is known when the snapshots are gone."""

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
    """What the property and the snapshots tell, oldest first."""
    found = {(int(at), int(head)) for at, head in json.loads(state.properties.get(HEAD_TIMES, "[]"))}
    for snapshot in state.line():
        if names.HEAD in snapshot.summary:
            found.add((snapshot.at_ms, int(snapshot.summary[names.HEAD])))
    return sorted(found)


def head_at(times: Times, moment: datetime) -> int:
    """A head that every row at or below it had landed by then; 0: none is known."""
    at_ms = int(moment.timestamp() * 1000)
    return max((head for at, head in times if at <= at_ms), default=0)


def thin(times: Iterable[tuple[int, int]], most: int = MAX_NOTES) -> Times:
    """Thin the notes to the limit, spread evenly over time. Leaving one out only makes rows seem younger."""
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
    """What the property is to hold, before snapshots that tell it are forgotten."""
    return json.dumps(thin([*read_times(state), *more]), separators=(",", ":"))
