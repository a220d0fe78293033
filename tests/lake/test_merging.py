"""What a MERGE that Spark could not finish means for its slice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.sources.lake.lakes import Lake, orders

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.slices import Kind, following
from penstock.errors import StreamFailed
from penstock.lake.landing import Landing
from penstock.lake.merging import Merging
from penstock.lake.tables import LostRace
from penstock.ports import Context, NoSpark, Quiet, StreamInfo
from penstock.sinks.lake import Options, StreamOptions, build


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


def test_it_is_said_that_a_merge_writes_whole_rows(tmp_path: Path) -> None:
    """So that a column which is gone at the source is NULL in the new version of a row."""
    context = Context(pipeline="shop", folder=str(tmp_path), probe=Quiet())
    stream = StreamInfo("orders", Kind.ROWS, ("id",))
    columns: list[Any] = [{"name": "id", "arrow": "int64"}, {"name": "note", "arrow": "string"}]
    content: Document = {"columns": columns, "drift": {"reads": columns[:1], "quarantined": []}}
    line = "note is gone at the source: a row that is updated from now on is NULL there, in its new version"
    for mode, expected in (("merge", True), ("append", False)):
        sink = build(Options(), {"orders": StreamOptions(mode=mode)}, context)  # type: ignore[arg-type]  # one of both
        said = [remark.text for remark in sink.explain(stream, content)]
        assert (line in said) is expected
