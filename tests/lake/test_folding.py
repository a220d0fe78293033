"""The fold in Spark leads to the state that the reference leads to, however a stream is cut."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.lake.folds import LAYOUT, Document, FoldedTable, fold, reference_state

from penstock.core.ops import State
from penstock.links.spark.session_provider import SparkSessionProvider

# PySpark leaves the sockets of collected answers to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

DELETE = {"op": "delete"}


@pytest.fixture(scope="module")
def spark(spark_provider: SparkSessionProvider) -> SparkSession:
    session: SparkSession = spark_provider.session()
    return session


def document(*ops: Any, table: str = "images", **header: Any) -> dict[str, Any]:
    return {"v": 1, "table": table, **header, "ops": list(ops)}


def set_(name: str, value: Any) -> dict[str, Any]:
    return {"op": "set", "field": name, "value": value}


def query(where: Any, *ops: Any, table: str = "posts") -> dict[str, Any]:
    return document({"op": "query_op_set", "where": where, "ops": list(ops)}, table=table)


class Case:
    """Random documents on entities of its own."""

    def __init__(self, random: Random, name: str, *, barriers: bool = False) -> None:
        self.random, self.name, self.barriers = random, name, barriers

    def post(self) -> str:
        return f"{self.name}p{self.random.randint(0, 2)}"

    def op(self) -> dict[str, Any]:
        pick, random = self.random.random(), self.random
        if pick < 0.2:
            return set_("post", random.choice([self.post(), self.post(), None]))
        if pick < 0.35:
            return set_("title", random.choice(["own", "mine", None]))
        if pick < 0.5:
            return set_(random.choice(["size", "odd name's"]), random.choice([None, 0, -5, 2**62]))
        if pick < 0.55:
            return {"op": "remove", "field": random.choice(["title", "size", "post"]), "old": 1}
        value: Any = random.choice(["x", "y", "ü'\"\\", 1, 2, 3])
        name = "tools" if isinstance(value, int) else "tags"
        return {"op": random.choice(["add", "add", "remove"]), "field": name, "value": value}

    def document(self) -> dict[str, Any]:
        pick, random = self.random.random(), self.random
        key = f"{self.name}k{random.randint(0, 3)}"
        if pick < 0.1:
            return document(DELETE, key=key)
        if pick < 0.25:
            value = random.choice(["a", "b", None])
            if random.random() < 0.2:
                where = {"field": "post", "in": [self.post(), self.post()]}
                return query(where, {"op": "remove", "field": "title"})
            return query({"field": "post", "eq": self.post()}, set_("title", value))
        if self.barriers and pick < 0.35:
            return self.barrier()
        ops = [self.op() for _ in range(random.randint(1, 3))]
        if random.random() < 0.05:
            ops.append({"op": "upsert", "field": "size"})
        creates: dict[str, Any] = {"creates": True} if random.random() < 0.4 else {}
        if creates and random.random() < 0.2:
            ops = []
        return document(*ops, key=key, **creates)

    def barrier(self) -> dict[str, Any]:
        random = self.random
        if random.random() < 0.6:
            name = random.choice([{}, {"field": "tags"}, {"field": "post"}, {"field": "title"}, {"field": "size"}])
            return document({"op": "clear", **name}, table=random.choice(["images", "posts"]))
        where: dict[str, Any] = random.choice(
            [
                {"field": "post", "in": [self.post(), self.post()]},
                {"field": "tools", "eq": 1},
                {"and": [{"field": "size", "eq": 0}, {"field": "tags", "in": ["x", "y"]}]},
                {"field": "title", "eq": "a"},
            ]
        )
        return query(where, *[self.op() for _ in range(random.randint(1, 2))], table="other")


def check(spark: SparkSession, documents: list[Any], slices: int, random: Random) -> FoldedTable:
    table = FoldedTable(spark)
    rows = [Document(id_, each, 10 * id_) for id_, each in enumerate(documents, 1)]
    cuts = sorted(random.randint(0, len(rows)) for _ in range(slices - 1))
    state, early, quarantined = State(), 0, []
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        expected = fold(state, LAYOUT.shape, rows[begin:end])
        table.apply([(row.id, row.at, json.dumps(row.document)) for row in rows[begin:end]])
        state, early = expected.state, early + expected.early
        quarantined += [(each.row, each.reason) for each in expected.quarantined]
        assert table.state() == reference_state(state, LAYOUT)
    assert table.early_ops == early
    assert sorted((id_, reason) for id_, _, reason in table.quarantined) == sorted(quarantined)
    return table


def test_random_slices(spark: SparkSession) -> None:
    """Many cases in one table: each has entities and posts of its own."""
    random = Random(1)
    documents = []
    for number in range(60):
        case = Case(random, f"c{number}")
        documents.append([case.document() for _ in range(random.randint(1, 20))])
    mixed = [each for step in range(20) for case in documents for each in case[step : step + 1]]
    check(spark, mixed, 2, random)


@pytest.mark.parametrize("seed", range(2))
def test_random_slices_with_barriers(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    case = Case(random, "c", barriers=True)
    check(spark, [case.document() for _ in range(40)], 2, random)
