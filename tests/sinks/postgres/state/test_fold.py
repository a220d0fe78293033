"""The fold in the server leads to what the reference fold leads to, however documents are cut into slices."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.sinks.postgres.state.entities import (
    CHAIN,
    CLEAR,
    DELETE,
    PAIR,
    PLAIN,
    Draw,
    Entities,
    add,
    document,
    put,
    take,
)

from penstock.core.ops import Layout


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("layout", [PLAIN, CHAIN, PAIR], ids=["plain", "chain", "pair"])
def test_random_documents(database: str, layout: Layout, seed: int) -> None:
    random = Random(seed)
    draw = Draw(random, layout, barriers=random.choice([0, 0.03, 0.15]))
    entities = Entities(database, layout)
    for _ in range(4):
        documents = draw.documents(random.randint(1, 30))
        entities.deliver(*documents, parts=random.randint(1, 3))
        assert entities.differences() == [], documents


@pytest.mark.parametrize(
    "layout",
    [
        replace(PLAIN, scalars=(), multi=(), fan_outs=()),
        replace(PLAIN, scalars=(), fan_outs=()),
        replace(PLAIN, multi=(), fan_outs=()),
    ],
    ids=["key alone", "sets alone", "scalars alone"],
)
def test_entities_with_few_fields(database: str, layout: Layout) -> None:
    entities = Entities(database, layout)
    ops = [add("x"), put("size", 1), take("x"), add("y")]
    entities.deliver(document(*ops, key=1, creates=True), document(*ops, key=2), document(key=3, creates=True))
    entities.deliver(document(DELETE, key=1), document(key=2, creates=True), document({**CLEAR, "field": "tags"}))
    assert entities.differences() == []
    entities.deliver(document(CLEAR), document(key=5, creates=True))
    assert entities.differences() == []
