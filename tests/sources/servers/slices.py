"""Slices planned and read by a source on the orders, without engine or sink."""

from __future__ import annotations

from tests.sources.tables import source

from penstock.core.slices import Slice, following
from penstock.ports import Budget
from penstock.sources.postgres import PostgresSource

#: enough for one slice
AMPLE = Budget(bytes=1 << 30)


def planned(origin: PostgresSource, stream: str = "orders", budget: Budget = AMPLE) -> Slice:
    content = origin.content(stream)
    ceiling = origin.ceiling(stream, content, "run")
    assert ceiling is not None
    plan = origin.plan(stream, content, None, ceiling, budget)
    assert plan is not None
    return following(
        None, pipeline="shop", stream=stream, upto=plan.upto, content=content, kind=plan.kind, plan=plan.plan
    )


def ids(origin: PostgresSource, slice_: Slice) -> list[int]:
    with origin.reading(slice_) as reading:
        return sorted(key for part in reading.parts for key in reading.reader.open(part).read_all()["id"].to_pylist())


def orders(url: str, replica: str | None = None, **options: object) -> PostgresSource:
    more = {"replica": replica} if replica else {}
    return source(url, {"orders": {"cursor": "id", "unique": True}, "kinds": {}}, **more, **options)
