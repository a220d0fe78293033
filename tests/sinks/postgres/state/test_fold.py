"""The fold in the server leads to what the reference fold leads to, however documents are cut into slices."""

from __future__ import annotations

from random import Random

import pytest
from tests.sinks.postgres.state.entities import CHAIN, PAIR, PLAIN, Draw, Entities

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
