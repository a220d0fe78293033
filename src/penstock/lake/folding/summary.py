"""What a slice's rows are, by kind, and its barriers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.core.ops import Layout
from penstock.lake.folding.fold import Clears, Fold
from penstock.lake.folding.matching import matching
from penstock.lake.folding.new_entities import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Summary:
    """What a slice's rows are, by kind, and the places of its barriers."""

    counts: Mapping[str, int]
    #: place, table and field of each `clear`
    cleared: Sequence[tuple[int, str | None, str | None]]
    #: place and filter of each undeclared `query_op_set`
    filters: Sequence[tuple[int, Any]]
    #: when the youngest document was written
    last_at: int | None = None

    @property
    def ops(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind not in ("x", "b"))

    @property
    def quarantined(self) -> int:
        return self.counts.get("x", 0)

    def with_new(self, written: Sequence[Written]) -> Summary:
        """With those of entities that need no fold."""
        if not written:
            return self
        last = max(each.last_at for each in written)
        counts = {**self.counts, "s": self.counts.get("s", 0) + sum(each.ops for each in written)}
        return replace(self, counts=counts, last_at=max(last, self.last_at or last))

    def clears(self, layout: Layout, before: int | None) -> Clears:
        return Clears.of(self.cleared, layout, before)


def summarize(ops: DataFrame) -> Summary:
    from pyspark.sql import functions as F

    kinds = ops.groupBy("t").agg(F.count("*").alias("n"), F.max("at").alias("at")).collect()
    counted = {row["t"]: row["n"] for row in kinds}
    last_at = max((row["at"] for row in kinds if row["at"] is not None), default=None)
    cleared: list[Any] = []
    filters: list[Any] = []
    if counted.keys() & {"c", "k"}:
        cleared = [tuple(row) for row in ops.where("t in ('c', 'k')").select("pos", "tbl", "f").collect()]
    if "q" in counted:
        found = ops.where("t = 'q'").select("pos", "v").orderBy("pos").collect()
        filters = [(row["pos"], json.loads(row["v"])) for row in found]
    return Summary(counted, cleared, filters, last_at)


def expand_barriers(fold: Fold, ops: DataFrame, summary: Summary) -> Fold:
    """Turn each undeclared `query_op_set` into ops of the entities that match at its place, one after the other."""
    for place, where in summary.filters:
        before = replace(
            fold,
            ops=fold.ops.where(f"pos < {place}"),
            clears=summary.clears(fold.layout, place),
            everything=True,
        )
        keys = matching(before.changes(), fold.layout, where)
        inner = ops.where(f"pos = {place} and t in ('Qs', 'Qa', 'Qr')").drop("ek")
        applied = keys.crossJoin(inner).selectExpr("pos", "id", "at", "substr(t, 2) as t", "n", "tbl", "ek", "f", "v")
        applied = applied.localCheckpoint()
        fold = replace(fold, ops=fold.ops.unionByName(applied))
    return fold
