"""Two pipelines deliver versions of the same keys in opposite orders: the newest version of every key stays."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import Deliveries

from penstock.core.outcome import Outcome

START = datetime(2026, 1, 1, tzinfo=UTC)
#: both ways are cut into slices of the same rows
KEYS, VERSIONS, SLICE = 12, 6, 18
SCHEMA = pa.schema(
    [("id", pa.int64()), ("minute", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("_change", pa.string())]
)
RULES: dict[str, Any] = {"key": ["id"], "newer_than": "at"}
#: what the rows are, and how deletes are rendered
KINDS: list[dict[str, Any]] = [{}, {"deletes": "soft", "deleted_at": "gone"}, {"deletes": "hard"}]
#: (key, minute, change)
Version = tuple[int, int, str]


def versions(random: Random, deletes: str | None) -> list[Version]:
    """Every version of every key, in any order. What is deleted for good is not known any more: then none ends so."""
    made = [
        (key, minute, "delete" if deletes and random.random() < 0.3 else "upsert")
        for key in range(KEYS)
        for minute in range(1, VERSIONS + 1)
    ]
    if deletes == "hard":
        made = [(key, minute, "upsert" if minute == VERSIONS else change) for key, minute, change in made]
    return random.sample(made, len(made))


def rows(*given: Version) -> pa.Table:
    ids, minutes, changes = (list(column) for column in zip(*given, strict=True))
    at = [START + timedelta(minutes=minute) for minute in minutes]
    return pa.table([ids, minutes, at, changes], schema=SCHEMA)


@dataclass
class PipelineDeliveries:
    """One pipeline and what it delivers."""

    orders: Deliveries
    given: list[Version]
    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)

    def deliver(self) -> None:
        for first in range(0, len(self.given), SLICE):
            slice_ = self.given[first : first + SLICE]
            self.outcomes.append((len(slice_), self.orders.deliver(rows(*slice_))))


def test_what_is_marked_as_deleted_keeps_the_time_of_its_delete(database: str) -> None:
    """A version from before it that comes late is stale; one from after it brings the row back."""
    orders = Deliveries(database, {**RULES, **KINDS[1]})
    orders.deliver(rows((1, 2, "upsert")))
    assert orders.deliver(rows((1, 5, "delete"))) == Outcome(deleted=1)
    assert orders.deliver(rows((1, 3, "upsert"))) == Outcome(stale=1)
    assert orders.deliver(rows((1, 7, "delete"))) == Outcome(equal=1)
    assert orders.deliver(rows((1, 6, "upsert"))) == Outcome(stale=1)
    assert orders.rows("SELECT minute, gone IS NOT NULL FROM orders") == [(2, True)]
    assert orders.deliver(rows((1, 8, "upsert"))) == Outcome(updated=1)
    assert orders.rows("SELECT minute, gone IS NOT NULL FROM orders") == [(8, False)]


@pytest.mark.parametrize("seed", range(20))
def test_the_newest_version_of_every_key_stays(database: str, seed: int) -> None:
    random, kind = Random(seed), KINDS[seed % len(KINDS)]
    options = {**RULES, **kind}
    given = versions(random, kind.get("deletes"))
    up, down = (
        PipelineDeliveries(Deliveries(database, options, pipeline=name), way)
        for name, way in (("up", given), ("down", given[::-1]))
    )
    threads = [threading.Thread(target=way.deliver) for way in (up, down)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    alive = "gone IS NULL" if "deleted_at" in kind else "true"
    newest = {key: change for key, minute, change in given if minute == VERSIONS}
    wanted = [(key, VERSIONS) for key, change in sorted(newest.items()) if change == "upsert"]
    assert up.orders.rows(f"SELECT id, minute FROM orders WHERE {alive} ORDER BY id") == wanted

    outcomes = [*up.outcomes, *down.outcomes]
    assert [outcome.rows for _, outcome in outcomes] == [rows for rows, _ in outcomes]
    total = sum((outcome for _, outcome in outcomes), Outcome())
    assert total.rows == 2 * len(given)
    gone = total.deleted if kind.get("deletes") == "hard" else 0
    assert up.orders.rows("SELECT count(*) FROM orders") == [(total.created - gone,)]
    noted = "SELECT sum(v::bigint)::bigint FROM penstock_sink.slices, jsonb_each_text(outcome) o (k, v)"
    assert up.orders.rows(noted) == [(total.rows,)]
