"""Notes when the head stood where, once in an upkeep."""

from __future__ import annotations

from penstock.lake.tables import LostRace, Unclear, translated
from penstock.lake.times import TIMES, noted
from penstock.lake.upkeep.work import Work


def record(work: Work) -> None:
    """Note where the head is now. A property alone; lost to another commit, the next upkeep notes it."""
    table, standing = work.loaded()
    now = (int(work.now.timestamp() * 1000), standing.head)
    times = noted(standing, now)
    if work.dry_run or times == standing.properties.get(TIMES):
        return
    try:
        with translated():
            table.transaction().set_properties({TIMES: times}).commit_transaction()
    except (LostRace, Unclear):
        return
