"""A compaction, another pipeline, an expiry or a rollback at every point of a landing: no row lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType
from tests.lake.compaction import compact
from tests.lake.lanes import At, Lane, Poller, rows

from penstock.errors import CommitUnclear, StreamStopped
from penstock.lake import merging, tables
from penstock.lake.lake import Lake
from penstock.links.spark import SparkSessionProvider

# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

APPEND = ("lake.part_written", "lake.prepared", "lake.landed")
MERGE = ("lake.part_written", "lake.prepared", "lake.staged", "lake.merged", "lake.landed")


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    return Lane(tmp_path)


def compacts(lane: Lane) -> list[int]:
    compact(lane.table)
    return []


def lands(lane: Lane) -> list[int]:
    Lane(lane.folder, "other", lane.namespace, lane.mode, lane.spark).deliver(rows(50, 51))
    return [50, 51]


def lands_nothing(lane: Lane) -> list[int]:
    Lane(lane.folder, "other", lane.namespace, lane.mode, lane.spark).deliver()
    return []


def expires(lane: Lane) -> list[int]:
    table = lane.table
    kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
    table.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in kept]
    ).commit()
    return []


def grows(lane: Lane) -> list[int]:
    with lane.table.update_schema() as update:
        update.add_column("more", StringType())
    return []


def all_of_it(lane: Lane) -> list[int]:
    compacts(lane)
    expires(lane)
    return lands(lane)


MEANWHILE = [compacts, lands, lands_nothing, expires, grows, all_of_it]


@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda each: each.__name__)
@pytest.mark.parametrize("point", APPEND)
def test_beside_an_append(lane: Lane, point: str, meanwhile: Callable[[Lane], list[int]]) -> None:
    lane.deliver(rows(1))
    lane.deliver(rows(2), rows(3))
    poller, came = Poller(lane), list[int]()
    poller.poll()

    def happens() -> None:
        came.extend(meanwhile(lane))
        poller.poll()

    probe = At(point, happens)
    slice_ = lane.deliver(rows(4, 5), rows(6), probe=probe)
    assert probe.left == 0, f"never came to {point}"
    assert lane.held == slice_.position
    assert poller.has([1, 2, 3, 4, 5, 6, *came])
    assert lane.ids() == sorted([1, 2, 3, 4, 5, 6, *came])
    lane.deliver(rows(7))
    assert poller.has([1, 2, 3, 4, 5, 6, 7, *came])


@pytest.mark.parametrize("point", APPEND[:2])
def test_main_rolled_back_over_anothers_landing_and_the_same_snapshot_again(lane: Lane, point: str) -> None:
    """Main is what it was, but its numbers were handed out: only the sequence of snapshots tells."""
    lane.deliver(rows(1))
    poller = Poller(lane)

    def there_and_back() -> None:
        base = lane.table.metadata.current_snapshot_id
        lands(lane)
        poller.poll()
        assert base is not None
        lane.table.manage_snapshots().rollback_to_snapshot(base).commit()

    lane.deliver(rows(2), probe=At(point, there_and_back))
    assert lane.ids() == [1, 2]
    assert poller.has([1, 50, 51, 2])


def test_main_rolled_back_under_a_landing_stops_it(lane: Lane) -> None:
    first = lane.deliver(rows(1))
    lane.deliver(rows(2))

    def back() -> None:
        line = list(lane.state.line())
        lane.table.manage_snapshots().rollback_to_snapshot(line[1].id).commit()

    with pytest.raises(StreamStopped, match="rolled back to a snapshot before it"):
        lane.deliver(rows(3), probe=At("lake.prepared", back))
    assert lane.ids() == [1]
    assert lane.sink().recover("orders")
    assert lane.held == first.position


def test_dropped_and_made_again_under_a_landing_takes_nothing_of_it(lane: Lane) -> None:
    """Its files were written for another table, whose columns may have had other ids."""

    def anew() -> None:
        lane.lake.catalog().drop_table(lane.lake.identifier("orders"))
        lands(lane)

    with pytest.raises(CommitUnclear, match="dropped and created again"):
        lane.deliver(rows(1), probe=At("lake.part_written", anew))
    assert lane.ids() == [50, 51]
    lane.deliver(rows(1))
    assert lane.ids() == [1, 50, 51]


def test_partitioned_anew_under_a_landing_takes_nothing_of_it(lane: Lane) -> None:
    """PyIceberg would enter the files under the new partitioning, with values of the old."""
    lane.deliver(rows(1))

    def partitions() -> None:
        with lane.table.update_spec() as update:
            update.add_identity("id")

    with pytest.raises(CommitUnclear, match="partitioning was changed"):
        lane.deliver(rows(2), probe=At("lake.part_written", partitions))
    lane.deliver(rows(2))
    assert lane.ids() == [1, 2]
    assert [each for _, each, _ in lane.seen()] == lane.table.scan().to_arrow().sort_by("_ingest_seq")["id"].to_pylist()


# ---------------------------------------------------------------- keyed tables, on Spark


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, spark_provider: SparkSessionProvider) -> Callable[[], Lane]:
    """Lanes into tables of one lake, each in a namespace of its own; one Spark for all."""
    folder, numbers = tmp_path_factory.mktemp("keyed"), count(1)

    def make() -> Lane:
        return Lane(folder, namespace=f"n{next(numbers)}", mode="merge", spark=spark_provider)

    return make


def texts(lane: Lane) -> dict[int, str]:
    seen = lane.seen()
    found = {id_: text for _, id_, text in seen}
    assert len(found) == len(seen), f"a key is there twice: {seen}"
    return found


@pytest.mark.parametrize("meanwhile", [compacts, all_of_it], ids=lambda each: each.__name__)
@pytest.mark.parametrize("point", MERGE)
def test_beside_a_merge(keyed: Callable[[], Lane], point: str, meanwhile: Callable[[Lane], list[int]]) -> None:
    lane = keyed()
    lane.deliver(rows(1, 2))
    lane.deliver(rows(3), rows(4))
    head, came = [lane.state.head], []

    def happens() -> None:
        came.extend(meanwhile(lane))
        head[0] = lane.state.head

    probe = At(point, happens)
    slice_ = lane.deliver(rows(2, 3, text="new"), rows(3, 5, text="newest"), probe=probe)
    assert probe.left == 0, f"never came to {point}"
    assert lane.held == slice_.position
    wanted = {1: "row 1", 2: "new 2", 3: "newest 3", 4: "row 4", 5: "newest 5"}
    assert texts(lane) == wanted | {each: f"row {each}" for each in came}
    if point != "lake.landed":
        assert all(number > head[0] for number, _, text in lane.seen() if text.startswith("new"))
    assert not lane.state.branches.keys() - {"main"}


@pytest.mark.parametrize("point", MERGE[:-1])
def test_frozen_merger_wakes_after_four_slices_of_its_successor(keyed: Callable[[], Lane], point: str) -> None:
    lane = keyed()
    lane.deliver(rows(1, 2))
    slice_ = lane.next()

    def successor() -> None:
        for parts in ((), (), (rows(2, 10, text="later"),), (rows(11),)):
            lane.deliver(*parts)

    sink = lane.sink(At(point, successor))
    with pytest.raises(CommitUnclear):
        sink.commit(slice_, *lane.aside(sink, slice_, rows(1, 2, text="lost")))
    assert texts(lane) == {1: "row 1", 2: "later 2", 10: "later 10", 11: "row 11"}
    lane.deliver(rows(1, text="after"))
    assert texts(lane)[1] == "after 1"
    assert not lane.state.branches.keys() - {"main"}


@pytest.mark.parametrize("point", ["lake.prepared", "lake.staged", "lake.merged"])
def test_main_rolled_back_over_anothers_merge_and_the_same_snapshot_again(
    keyed: Callable[[], Lane], point: str
) -> None:
    """The swap must not hand out numbers again that a reader has seen."""
    lane = keyed()
    lane.deliver(rows(1))
    heads = []

    def there_and_back() -> None:
        base = lane.table.metadata.current_snapshot_id
        lands(lane)
        heads.append(lane.state.head)
        assert base is not None
        lane.table.manage_snapshots().set_current_snapshot(base).commit()

    lane.deliver(rows(1, 2, text="new"), probe=At(point, there_and_back))
    assert texts(lane) == {1: "new 1", 2: "new 2"}
    assert min(number for number, _, _ in lane.seen()) > heads[0]
    assert lane.state.head > heads[0]


def test_rolled_back_into_the_middle_of_a_merge(keyed: Callable[[], Lane]) -> None:
    """There a slice's rows lie beside those they replace: it is merged again, whatever came on top."""
    lane = keyed()
    first = lane.deliver(rows(1, 2))
    lane.deliver(rows(1, text="new"))
    middle = next(each for each in lane.state.line() if each.kind == "merge-part" and each.parent is not None)
    lane.table.manage_snapshots().set_current_snapshot(middle.id).commit()
    assert [id_ for _, id_, _ in lane.seen()] == [1, 2, 1]
    compact(lane.table)
    assert lane.sink().recover("orders")
    assert lane.held == first.position
    lane.deliver(rows(1, text="new"))
    assert texts(lane) == {1: "new 1", 2: "row 2"}


def test_another_lands_right_after_a_keyed_table_got_its_first_snapshot(
    keyed: Callable[[], Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, landed, load = keyed(), list[int](), tables.load_table

    def loading(place: Lake, table: str) -> Table | None:
        if not landed:
            landed.append(0)
            landed.extend(lands(lane))
        return load(place, table)

    monkeypatch.setattr(merging, "load_table", loading)
    lane.deliver(rows(1, 2))
    assert landed == [0, 50, 51]
    assert [id_ for _, id_, _ in lane.seen()] == [50, 51, 1, 2]
    assert lane.state.head == max(number for number, _, _ in lane.seen())
