"""What a MERGE that Spark could not finish means for its slice."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sources.lake.lakes import Lake, orders

from penstock.core.marks import Mark
from penstock.core.slices import following
from penstock.errors import StreamFailed
from penstock.lake.landing import Landing
from penstock.lake.merging import Merging
from penstock.lake.tables import LostRace
from penstock.ports import NoSpark, Quiet


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("org.apache.iceberg.exceptions.CommitFailedException: Cannot commit", LostRace),
        ("java.lang.OutOfMemoryError: Java heap space", StreamFailed),
    ],
)
def test_a_race_that_spark_lost_is_a_lost_race(tmp_path: Path, said: str, meant: type[Exception]) -> None:
    lake = Lake(tmp_path)
    lake.land(orders(1, 3))
    slice_ = following(None, pipeline="another", stream="s", upto=Mark.of({"n": 1}), content={"columns": []})
    merging = Merging(Landing(lake.place, "orders", slice_, "a1", Quiet()), ("id",), NoSpark())
    table = lake.catalog().load_table("shop.orders")
    snapshot = table.current_snapshot()
    assert snapshot
    table.manage_snapshots().create_branch(snapshot.snapshot_id, merging.branch).commit()
    assert isinstance(merging._explained(RuntimeError(said)), meant)
