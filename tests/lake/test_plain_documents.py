"""What Arrow reads of plain documents is what the reference's own functions read; texts that are not plain are left."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.lake.folds import LAYOUT
from tests.lake.test_folding import EVERY_TYPE, ODD, Case

from penstock.core.content import Column
from penstock.core.ops import FanOut, Layout
from penstock.core.types import Plain
from penstock.lake.folding import irregular, plain
from penstock.lake.folding.staging import PLACES

CHAIN = Layout(
    key=(Column("id", Plain.INT64),),
    scalars=LAYOUT.scalars,
    multi=LAYOUT.multi,
    fan_outs=(*LAYOUT.fan_outs, FanOut("users", ("size", "post"), ("odd name's",))),
)
#: pieces that a text may get anywhere
PIECES = [
    *('"', "\\", "{", "}", "[", "]", ",", ":", " ", "\n", "\t", "null", "true", "1", "-0", "1.5", "1e3", "01", "NaN"),
    *('"old": 7', '"value":', '"key":', '"v": 1', '"field"', '{"op": "delete"}', "\\u0041", "\\ud800", "\u00fc"),
]


def read(layout: Layout, texts: list[str]) -> dict[int, list[Any]]:
    """The rows of each document that is plain, by its place."""
    ids = [1000 + i for i in range(len(texts))]
    columns = [[i * PLACES for i in range(len(texts))], ids, ids, texts]
    batch = pa.RecordBatch.from_arrays(
        [*(pa.array(each, pa.int64()) for each in columns[:3]), pa.array(texts, pa.string())],
        names=["pos", "id", "at", "document"],
    )
    rows = [row for each in plain.rows_of(layout, [batch]) for row in each.to_pylist()]
    found: dict[int, list[Any]] = {i: [] for i in range(len(texts))}
    for row in rows:
        place = row["id"] - 1000
        if row["t"] == "?":
            assert found.pop(place) == []
            assert row["raw"] == texts[place]
        else:
            assert row["at"] == row["id"]
            found[place].append(_comparable(row, row["pos"] - place * PLACES))
    return {place: sorted(each, key=repr) for place, each in found.items()}


def _comparable(row: dict[str, Any], pos: int) -> tuple[Any, ...]:
    key = row["k"] and [(part["kind"], part["raw"]) for part in row["k"]]
    kind, raw = row["kind"], row["raw"]
    if kind in ("DOUBLE", "DECIMAL"):
        kind, raw = "NUMBER", float(raw)
    # The number of the row that says that a document creates is not used.
    return (row["t"], None if row["t"] == "b" else row["n"], pos, row["tbl"], key, row["f"], kind, raw)


def check(layout: Layout, texts: list[str]) -> int:
    """The number of plain documents, each of which must mean what the reference reads in it."""
    found = read(layout, texts)
    for place, rows in found.items():
        expected = [_comparable(each, each["pos"]) for each in irregular.rows_of(texts[place], layout)]
        assert rows == sorted(expected, key=repr), texts[place]
    return len(found)


def spelled(random: Random, document: Any) -> str:
    separators = random.choice([(",", ":"), (", ", ": "), (" , ", ":  ")])
    if random.random() < 0.3 and isinstance(document, dict):
        document = dict(random.sample(list(document.items()), len(document)))
    return json.dumps(document, separators=separators, ensure_ascii=random.random() < 0.5)


def test_random_documents() -> None:
    random = Random(1)
    texts = [spelled(random, Case(random, "c", barriers=True).document()) for _ in range(2000)]
    # Half of the documents of all entities compare fields that no fan-out is declared for.
    assert check(LAYOUT, texts) > 1600


def test_integer_and_composite_keys() -> None:
    random = Random(2)
    documents = [Case(random, "c").document() for _ in range(300)]
    integers = [{**each, "key": random.choice([0, -5, 2**40, "7", 1.5, True])} for each in documents if "key" in each]
    assert 50 < check(CHAIN, [spelled(random, each) for each in integers]) < len(integers)
    pairs: list[Any] = [[1, "a"], [-7, ""], ["1", "a"], [1], 1, [1, 2], [1, "a", "b"]]
    composite = [
        {"v": 1, "table": "t", "key": random.choice(pairs), "ops": [{"op": "set", "field": "string", "value": "x"}]}
        for _ in range(100)
    ]
    assert 10 < check(EVERY_TYPE, [spelled(random, each) for each in composite]) < 60


@pytest.mark.parametrize("layout", [LAYOUT, CHAIN], ids=["text", "integer"])
def test_texts_that_are_nearly_documents(layout: Layout) -> None:
    """Pieces go into valid texts, or out of them. Arrow's reader would end the process at some of them."""
    random = Random(3)
    texts = [line for line in ODD.splitlines() if line]
    texts += ["null", "", " ", "{}", "[]", "5", '"x"', "{} null", "{}\nnull", '{"v":1}{"v":1}', "\x00", "{\x00}"]
    documents = [Case(random, "c").document() for _ in range(250)]
    if layout is CHAIN:
        documents = [{**each, "key": 7} if "key" in each else each for each in documents]
    whole = [spelled(random, each) for each in documents]
    for text in whole:
        for _ in range(4):
            place, size = random.randint(0, len(text)), random.choice([0, 0, 1, 2])
            texts.append(text[:place] + random.choice(PIECES) + text[place + size :])
    plain_ones = 0
    for begin in range(0, len(texts), 30):
        some = texts[begin : begin + 30]
        # One that has a member twice leaves its whole batch to Spark.
        plain_ones += check(layout, some) or sum(check(layout, [text]) for text in some)
    assert plain_ones > 30
    twice = '{"v":1,"v":1,"table":"t","key":"a","ops":[{"op":"delete"}]}'
    assert read(LAYOUT, [twice, '{"v":1,"table":"t","key":"a","ops":[{"op":"delete"}]}']) == {}
