"""Upkeep in the lake's soak: the real one, with ages of seconds, of the log, its copy and the keyed table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.lake.metadata import read_state
from penstock.lake.upkeep.job import StepResult, UpkeepJob
from penstock.lake.upkeep.options import (
    RetentionOptions,
    SnapshotOptions,
    TombstoneOptions,
    UpkeepOptions,
)
from penstock.lake.upkeep.run import STEPS
from penstock.lake.upkeep.run import run_upkeep as kept
from penstock.ports import Probe, Spark
from tests.harness.doubles import LoopMover
from tests.soak.lake_worker import EVENTS, ITEMS, place

#: who reads which table: one that is yet to come would begin above what was removed before
AWAITED = {("log", EVENTS): {"files", "copy", "poller"}, ("keyed", ITEMS): {"versions", "again"}}
OPTIONS = UpkeepOptions(
    min_input_files=4,
    # Long enough for a reader that is frozen for a while on a busy machine.
    snapshots=SnapshotOptions(keep_for=timedelta(seconds=25), keep_at_least=3),
    # At once: nothing but the readers holds them back. (With seconds, a retention that passed readers went unnoticed.)
    retention=RetentionOptions(age=timedelta(0)),
    tombstones=TombstoneOptions(age=timedelta(0)),
)


ALL = tuple(STEPS)
WITHOUT_SPARK = ("retention", "expiry", "orphans")


def keep(folder: Path, steps: Sequence[str], spark: Spark, probe: Probe, note: Callable[..., None]) -> bool:
    """One upkeep of each table; False: a step could not be done."""
    good = True
    for namespace, table in (("log", EVENTS), ("keyed", ITEMS), ("copy", EVENTS)):
        at = place(folder, namespace)
        state = read_state(at, table)
        if state is None:
            continue
        readers = {reader.pipeline for reader in state.readers()}
        reached = AWAITED.get((namespace, table), {"nobody"}) <= readers
        chosen = [step for step in steps if reached or step not in ("retention", "tombstones")]
        spark.require(at.spark_settings(), at.spark_packages())
        work = UpkeepJob(at, table, OPTIONS, spark, LoopMover, probe, datetime.now(UTC))
        for done in kept(work, chosen):
            note(**_noted(done), table=f"{namespace}.{table}")
            good = good and done.error is None
    return good


def _noted(done: StepResult) -> dict[str, Any]:
    """What is worth counting."""
    if done.error is not None:
        return {"is_lost_race": done.step, "reason": done.text}
    facts = done.facts
    match done.step:
        case "retention":
            return {"removed": facts.get("rows", 0)}
        case "compaction":
            return {"compacted": facts.get("rewritten", 0)}
        case "expiry":
            return {"expired": facts.get("expired", 0)}
        case "tombstones":
            return {"purged": facts.get("tombstones", 0)}
        case "orphans":
            return {"orphans": facts.get("files", 0)}
    return {"upkeep": done.text}
