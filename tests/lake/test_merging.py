"""Which rows a MERGE keeps, and what one that Spark could not finish means for its slice."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.core.content import Column, Content, Drift
from penstock.core.marks import Mark
from penstock.core.slices import Kind, following
from penstock.core.types import Plain
from penstock.errors import StreamFailed
from penstock.lake.landing import Landing, StagedSlice
from penstock.lake.merging import Merging
from penstock.lake.tables import LostRace
from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.ports import Context, NoProbe, NoSpark, StreamInfo
from penstock.sinks.lake import Options, StreamOptions, build


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("org.apache.iceberg.exceptions.CommitFailedException: Cannot commit", LostRace),
        ("java.lang.OutOfMemoryError: Java heap space", StreamFailed),
    ],
)
def test_a_race_that_spark_lost_is_a_lost_race(tmp_path: Path, said: str, meant: type[Exception]) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 3))
    slice_ = following(None, pipeline="another", stream="s", upto=Mark.of({"n": 1}), content=Content(()))
    merging = Merging(Landing(lake.lake, "orders", slice_, "a1", NoProbe()), ("id",), NoSpark())
    table = lake.catalog().load_table("shop.orders")
    snapshot = table.current_snapshot()
    assert snapshot
    table.manage_snapshots().create_branch(snapshot.snapshot_id, merging.branch).commit()
    failed = StreamFailed("the MERGE failed", next_step="")
    failed.__cause__ = RuntimeError(said)
    assert isinstance(merging._explain(failed), meant)


def test_it_is_said_that_a_merge_writes_whole_rows(tmp_path: Path) -> None:
    """So that a column which is gone at the source is NULL in the new version of a row."""
    context = Context(pipeline="shop", folder=str(tmp_path), probe=NoProbe())
    stream = StreamInfo("orders", Kind.ROWS, ("id",))
    columns = (Column("id", Plain.INT64), Column("note", Plain.STRING))
    content = Content(columns, drift=Drift(columns[:1]))
    line = "note is gone at the source: a row that is updated from now on is NULL there, in its new version"
    for mode, expected in (("merge", True), ("append", False)):
        sink = build(Options(), {"orders": StreamOptions(mode=mode)}, context)  # type: ignore[arg-type]  # one of both
        said = [remark.text for remark in sink.explain(stream, content)]
        assert (line in said) is expected


# ---------------------------------------------------------------- on Spark

Lakes = Callable[[], LakeWorld]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory, spark_provider: SparkSessionProvider) -> Lakes:
    """Namespaces of one lake; one Spark for all."""
    folder, numbers = tmp_path_factory.mktemp("merged"), count(1)
    return lambda: LakeWorld(folder, namespace=f"n{next(numbers)}", spark=spark_provider)


def noted(*ids: int, note: str, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "note": [f"{note} {id_}" for id_ in ids], **more})


def notes(lake: LakeWorld) -> list[tuple[int, str]]:
    """Every row of the table; a key that is there twice is listed twice."""
    found = lake.table().scan().to_arrow()
    return sorted(zip(found.column("id").to_pylist(), found.column("note").to_pylist(), strict=True))


def test_rows_of_others_are_older_whatever_their_numbers_are(lakes: Lakes) -> None:
    """Far above the head, or the very number that our row gets."""
    lake = lakes()
    lake.land(orders(1, 4), key=("id",))
    head = lake.state().head
    numbers = pa.array([head + 1, head + 10**9, head + 3], pa.int64())
    lake.append(noted(1, 2, 3, note="theirs", _ingest_seq=numbers))
    lake.land(noted(1, 2, 3, note="ours"), key=("id",))
    assert notes(lake) == [(1, "ours 1"), (2, "ours 2"), (3, "ours 3"), (4, "note 4")]
    assert sorted(lake.reader().ids()) == [1, 2, 3, 4]


def test_rows_of_a_table_that_was_there_are_replaced_by_their_key(lakes: Lakes) -> None:
    lake = lakes()
    lake.make(orders(1, 1))
    lake.append(noted(*range(1, 11), note="stale"))
    lake.land(noted(*range(1, 10), note="ours"), key=("id",), into_existing=True)
    wanted = sorted([*((id_, f"ours {id_}") for id_ in range(1, 10)), (10, "stale 10")])
    assert notes(lake) == wanted
    # The rows from before get their numbers now, and must not come back by it.
    assert sorted(lake.reader().ids()) == list(range(1, 11))
    lake.land(noted(3, note="newest"), key=("id",), into_existing=True)
    assert dict(notes(lake)) == {**dict(wanted), 3: "newest 3"}
    assert len(notes(lake)) == 10


def test_the_newest_row_of_a_key_stays_in_whatever_order_they_come(lakes: Lakes) -> None:
    """By `newer_than`: within a slice, and against what the table has."""
    lake = lakes()

    def land(*rows: tuple[int, int | None, str, str]) -> None:
        ids, at, note, change = zip(*rows, strict=True)
        columns = {"id": pa.array(ids, pa.int64()), "at": pa.array(at, pa.int64()), "note": note, "_change": change}
        lake.land(pa.table(columns), key=("id",), newer_than="at", changes=True)

    land((1, 5, "new", "upsert"), (1, 3, "old", "upsert"), (2, 1, "old", "upsert"), (3, 7, "new", "upsert"))
    assert notes(lake) == [(1, "new"), (2, "old"), (3, "new")]
    land((1, 4, "late", "upsert"), (2, 2, "new", "upsert"), (3, None, "undated", "upsert"), (4, None, "one", "upsert"))
    assert notes(lake) == [(1, "new"), (2, "new"), (3, "new"), (4, "one")]
    # A delete that is older than the row is stale; one that knows no more than the key is not.
    land((1, 4, "gone", "delete"), (2, 2, "gone", "delete"), (3, None, "gone", "delete"), (4, 1, "two", "upsert"))
    assert notes(lake) == [(1, "new"), (2, "gone"), (3, "gone"), (4, "two")]


def test_any_name_can_be_a_key(lakes: Lakes) -> None:
    """Names that the statement itself uses, and names that would end one."""
    lake = lakes()
    keys = (
        "newest",
        "a`b",
        "k0",
        "held",
        "new",
        "held_",
        "s",
        "t",
        "_file or true",
        "x` = 1) or (true) --",
        "value",
        "it's",
    )
    for best, note in enumerate(("old", "newer", "newest")):
        rows = {**{name: pa.array([1, 2], pa.int64()) for name in keys}, "seq": [note] * 2, "best": [best] * 2}
        lake.land(pa.table(rows), key=keys, newer_than="best" if note == "newest" else None)
    found = lake.table().scan().to_arrow()
    assert found.column("seq").to_pylist() == ["newest", "newest"]
    assert sorted(found.column("x` = 1) or (true) --").to_pylist()) == [1, 2]


def test_what_spark_writes_is_on_the_disk_before_main_names_it(lakes: Lakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Position deletes, manifests and the metadata document: Spark leaves them to the operating system."""
    lake, synced, sync = lakes(), set(), os.fsync
    lake.land(orders(1, 2), key=("id",))

    def note(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    written: set[str] = set()
    delete_older = Merging._delete_older

    def merge(merging: Merging, table: Table, landed: StagedSlice) -> None:
        """Everything that the branch names once Spark is done, a moment before the swap."""
        delete_older(merging, table, landed)
        table = lake.table()
        last = max(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
        own = [m for m in last.manifests(table.io) if m.added_snapshot_id == last.snapshot_id]
        files = [e.data_file.file_path for m in own for e in m.fetch_manifest_entry(table.io)]
        assert [path for path in files if "-deletes" in path]
        uris = [table.metadata_location, last.manifest_list, *(m.manifest_path for m in own), *files]
        written.update("/" + uri.removeprefix("file:").lstrip("/") for uri in uris)
        assert written | {os.path.dirname(path) for path in written} <= synced

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Merging, "_delete_older", merge)
    lake.land(noted(1, note="new"), key=("id",))
    assert written
