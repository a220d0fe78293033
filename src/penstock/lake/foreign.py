"""Numbers rows that other programs put into a table, before any reader may pass them.

A snapshot that is neither ours nor a compaction is inspected. Every row that it brought gets a number, whatever it came
with, unless it is a row that the same snapshot removed and that still has its own (`foreign_rows`). Rows that the
snapshot changed under their numbers, or deleted, are counted and reported, because no reader will see these changes.
This module looks at metadata only; `numbering` does the work, and imports PyIceberg.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.lake.lake import Lake
from penstock.lake.metadata import read_state
from penstock.ports import Mover, Probe


def stamp(
    lake: Lake,
    table: str,
    mover: Callable[[], Mover],
    probe: Probe,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Give every row its place and describe what was done. `say` prints progress at once."""
    state = read_state(lake, table)
    if state is None or not state.ours or state.orderly:
        return []
    from penstock.lake.numbering import Numbering

    return Numbering(lake, table, mover, probe, say).run()


def foresee(lake: Lake, table: str) -> list[str]:
    """Describe what `stamp` would report, or raise the error with which it would stop. Writes nothing."""
    state = read_state(lake, table)
    if state is None or not state.ours or state.orderly:
        return []
    from penstock.lake.numbering import Numbering
    from penstock.ports import NoProbe, no_mover

    return Numbering(lake, table, no_mover, NoProbe(), dry_run=True).run()


def accept(lake: Lake, table: str, mover: Callable[[], Mover], probe: Probe, *, dry_run: bool = False) -> list[str]:
    """Do the same where the origin of some rows is unknown, at the operator's request.

    Returns what was accepted, and which readers may miss rows by it. With `dry_run` nothing is changed.
    """
    state = read_state(lake, table)
    if state is None or not state.ours or state.orderly:
        return [f"nothing to accept: every row of {lake.namespace}.{table} has its place in the order"]
    from penstock.lake.numbering import Numbering
    from penstock.lake.upkeep.job import refuse_rolled_back

    state.refuse_other_version(f"{lake.namespace}.{table}")
    refuse_rolled_back(f"{lake.namespace}.{table}", state)
    return Numbering(lake, table, mover, probe, accepting=True, dry_run=dry_run).run()
