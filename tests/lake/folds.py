"""The fold of Spark beside the reference: documents in slices, with the state between them in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.core.content import Column
from penstock.core.ops import FanOut, Layout, State, fold
from penstock.core.ops import Row as Document
from penstock.core.types import Plain
from penstock.lake.folding.documents import RAW, read_ops
from penstock.lake.folding.fold import Fold, fan_out_id
from penstock.lake.folding.plain import rows_of
from penstock.lake.folding.staging import DOCUMENTS, PLACES
from penstock.lake.folding.summary import expand_barriers, summarize

LAYOUT = Layout(
    key=(Column("id", Plain.STRING),),
    scalars=(
        Column("post", Plain.STRING),
        Column("size", Plain.INT64),
        Column("title", Plain.STRING),
        Column("odd name's", Plain.INT64),
    ),
    multi=(Column("tags", Plain.STRING), Column("tools", Plain.INT64)),
    fan_outs=(FanOut("posts", ("post",), ("title",)),),
)
TABLE = (
    "id string, post string, size bigint, title string, `odd name's` bigint, tags array<string>, tools array<bigint>"
)
SIDE = "kind string, a string, b string, c string, v string, since bigint"


@dataclass
class FoldedTable:
    """A state table in memory, with what is kept beside it."""

    spark: SparkSession
    layout: Layout = LAYOUT
    schema: str = TABLE
    entities: dict[str, dict[str, Any]] = field(default_factory=dict)
    early: dict[str, tuple[str, int]] = field(default_factory=dict)
    fan_outs: dict[tuple[str, str, str], str | None] = field(default_factory=dict)
    quarantined: list[tuple[int, Any, str]] = field(default_factory=list)
    early_ops: int = 0
    #: rows that slices wrote
    written: int = 0
    fold_class: type[Fold] = Fold

    def apply(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Fold a slice of (id, at, document as text)."""
        found = [(place * PLACES, id_, at, text) for place, (id_, at, text) in enumerate(rows)]
        raw = self.spark.createDataFrame(found, DOCUMENTS).mapInArrow(partial(rows_of, self.layout), RAW)
        ops = read_ops(raw.localCheckpoint(), self.layout, is_open=True).localCheckpoint()
        summary = summarize(ops)
        made = self.fold_class(self.layout, ops.where("t <> 'x'"), self._base(), self._side())
        made = expand_barriers(made, ops, summary)
        made = replace(made, clears=summary.clears(self.layout, None))
        self.early_ops += made.early_ops().count()
        for each in made.changes().collect():
            self._change(each)
        cleared = made.clears.fan_outs
        self.fan_outs = {key: value for key, value in self.fan_outs.items() if key[2] not in cleared}
        for each in made.remembered().collect() if self.layout.fan_outs else ():
            self.fan_outs[each["a"], each["b"], each["c"]] = each["v"]
        for each in ops.where("t = 'x'").orderBy("pos", "n").collect():
            self.quarantined.append((each["id"], each["v"], each["f"]))

    def _change(self, row: Any) -> None:
        key = row["ek"]
        if row["changed"]:
            self.written += 1
            if row["exists"]:
                names = [(f"k{i}", c.name) for i, c in enumerate(self.layout.key)]
                names += [(f"s{i}", c.name) for i, c in enumerate(self.layout.scalars)]
                names += [(f"m{i}", c.name) for i, c in enumerate(self.layout.multi)]
                self.entities[key] = {name: row[mine] for mine, name in names}
            else:
                del self.entities[key]
        elif row["exists"]:
            assert key in self.entities
        assert (row["was_early"], row["was_since"]) == self.early.get(key, (None, None))
        self.early.pop(key, None)
        if row["early"] is not None:
            self.early[key] = (row["early"], row["since"])

    def _base(self) -> DataFrame:
        rows = [tuple(each.values()) for each in self.entities.values()]
        return self.spark.createDataFrame(rows, self.schema)

    def _side(self) -> DataFrame:
        rows: list[Any] = [("early", "", key, "", text, since) for key, (text, since) in self.early.items()]
        rows += [("fan", *key, value, None) for key, value in self.fan_outs.items()]
        return self.spark.createDataFrame(rows, SIDE)

    # ------------------------------------------------------------ beside the reference

    def state(self) -> dict[str, Any]:
        """Everything, in a form that the reference's state has too."""
        entities = {}
        for key, row in self.entities.items():
            scalars = {c.name: row[c.name] for c in self.layout.scalars if row[c.name] is not None}
            multi = {c.name: sorted(map(str, row[c.name])) for c in self.layout.multi if row[c.name]}
            entities[key] = (scalars, multi)
        early = {}
        for key, (text, _) in self.early.items():
            kept = json.loads(text)
            early[key] = (kept["s"], {name: sorted(values) for name, values in kept["m"].items()})
        return {"entities": entities, "early": early, "fan_outs": self.fan_outs}


def reference_state(state: State, layout: Layout) -> dict[str, Any]:
    def multi(values: Any) -> dict[str, list[str]]:
        return {name: sorted(str(json.loads(each)) for each in found) for name, found in values.items()}

    def key_of(text: str) -> str:
        key = json.loads(text)
        return json.dumps([str(part) for part in key], separators=(",", ":")) if isinstance(key, list) else str(key)

    entities = {key_of(key): (dict(record.scalars), multi(record.multi)) for key, record in state.entities.items()}
    early = {
        key_of(key): ({name: str(value) for name, value in record.scalars.items()}, multi(record.multi))
        for key, record in state.early.items()
    }
    ids = {each.table: fan_out_id(each) for each in layout.fan_outs}
    fan_outs = {}
    for (table, match), values in state.fan_outs.items():
        texts = [str(json.loads(each)) for each in match]
        joined = texts[0] if len(texts) == 1 else json.dumps(texts, separators=(",", ":"))
        for name, value in values.items():
            fan_outs[ids[table], joined, name] = None if value is None else str(value)
    return {"entities": entities, "early": early, "fan_outs": fan_outs}


__all__ = ["LAYOUT", "Document", "F", "FoldedTable", "fold", "reference_state"]
