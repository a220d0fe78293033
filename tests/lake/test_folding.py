"""The fold in Spark leads to the state that the reference leads to, however a stream is cut."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal as Exact
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.lake import folds
from tests.lake.folds import LAYOUT, TABLE, Document, FoldedTable, fold, reference_state

from penstock.core.content import Column
from penstock.core.ops import FanOut, Layout, State
from penstock.core.types import Decimal, Plain
from penstock.lake.folding.fold import Clears, Fold
from penstock.lake.folding.matching import matching
from penstock.lake.folding.summary import Summary
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


def check(
    spark: SparkSession,
    documents: list[Any],
    slices: int,
    random: Random,
    fold_class: type[Fold] = Fold,
    cuts: Any = None,
    layout: Layout = LAYOUT,
) -> FoldedTable:
    schema = TABLE.replace("tags", "user string, color string, tags") if layout is CHAIN else TABLE
    table = FoldedTable(spark, layout, schema, fold_class=fold_class)
    rows = [Document(id_, each, 10 * id_) for id_, each in enumerate(documents, 1)]
    cuts = cuts or sorted(random.randint(0, len(rows)) for _ in range(slices - 1))
    state, early, quarantined = State(), 0, []
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        expected = fold(state, layout.shape, rows[begin:end])
        table.apply([(row.id, row.at, json.dumps(row.document)) for row in rows[begin:end]])
        state, early = expected.state, early + expected.early
        quarantined += [(each.row, each.reason) for each in expected.quarantined]
        assert table.state() == reference_state(state, layout)
    assert table.early_ops == early
    assert sorted((id_, reason) for id_, _, reason in table.quarantined) == sorted(quarantined)
    return table


def mixed(random: Random, cases: int, most: int, kind: type[Case] = Case) -> list[Any]:
    """Documents of many cases, each with entities and posts of its own, in the order of each."""
    documents = []
    for number in range(cases):
        case = kind(random, f"c{number}")
        documents.append([case.document() for _ in range(random.randint(1, most))])
    return [each for step in range(most) for case in documents for each in case[step : step + 1]]


def test_random_slices(spark: SparkSession) -> None:
    random = Random(1)
    check(spark, mixed(random, 60, 20), 2, random)


@pytest.mark.parametrize("seed", range(2))
def test_random_slices_with_barriers(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    case = Case(random, "c", barriers=True)
    check(spark, [case.document() for _ in range(40)], 2, random)


#: fan-outs that set what others match on: posts, then users, then teams
CHAIN = replace(
    LAYOUT,
    fan_outs=(
        FanOut("teams", ("odd name's", "post"), ("size",)),
        FanOut("users", ("user",), ("odd name's", "color")),
        FanOut("posts", ("post",), ("user", "title")),
    ),
    scalars=(*LAYOUT.scalars, Column("user", Plain.STRING), Column("color", Plain.STRING)),
)


class ChainCase(Case):
    """With fan-outs of each table of `CHAIN`."""

    def user(self) -> str:
        return f"{self.name}u{self.random.randint(0, 1)}"

    def op(self) -> dict[str, Any]:
        pick, random = self.random.random(), self.random
        if pick < 0.15:
            return set_("user", random.choice([self.user(), self.user(), None]))
        if pick < 0.25:
            return set_(random.choice(["color", "title"]), random.choice(["own", None]))
        return super().op()

    def document(self) -> dict[str, Any]:
        pick, random = self.random.random(), self.random
        if pick > 0.3:
            return super().document()
        if pick < 0.1:
            sets = random.choice([[set_("user", self.user())], [set_("title", "a")], [set_("user", None)]])
            return query({"field": "post", "eq": self.post()}, *sets)
        if pick < 0.2:
            value = set_("odd name's", random.choice([0, -5, None]))
            sets = random.choice([[value], [set_("color", "red")], [value, set_("color", "blue")]])
            return query({"field": "user", "eq": self.user()}, *sets, table="users")
        where = [{"field": "odd name's", "eq": random.choice([0, -5])}, {"field": "post", "eq": self.post()}]
        return query({"and": where}, set_("size", random.choice([7, None])), table="teams")

    def barrier(self) -> dict[str, Any]:
        name = self.random.choice(["user", "odd name's", "color", "size"])
        if self.random.random() < 0.5:
            return document({"op": "clear", "field": name}, table=self.random.choice(["users", "posts", "teams", "t"]))
        return super().barrier()


def test_fan_outs_that_set_what_others_match_on(spark: SparkSession) -> None:
    random = Random(3)
    check(spark, mixed(random, 60, 20, ChainCase), 2, random, layout=CHAIN)


@pytest.mark.parametrize("seed", range(2))
def test_such_fan_outs_with_barriers(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    case = ChainCase(random, "c", barriers=True)
    check(spark, [case.document() for _ in range(40)], 2, random, layout=CHAIN)


#: documents as nobody would write them, or that only look like valid ones; the reference decides
ODD = r"""
{"v":1,"table":"t","key":"a","creates":true,"ops":[{"op":"set","field":"size","value":1}]}
{"v":1,"table":"t","key":"a","ops":[{"op":"\u0064elete"},{"op":"set","field":"size","value":2}]}
{"v":1,"table":"t","key":"a","ops":[{"op":"delete"},{"op":"set","field":"size","value":3}]}
{"v":1,"table":"t","key":"a","creates":true,"ops":[{"op":"delete"}]}
{"v":1,"v":1,"table":"t","key":"a","ops":[{"op":"set","field":"size","value":4}]}
 { "ops" : [ {"field":"title", "value":"\u00fc\n", "op":"set"} ], "key":"a" , "table" : "t", "v" : 1 }
{"v":1.0,"table":"t","key":"a","ops":[{"op":"set","field":"size","value":5}]}
{"v":1,"table":"","key":"a","ops":[{"op":"set","field":"size","value":5}]}
{"v":1,"table":"t","key":"a","ops":[]}
{"v":1,"table":"t","key":"new","creates":true,"ops":[]}
{"v":1,"table":"t","key":"a","creates":1,"ops":[{"op":"set","field":"size","value":6}]}
{"v":1,"table":"t","key":"a","more":1,"ops":[{"op":"set","field":"size","value":6}]}
{"v":1,"table":"t","key":"a","ops":[{"op":"set","field":"size","value":7,"x":1},{"op":"set","field":"post","value":"p"}]}
{"v":1,"table":"t","key":"a","ops":[{"op":"set","field":"size"}, 5, null, {"op":"add","field":"tags","value":1.5}]}
{"v":1,"table":"t","key":"a","ops":[{"op":"add","field":"tags","value":"x","old":1},{"op":"add","field":"tags","value":"y"}]}
{"v":1,"table":"t","key":"a","ops":[{"op":"remove","field":"tags"},{"op":"remove","field":"size","value":1}]}
{"v":1,"table":"t","key":"a","ops":[{"op":"set","field":"tags","value":"x"},{"op":"clear"},{"op":1,"field":"size"}]}
{"v":1,"table":"t","key":"a","ops":[{"op":"set","field":1,"value":2},{"op":"set","field":"size","value":9,"old":{}}]}
{"v":1,"table":"t","key":1.5,"ops":[{"op":"set","field":"size","value":8}]}
{"v":1,"table":"t","key":null,"ops":[{"op":"set","field":"size","value":8}]}
{"v":1,"table":"posts","ops":[{"op":"query_op_set","where":{"field":"post","eq":"p"},"ops":[{"op":"set","field":"title","value":null}]}]}
{"v":1,"table":"posts","ops":[{"op":"query_op_set","where":{"field":"post","eq":null},"ops":[{"op":"set","field":"title","value":"n"}]}]}
{"v":1,"table":"posts","ops":[{"op":"query_op_set","where":{"field":"post","eq":"p"},"ops":[{"op":"set","field":"size","value":1}]}]}
{"v":1,"table":"posts","ops":[{"op":"query_op_set","where":{"field":"post","eq":"p"},"ops":[{"op":"set","field":"title","value":"z"},{"op":"delete"}]}]}
{"v":1,"table":"posts","ops":[{"op":"query_op_set","where":{"and":[{"field":"post","eq":"p"}]},"ops":[{"op":"set","field":"title","value":"and"}]}]}
{"v":1,"table":"posts","creates":false,"ops":[{"op":"query_op_set","where":{"field":"post","eq":"p"},"ops":[{"op":"remove","field":"odd"},{"op":"set","field":"title","value":"last"}]}]}
{"v":2,"table":"posts","ops":[{"op":"query_op_set","where":{"field":"post","eq":"p"},"ops":[{"op":"set","field":"title","value":"v2"}]}]}
[]
null
"""


def test_odd_documents(spark: SparkSession) -> None:
    documents = [text for text in ODD.splitlines() if text]
    expected = fold(State(), LAYOUT.shape, [Document(i, json.loads(text), i) for i, text in enumerate(documents)])
    table = FoldedTable(spark)
    table.apply([(i, i, text) for i, text in enumerate(documents)])
    assert table.state() == reference_state(expected.state, LAYOUT)
    assert expected.state.entities['"a"'].scalars == {"size": 9, "post": "p", "title": "last"}
    found = {(id_, reason) for id_, _, reason in table.quarantined}
    assert found == {(each.row, each.reason) for each in expected.quarantined}


# ------------------------------------------------------------ values


EVERY_TYPE = Layout(
    key=(Column("a", Plain.INT64), Column("b", Plain.STRING)),
    scalars=(
        *(Column(type_.value, type_) for type_ in (Plain.BOOL, Plain.INT16, Plain.FLOAT32, Plain.FLOAT64)),
        *(Column(type_.value, type_) for type_ in (Plain.STRING, Plain.JSON, Plain.DATE, Plain.TIMESTAMP)),
        Column("timestamptz", Plain.TIMESTAMPTZ),
        Column("price", Decimal(6, 2)),
    ),
    multi=(Column("days", Plain.DATE),),
)
EVERY_COLUMN = (
    "a bigint, b string, bool boolean, int16 int, float32 float, float64 double, string string, json string, "
    "date date, timestamp timestamp_ntz, timestamptz timestamp, price decimal(6,2), days array<date>"
)
#: values that convert, with what they become
GOOD: dict[str, list[tuple[Any, Any]]] = {
    "bool": [(True, True), (False, False)],
    "int16": [(-(2**15), -(2**15)), (7, 7)],
    "float32": [(0.5, 0.5), (3, 3.0)],
    "float64": [(0.1, 0.1), (1e300, 1e300), ("-Infinity", float("-inf"))],
    "string": [("", ""), ("zwölf 😀'\"\\", "zwölf 😀'\"\\")],
    "json": [({"b": [1, None]}, '{"b":[1,null]}'), ("1.50", "1.50")],
    "date": [("2024-02-29", date(2024, 2, 29))],
    "timestamp": [("2024-03-31T02:30:00.123456", datetime.fromisoformat("2024-03-31T02:30:00.123456"))],
    "timestamptz": [("2024-10-27T00:30:00+00:00", datetime(2024, 10, 27, 0, 30, tzinfo=UTC))],
    "price": [("1234.50", Exact("1234.50")), (12, Exact("12.00")), ("-0.1", Exact("-0.10"))],
}
BAD: dict[str, list[Any]] = {
    "bool": [1, "yes"],
    "int16": [2**15, "7", 7.5, True],
    "float32": [1e300, "much", True],
    "float64": ["1e", [1]],
    "string": [5, True, {"a": 1}, "\ud800"],
    "date": ["2024-02-30", "infinity", 5, "24-01-01"],
    "timestamp": ["2024-03-31", "2024-03-31T02:30:00Z", "infinity"],
    "timestamptz": ["2024-03-31T02:30:00", 5],
    "price": ["12345.00", "0.125", "NaN", 1.5e300, "1e2"],
}


def test_values_of_every_type(spark: SparkSession) -> None:
    """What converts is in the table as it was; the op of what does not is in quarantine, and nothing else."""
    table = FoldedTable(spark, EVERY_TYPE, EVERY_COLUMN)
    good = [(name, value, wanted) for name, values in GOOD.items() for value, wanted in values]
    bad = [(name, value) for name, values in BAD.items() for value in values]
    documents = [document(set_(name, value), key=[i, "good"], creates=True) for i, (name, value, _) in enumerate(good)]
    documents += [document(set_(name, value), key=[i, "bad"], creates=True) for i, (name, value) in enumerate(bad)]
    days = [{"op": "add", "field": "days", "value": day} for day in ("2024-01-02", "2023-12-31", "no day")]
    documents.append(document(*days, key=[0, "days"], creates=True))
    documents.append(document(set_("int16", 1), key=["0", "x"], creates=True))
    documents.append(document(set_("int16", 1), key=0, creates=True))
    table.apply([(i, i, json.dumps(each)) for i, each in enumerate(documents)])
    assert len(table.entities) == len(good) + len(bad) + 1
    for i, (name, _, wanted) in enumerate(good):
        row = table.entities[f'["{i}","good"]']
        found = row[name].astimezone(UTC) if name == "timestamptz" else row[name]
        assert (row["a"], row["b"], found) == (i, "good", wanted)
    for i in range(len(bad)):
        row = table.entities[f'["{i}","bad"]']
        assert all(value is None for name, value in row.items() if name not in ("a", "b", "days")), (bad[i], row)
    assert table.entities['["0","days"]']["days"] == [date(2023, 12, 31), date(2024, 1, 2)]
    reasons = {id_: reason for id_, _, reason in table.quarantined}
    expected = {*range(len(good), len(good) + len(bad)), *range(len(good) + len(bad), len(documents))}
    assert set(reasons) == expected
    assert reasons[len(documents) - 2] == 'the key ["0","x"] does not fit the declared type'
    assert reasons[len(documents) - 1] == "`key` has 1 parts, and the key of an entity has 2 (a, b)"
    again = [(i, i, json.dumps(each)) for i, each in enumerate(documents[: len(good)])]
    before = table.written
    table.apply(again)
    assert table.written == before, "an entity that did not change has no new row"


# ------------------------------------------------------------ mistakes


class Cancelling(Fold):
    """An add and a later remove of one value cancel."""

    def _done(self) -> DataFrame:
        pairs = self.ops.where("t in ('a', 'r')").groupBy("ek", "f", "v")
        cancel = pairs.agg(F.expr("max_by(t, pos) as last"), F.expr("count(distinct t) as kinds"))
        cancel = cancel.where("kinds = 2 and last = 'r'").selectExpr("ek as e", "f as g", "v as w")
        same = F.expr("ek = e and f = g and v = w and t in ('a', 'r')")
        return Fold._done(replace(self, ops=self.ops.join(cancel, same, "anti")))


class NotAbsorbing(Fold):
    """A delete leaves what was before it."""

    def _done(self) -> DataFrame:
        return super()._done().withColumn("gone", F.expr("cast(null as bigint)"))


class ForgettingFanOuts(Fold):
    """A fan-out only concerns entities of its own slice."""

    def _values_of(self, fan_out: FanOut) -> DataFrame:
        return Fold._values_of(replace(self, side=self.side.where("kind <> 'fan'")), fan_out)


class DroppingEarlyOps(Fold):
    """What came before its entity is dropped."""

    def _early_ops(self, own: DataFrame) -> DataFrame:
        return super()._early_ops(own).where("t = 'e'")


class ForgettingMoves(Fold):
    """An entity that moves keeps the values of the match that it left."""

    def _match_fields(self, name: str) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize("mistake", [Cancelling, NotAbsorbing, ForgettingFanOuts, DroppingEarlyOps, ForgettingMoves])
def test_a_mistake_is_noticed(spark: SparkSession, mistake: type[Fold]) -> None:
    random = Random(2)
    documents = mixed(random, 25, 12)
    add = {"op": "add", "field": "tags", "value": "x"}
    first = [document(add, key="a", creates=True), *documents[: len(documents) // 2]]
    second = [document(add, key="a"), document({**add, "op": "remove"}, key="a"), *documents[len(documents) // 2 :]]
    with pytest.raises(AssertionError):
        check(spark, [*first, *second], 2, random, mistake, [len(first)])


def _filter_at_the_end(made: Fold, ops: DataFrame, summary: Summary) -> Fold:
    """As if a `query_op_set` concerned the entities that match when the slice ends."""
    for place, where in summary.filters:
        keys = matching(replace(made, everything=True).changes(), made.layout, where)
        inner = ops.where(f"pos = {place} and t like 'Q%'").drop("ek").crossJoin(keys)
        made = replace(made, ops=made.ops.unionByName(inner.withColumn("t", F.expr("substr(t, 2)"))))
    return made


@pytest.mark.parametrize("mistake", ["clear", "query_op_set"])
def test_a_forgotten_barrier_is_noticed(spark: SparkSession, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = document(set_("size", 0), set_("post", "p"), key="a", creates=True)
    hit = query({"field": "size", "eq": 0}, set_("title", "hit"), table="other")
    documents = [made, document({"op": "clear"}), made | {"key": "b"}]
    if mistake == "clear":
        monkeypatch.setattr(Clears, "of", lambda *_: Clears())
    else:
        monkeypatch.setattr(folds, "expand_barriers", _filter_at_the_end)
        documents = [made, hit, document(set_("size", 1), key="a"), made | {"key": "b"}]
    with pytest.raises(AssertionError):
        check(spark, documents, 1, Random(1))
