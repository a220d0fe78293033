"""Which rows a MERGE keeps, and what one that Spark could not finish means for its slice."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.core.content import Column, Content, Drift
from penstock.core.marks import Mark
from penstock.core.slices import Kind, following
from penstock.core.types import Plain
from penstock.errors import CommitUnclear, StreamFailed, StreamRefused
from penstock.lake.landing import Landing, StagedSlice
from penstock.lake.merging import Merging
from penstock.lake.tables import LostRace
from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.ports import Context, NoProbe, NoSpark, StreamInfo
from penstock.sinks.lake import Options, StreamOptions, build
from penstock.testing.contracts.delivery import Crash


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


# ---------------------------------------------------------------- deletes

Change = tuple[int, int | None, str | None, str]


def land_changes(lake: LakeWorld, *rows: Change, newer_than: str | None = "at", **options: Any) -> None:
    ids, at, note, change = zip(*rows, strict=True)
    columns = {"id": pa.array(ids, pa.int64()), "at": pa.array(at, pa.int64()), "note": note, "_change": change}
    columns["note"] = pa.array(note, pa.string())
    lake.land(pa.table(columns), key=("id",), newer_than=newer_than, changes=True, **options)


def marked(lake: LakeWorld) -> list[tuple[int, int | None, str | None, bool]]:
    """(id, at, note, whether it is marked as deleted) of every row; no number twice, no tombstone."""
    found = lake.table().scan().to_arrow().sort_by("id").to_pylist()
    assert len({row["_ingest_seq"] for row in found}) == len(found)
    assert all(row["_ingest_seq"] <= lake.state().head for row in found)
    assert not any(row["_tombstone"] for row in found)
    return [(row["id"], row["at"], row["note"], row["gone"] is not None) for row in found]


SOFT = {"deletes": "soft", "deleted_at": "gone"}


def test_a_soft_delete_marks_the_row_and_an_older_one_does_not(lakes: Lakes) -> None:
    lake = lakes()
    land_changes(lake, *((id_, 5, f"n{id_}", "upsert") for id_ in (1, 2, 3, 4)), **SOFT)
    reader = lake.reader()
    assert reader.ids() == [1, 2, 3, 4]
    # Later, at the same time, earlier, and without a time; of a key that the table does not have.
    gone: list[Change] = [
        (1, 6, None, "delete"),
        (2, 5, None, "delete"),
        (3, 4, None, "delete"),
        (4, None, None, "delete"),
    ]
    land_changes(lake, *gone, (5, 9, None, "delete"), **SOFT)
    assert marked(lake) == [(1, 6, "n1", True), (2, 5, "n2", True), (3, 5, "n3", False), (4, 5, "n4", True)]
    assert sorted(reader.ids()) == [1, 2, 4], "readers get the rows that were marked, and no others"
    # Neither an older version nor one of the same age brings a row back; a newer one does.
    land_changes(lake, (1, 5, "late", "upsert"), (2, 5, "late", "upsert"), (4, 7, "back", "upsert"), **SOFT)
    assert marked(lake) == [(1, 6, "n1", True), (2, 5, "n2", True), (3, 5, "n3", False), (4, 7, "back", False)]
    assert reader.ids() == [4]


def test_a_second_delete_keeps_the_first_timestamp(lakes: Lakes) -> None:
    lake = lakes()
    land_changes(lake, (1, 5, "n", "upsert"), (2, 5, "n", "upsert"), **SOFT)
    land_changes(lake, (1, 6, None, "delete"), (2, 6, None, "delete"), **SOFT)
    before = {row["id"]: row for row in lake.table().scan().to_arrow().to_pylist()}
    land_changes(lake, (1, 6, None, "delete"), (2, 8, None, "delete"), **SOFT)
    after = {row["id"]: row for row in lake.table().scan().to_arrow().to_pylist()}
    assert after[1] == before[1], "nothing new"
    assert (after[2]["at"], after[2]["gone"]) == (8, before[2]["gone"])
    land_changes(lake, (2, 7, "late", "upsert"), **SOFT)
    assert marked(lake)[1] == (2, 8, "n", True)


def test_soft_deletes_without_a_time_go_by_the_order_of_rows(lakes: Lakes) -> None:
    lake = lakes()
    options = {"newer_than": None, **SOFT}
    land_changes(lake, (1, 1, "a", "upsert"), (2, 1, "b", "upsert"), (3, 1, None, "delete"), **options)
    land_changes(lake, (1, 9, None, "delete"), (2, 9, None, "delete"), (2, 2, "c", "upsert"), **options)
    assert marked(lake) == [(1, 1, "a", True), (2, 2, "c", False)]
    numbers = lake.numbers()
    land_changes(lake, (1, 9, None, "delete"), **options)
    assert (marked(lake)[0], lake.numbers()) == ((1, 1, "a", True), numbers)
    land_changes(lake, (1, 0, "again", "upsert"), **options)
    assert marked(lake) == [(1, 0, "again", False), (2, 2, "c", False)]


def test_deletes_that_are_ignored_leave_every_row(lakes: Lakes) -> None:
    lake = lakes()
    for newer_than in ("at", None):
        land = partial(land_changes, lake, newer_than=newer_than, deletes="ignore", table=f"of_{newer_than}")
        land((1, 1, None, "delete"))
        land((1, 1, "a", "upsert"), (2, 1, "b", "upsert"))
        land((1, 9, None, "delete"), (2, 2, "c", "upsert"), (2, 3, None, "delete"), (3, 1, None, "delete"))
        found = lake.table(f"of_{newer_than}").scan().to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["at"], row["note"]) for row in found] == [(1, 1, "a"), (2, 2, "c")]


def test_an_older_version_does_not_replace_a_tombstone(lakes: Lakes) -> None:
    lake = lakes()
    land_changes(lake, (1, 5, "n", "upsert"))
    land_changes(lake, (1, 6, None, "delete"))
    land_changes(lake, (1, 5, "late", "upsert"))
    assert lake.table().scan().to_arrow().column("_tombstone").to_pylist() == [True]
    land_changes(lake, (1, 7, "back", "upsert"))
    assert notes(lake) == [(1, "back")]


def test_what_becomes_of_deletes_may_change(lakes: Lakes) -> None:
    """Tombstones stay tombstones, and marked rows stay marked, until a newer version arrives."""
    lake = lakes()
    land_changes(lake, (1, 5, "a", "upsert"), (2, 5, "b", "upsert"), (3, 5, "c", "upsert"))
    land_changes(lake, (1, 6, None, "delete"))
    land_changes(lake, (1, 7, None, "delete"), (2, 6, None, "delete"), **SOFT)
    rows = {row["id"]: row for row in lake.table().scan().to_arrow().to_pylist()}
    assert [rows[id_]["_tombstone"] for id_ in (1, 2, 3)] == [True, False, False]
    assert [rows[id_]["gone"] is not None for id_ in (1, 2, 3)] == [False, True, False]
    land_changes(lake, (3, 6, None, "delete"), (2, 5, "late", "upsert"))
    rows = {row["id"]: row for row in lake.table().scan().to_arrow().to_pylist()}
    assert [rows[id_]["_tombstone"] for id_ in (1, 2, 3)] == [True, False, True]
    assert rows[2]["gone"] is not None
    land_changes(lake, (1, 8, "back", "upsert"), (2, 8, "back", "upsert"), **SOFT)
    rows = {row["id"]: row for row in lake.table().scan().to_arrow().to_pylist()}
    assert [(rows[id_]["note"], rows[id_]["gone"]) for id_ in (1, 2)] == [("back", None)] * 2


def test_soft_deletes_in_a_table_that_was_there(lakes: Lakes) -> None:
    """Rows without a number, a key that is there twice, and a column for timestamps that has some."""
    lake = lakes()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    columns = {"id": pa.array([1, 1, 2, 3], pa.int64()), "at": pa.array([3, 4, 4, 4], pa.int64())}
    times = pa.array([None, None, at, None], pa.timestamp("us", "UTC"))
    theirs = pa.table({**columns, "note": ["old", "new", "gone", "stays"], "gone": times})
    lake.make(theirs)
    lake.append(theirs)
    land_changes(lake, (1, 5, None, "delete"), (2, 4, None, "delete"), into_existing=True, **SOFT)
    found = lake.table().scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["at"], row["note"]) for row in found] == [(1, 5, "new"), (2, 4, "gone"), (3, 4, "stays")]
    assert [row["gone"] == at for row in found] == [False, True, False]
    assert found[0]["gone"] is not None
    assert sorted(lake.reader().ids()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"mode": "append", "deletes": "soft", "deleted_at": "gone"}, "`deletes: soft` has no meaning without"),
        ({"mode": "append", "deletes": "ignore"}, "`deletes: ignore` has no meaning without `mode: merge`"),
        ({"deletes": "soft"}, "`deletes: soft` needs the column that marks them"),
        ({"deleted_at": "gone"}, "`deleted_at` has no meaning without `deletes: soft`"),
        ({"deletes": "ignore", "deleted_at": "gone"}, "`deleted_at` has no meaning without `deletes: soft`"),
        ({"deletes": "soft", "deleted_at": "Note"}, "'Note', which the stream has too"),
        ({"deletes": "soft", "deleted_at": "_tombstone"}, "'_tombstone', which is reserved by the lake"),
        ({"deletes": "soft", "deleted_at": "_file"}, "'_file' has a name that is reserved"),
        ({"deletes": "soft", "deleted_at": "size"}, "'size', which is long in n.*orders: it must be timestamptz"),
        ({"deletes": "soft", "deleted_at": "Size"}, "Spark takes both for one"),
        ({"deletes": "soft", "deleted_at": "gone"}, None),
        ({"deletes": "ignore"}, None),
    ],
)
def test_what_becomes_of_deletes_is_checked(lakes: Lakes, options: dict[str, str], what: str | None) -> None:
    """Also when the option is changed and nothing else is."""
    lake = lakes()
    lake.land(orders(1, 1), key=("id",))
    with lake.table().update_schema() as update:
        update.add_column("size", LongType())
    stream = StreamOptions.model_validate({"mode": "merge", **options})
    sink = build(Options(namespace=lake.namespace), {"orders": stream}, lake.context("in"))
    info = StreamInfo("orders", Kind.ROWS, ("id",))
    content = Content((Column("id", Plain.INT64), Column("note", Plain.STRING)), changes=True)
    if what is None:
        sink.check(info, content)
        return
    if options.get("mode") == "append":
        what = f"(?s){what}"
    with pytest.raises(StreamRefused, match=what) as refused:
        sink.check(info, content)
    assert refused.value.next_step


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"deletes": "soft", "deleted_at": "gone"},
            "a row that is deleted at the source stays, with the time of it in gone",
        ),
        ({"deletes": "ignore"}, "deletes at the source are ignored: the rows stay as they are"),
        (
            {"newer_than": "note"},
            "a deleted row comes back if an older version of it arrives after upkeep has removed its tombstone",
        ),
    ],
)
def test_it_is_said_what_becomes_of_deletes(tmp_path: Path, options: dict[str, str], line: str) -> None:
    context = Context(pipeline="shop", folder=str(tmp_path), probe=NoProbe())
    sink = build(Options(), {"orders": StreamOptions.model_validate({"mode": "merge", **options})}, context)
    columns = (Column("id", Plain.INT64), Column("note", Plain.STRING))
    for changes in (True, False):
        said = sink.explain(StreamInfo("orders", Kind.ROWS, ("id",)), Content(columns, changes=changes))
        assert (line in [remark.text for remark in said]) is changes


@dataclass(frozen=True)
class CrashAt:
    """A probe that crashes at one point, in a worker too."""

    point: str

    def at(self, point: str, **_: Any) -> None:
        if point == self.point:
            raise Crash(point)


def test_a_merge_that_died_anywhere_is_done_once(lakes: Lakes) -> None:
    """At each of its points, with every kind of row: readers see all of it or nothing, and it is done once."""
    lake = lakes()
    given: list[Change] = [
        (1, 6, "new", "upsert"),
        (2, 6, None, "delete"),
        (3, 4, None, "delete"),
        (4, 6, "b", "upsert"),
    ]
    before = [(1, 5, "a", False), (2, 5, "a", False), (3, 5, "a", False)]
    wanted = [(1, 6, "new", False), (2, 6, "a", True), (3, 5, "a", False), (4, 6, "b", False)]
    land_changes(lake, *((id_, 5, "a", "upsert") for id_ in (1, 2, 3)), **SOFT)
    for point in ("lake.part_written", "lake.prepared", "lake.staged", "lake.merged", "lake.landed"):
        with pytest.raises(Crash, match=point):
            land_changes(lake, *given, probe=CrashAt(point), **SOFT)
        assert marked(lake) == (wanted if point == "lake.landed" else before)
    with pytest.raises(CommitUnclear):
        land_changes(lake, *given, **SOFT)
    assert marked(lake) == wanted
    assert sorted(lake.reader().ids()) == [1, 2, 3, 4]
