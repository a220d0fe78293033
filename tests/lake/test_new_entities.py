"""Entities that need no fold: what is written of them, and proven first, leads to what the reference leads to.

Without Spark: documents that are not written straight are folded by the reference, and keys compared in Python.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import StringType
from tests.lake.folds import LAYOUT
from tests.lake.test_folding import DELETE, EVERY_TYPE, GOOD, Case, document, query, set_

from penstock.core.ops import Layout, Record, Row, State, fold
from penstock.lake.folding import irregular, proof
from penstock.lake.folding.new_entities import Beside, NewEntities, Written
from penstock.lake.folding.staging import PLACES
from penstock.lake.folding.summary import Summary
from penstock.lake.parquet import FileLayout
from penstock.lake.schema import make_iceberg_schema
from penstock.sinks.lake.state_tables import list_columns


def files_of(layout: Layout, folder: Path) -> FileLayout:
    key = tuple(column.name for column in layout.key)
    schema = make_iceberg_schema([*list_columns(layout).items()], key=key)
    return FileLayout(schema, PartitionSpec(), str(folder), key=key)


def take_part(
    layout: Layout, files: FileLayout, rows: Sequence[Row], beside: Beside, part: int
) -> tuple[list[dict[str, Any]], Written | None, bool]:
    """The rows of the documents that are left, what was written, and whether the part failed."""
    texts = [row.document if isinstance(row.document, str) else json.dumps(row.document) for row in rows]
    columns = [[(part * 1000 + i) * PLACES for i in range(len(rows))], [r.id for r in rows], [r.at for r in rows]]
    batch = pa.RecordBatch.from_arrays(
        [*(pa.array(each, pa.int64()) for each in columns), pa.array(texts, pa.string())],
        names=["pos", "id", "at", "document"],
    )
    batches = [batch.slice(i, 7) for i in range(0, len(rows), 7)]
    left: list[dict[str, Any]] = []
    written, failed = None, False
    for each in NewEntities(layout, files, beside, f"n{part}", 1, part).write(batches):
        if isinstance(each, pa.RecordBatch):
            left += each.to_pylist()
        else:
            written, failed = each, each is None
    return left, written, failed


def rows_in(written: Written) -> list[dict[str, Any]]:
    return [row for file in written.files for row in pq.read_table(file.file_path).to_pylist()]


@dataclass
class World:
    """A state table whose slices are taken apart as the lake takes them, beside the reference."""

    folder: Path
    state: State = field(default_factory=State)
    files: list[DataFile] = field(default_factory=list)
    #: keys that the table ever had: some are tombstones by now
    known: set[str] = field(default_factory=set)
    documents: int = 0
    #: entities that needed no fold
    new: int = 0

    def land(self, *parts: Sequence[Any]) -> None:
        slice_: list[list[Row]] = []
        for part in parts:
            slice_.append([Row(self.documents + i, each, self.documents + i) for i, each in enumerate(part)])
            self.documents += len(part)
        every = [row for part in slice_ for row in part]
        expected = fold(self.state, LAYOUT.shape, every).state
        found = self._take(slice_)
        if found is not None:
            left, new, files = found
            state = fold(self.state, LAYOUT.shape, [row for row in every if row.id in left]).state
            assert not state.entities.keys() & new.keys()
            assert replace(state, entities={**state.entities, **new}) == expected
            self.new += len(new)
            self.files += files
            self.known |= {json.loads(key) for key in new}
        changed = [json.loads(key) for key in expected.entities if json.loads(key) not in self.known]
        changed += [json.loads(key) for key, each in expected.entities.items() if self.state.entities.get(key) != each]
        if changed:
            self.files.append(_file(min(changed), max(changed)))
        self.known |= set(changed)
        self.state = expected

    def _take(self, slice_: list[list[Row]]) -> tuple[set[int], dict[str, Record], list[DataFile]] | None:
        layout = files_of(LAYOUT, self.folder)
        waiting = pa.array([json.loads(key) for key in self.state.early], pa.string())
        matches = pa.array([json.loads(match[0]) for _, match in self.state.fan_outs], pa.string())
        rows, new = [], []
        for number, part in enumerate(slice_):
            left, written, failed = take_part(LAYOUT, layout, part, Beside(waiting, [matches]), number)
            if failed:
                return None
            rows += left
            new += [written] if written is not None else []
        if not new:
            return None
        summary, keys = _summarize(rows)
        doubts = proof.find_doubts(new, summary, lambda: self.files, layout.schema, "id")
        made = [row for each in new for row in rows_in(each)]
        assert sum(each.rows for each in new) == len(made)
        own = [row["id"] for row in made]
        if doubts is None or ("table" in doubts and (len({*own}) < len(own) or self.known & {*own})):
            return None
        if "slice" in doubts and keys & {*own}:
            return None
        return (
            {row["id"] for row in rows},
            {json.dumps(row["id"]): _record(row) for row in made},
            [file for each in new for file in each.files],
        )


def _summarize(rows: Sequence[dict[str, Any]]) -> tuple[Summary, set[str]]:
    """What the rows are, and their keys."""
    read = [row for row in rows if row["t"] != "?"]
    for row in rows:
        if row["t"] == "?":
            read += [{**each, "pos": row["pos"] + each["pos"]} for each in irregular.rows_of(row["raw"], LAYOUT)]
    counts = {row["t"]: 1 for row in read}
    cleared = [(row["pos"], row["tbl"], row["f"]) for row in read if row["t"] in ("c", "k")]
    return Summary(counts, cleared, []), {row["k"][0]["raw"] for row in read if row["t"] in ("b", "s", "a", "r", "d")}


def _record(row: dict[str, Any]) -> Record:
    assert row["tags"] == row["tools"] == []
    assert row["_tombstone"] is False
    scalars = {column.name: row[column.name.replace(" ", "_x20").replace("'", "_x27")] for column in LAYOUT.scalars}
    return Record({name: value for name, value in scalars.items() if value is not None}, {})


def _file(low: str, high: str) -> DataFile:
    """A data file of the table, with rows between these keys."""
    bounds = {name: {1: to_bytes(StringType(), each)} for name, each in (("lower", low), ("upper", high))}
    return DataFile.from_args(lower_bounds=bounds["lower"], upper_bounds=bounds["upper"])


def image(random: Random, key: str) -> dict[str, Any]:
    names = random.sample([column.name for column in LAYOUT.scalars], random.randint(0, 4))
    values: dict[str, Any] = {"post": f"p{random.randint(0, 9)}", "size": random.choice([None, -5, 2**62])}
    values |= {"title": random.choice(["own", 'q"\\ü', None]), "odd name's": 0}
    return document(*[set_(name, values[name]) for name in names], key=key, creates=True)


def _others(random: Random, key: str, after: str) -> dict[str, Any]:
    """What may be among the documents of a load."""
    return {
        "twice": image(random, key),
        "op": document(set_("size", 7), key=key),
        "delete": document(DELETE, key=key),
        "add": document({"op": "add", "field": "tags", "value": "x"}, key=key),
        "odd": document(set_("size", 1), set_("size", 2), key=after, creates=True),
        "fraction": document(set_("size", 1.5), key=key, creates=True),
        "fan-out": query({"field": "post", "eq": f"p{random.randint(0, 9)}"}, set_("title", "hit")),
        "filter": query({"field": "size", "eq": -5}, set_("title", "barrier"), table="other"),
        "clear": document({"op": "clear"}),
        "forget": document({"op": "clear", "field": "title"}, table="posts"),
        "text": "no JSON",
    }


def load(random: Random, first: int, only: Sequence[str]) -> list[Any]:
    """A range of a table that is loaded, among which there may be something else."""
    count = random.randint(1, 6)
    found: list[Any] = [image(random, f"k{first + i:03}") for i in range(count)]
    for _ in range(random.choice([0, 0, 1, 2]) if not only else 1):
        key = f"k{random.randint(first - 2, first + count + 1):03}"
        others = _others(random, key, f"k{first + count:03}")
        found.insert(random.randint(0, len(found)), others[random.choice([*(only or others)])])
    return found


def run(folder: Path, seed: int, only: Sequence[str] = (), slices: int = 5) -> World:
    random, world, at = Random(seed), World(folder), 0
    case = Case(random, "")
    for _ in range(slices):
        parts = []
        for _ in range(random.randint(1, 2)):
            parts.append(load(random, at, only))
            at = max(0, at + random.choice([10, 10, 10, 10, 0, -5]))
        world.land(*parts)
        if not only and random.random() < 0.5:
            world.land([case.document() for _ in range(5)])
        elif random.random() < 0.5:
            soon = document(set_("size", 7), key=f"k{at + 1:03}")
            world.land([soon, query({"field": "post", "eq": f"p{random.randint(0, 9)}"}, set_("title", "soon"))])
    return world


def test_random_loads_among_other_ops(tmp_path: Path) -> None:
    assert sum(run(tmp_path, seed).new for seed in range(12)) > 40


def forget(name: str) -> Any:
    """A mistake: something that must be known is not."""
    whole, written = proof.find_doubts, NewEntities.write
    if name in ("are_new", "are_apart"):
        return patch.object(proof, name, lambda *_: True)
    if name == "unique":
        return patch.object(NewEntities, "_is_unique", lambda _: True)
    if name in ("early ops", "values of fan-outs"):

        def write(self: NewEntities, batches: Any) -> Any:
            none = pa.array([], pa.string())
            only = {"waiting": none} if name == "early ops" else {"matches": [none]}
            self.beside = replace(self.beside, **only)
            return written(self, batches)

        return patch.object(NewEntities, "write", write)

    def find_doubts(new: Any, summary: Summary, *rest: Any) -> Any:
        out = {"fan-outs": "f", "filters": "q", "documents": "bsard"}.get(name, "")
        counts = {kind: count for kind, count in summary.counts.items() if kind not in out}
        return whole(new, replace(summary, counts=counts, cleared=() if name == "clear" else summary.cleared), *rest)

    return patch.object(proof, "find_doubts", find_doubts)


@pytest.mark.parametrize(
    ("name", "only"),
    [
        *(("are_new", "text"), ("are_apart", "text"), ("unique", "twice"), ("early ops", "text")),
        *(("values of fan-outs", "text"), ("fan-outs", "fan-out"), ("filters", "filter"), ("documents", "op")),
        *(("documents", "delete"), ("documents", "add"), ("clear", "clear"), ("clear", "forget")),
    ],
)
def test_what_is_forgotten_is_noticed(tmp_path: Path, name: str, only: str) -> None:
    with forget(name), pytest.raises(AssertionError):
        _search(tmp_path, only)


def _search(folder: Path, only: str) -> None:
    for seed in range(60):
        run(folder, seed, (only,))


def test_values_of_every_type(tmp_path: Path) -> None:
    """They are what the fold makes of them; those that Arrow does not convert at once are left to it."""
    good = [(name, value, wanted) for name, values in GOOD.items() for value, wanted in values]
    documents = [document(set_(name, value), key=[i, "k"], creates=True) for i, (name, value, _) in enumerate(good)]
    rows = [Row(i, each, i) for i, each in enumerate(documents)]
    none = pa.array([], pa.string())
    left, written, failed = take_part(EVERY_TYPE, files_of(EVERY_TYPE, tmp_path), rows, Beside(none, []), 0)
    assert written is not None
    assert not failed
    # JSON has an escape for each half of a letter beyond 16 bits.
    odd = [good[row["id"]][0] for row in left if row["t"] == "?"]
    assert odd == ["float64", "string", "json"]
    made = rows_in(written)
    assert len(made) + len({row["id"] for row in left}) == len(good)
    for row in made:
        name, _, wanted = good[row["a"]]
        value = row[name]
        assert (value.astimezone(UTC) if name == "timestamptz" else value) == wanted
        assert {each for each in row if row[each] is not None} == {name, "a", "b", "days", "_ingest_seq", "_tombstone"}
