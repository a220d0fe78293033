"""Stripe's events in keyed tables of a lake: versions are compared, and a deleted object stays deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

from penstock import wiring
from penstock.cli import app
from penstock.links.spark.runtime import SparkRuntime
from penstock.links.spark.session_provider import SparkSessionProvider
from tests.acceptance.stripe_shop import StripeShop
from tests.harness.doubles import LoopMover

STREAMS = {
    "customers": "{columns: {amount: int64}, mode: merge}",
    "coupons": "{columns: {amount: int64}, mode: merge, deletes: soft, deleted_at: deleted_at}",
}


def rows(warehouse: Path, stream: str) -> list[tuple[str, int]]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    found: list[dict[str, Any]] = catalog.load_table(("stripe", stream)).scan().to_arrow().to_pylist()
    catalog.close()
    shown = [each for each in found if not each["_tombstone"] and each.get("deleted_at") is None]
    return sorted((each["id"], each["amount"]) for each in shown)


def test_changes_deletes_and_late_events(
    spark_provider: SparkSessionProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    monkeypatch.setattr(
        wiring, "runtime_for", lambda *_, **__: SparkRuntime(spark_provider, lambda spark: wiring.make_mover(spark))
    )
    warehouse = tmp_path / "lake"
    with StripeShop.open(tmp_path, "", *STREAMS) as shop:
        monkeypatch.setenv("API", shop.server.url)
        shop.write(streams=STREAMS, sink=f'{{type: lake, warehouse: "{warehouse}"}}', slice_bytes=1 << 20)

        def run() -> None:
            shop.wait()
            done = CliRunner().invoke(app, ["run", "stripe.yaml"], prog_name="penstock")
            assert done.exit_code == 0, done.stdout + done.stderr

        for stream in STREAMS:
            shop.server.arrive(stream, 30)
        run()
        for stream in STREAMS:
            ids = [id_ for id_, _ in shop.server.objects(stream)]
            shop.server.alter(stream, ids[1], amount=-1)
            shop.server.alter(stream, ids[2], amount=-2, late=100)
            shop.server.alter(stream, ids[3], amount=-3, late=100)
        shop.wait(1)
        for stream in STREAMS:
            ids = [id_ for id_, _ in shop.server.objects(stream)]
            shop.server.alter(stream, ids[2], amount=-4)
            shop.server.alter(stream, ids[1], amount=-5)
            shop.server.delete(stream, ids[3])
        run()
        for stream in STREAMS:
            assert rows(warehouse, stream) == shop.expected(stream)
        # The late changes are older than what the tables have.
        shop.wait(200)
        run()
        for stream in STREAMS:
            assert rows(warehouse, stream) == shop.expected(stream)
