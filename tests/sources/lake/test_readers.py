"""Many readers of one table: each has its own mark, and none knows of another."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.errors import InputError, StreamRefused
from penstock.lake.readers import abandon
from penstock.ports import Budget


@pytest.fixture
def lake(tmp_path: Path) -> LakeWorld:
    made = LakeWorld(tmp_path)
    made.land(orders(1, 10))
    return made


def marks(lake: LakeWorld) -> dict[str, int]:
    return {reader.pipeline: reader.mark for reader in lake.state().readers()}


def test_each_has_its_own_mark(lake: LakeWorld) -> None:
    fast, slow, part = lake.reader("fast"), lake.reader("slow"), lake.reader("part", where="id > 5")
    assert (fast.ids(), part.ids()) == (list(range(1, 11)), list(range(6, 11)))
    assert slow.run(Budget(bytes=1 << 30, rows=3), between=lambda: None)
    lake.land(orders(11, 12))
    assert fast.ids() == part.ids() == slow.ids() == [11, 12]
    assert fast.run() == part.run() == slow.run() == []
    assert marks(lake) == {"fast": 12, "slow": 12, "part": 12}


def test_one_pipeline_with_two_streams_on_one_table(lake: LakeWorld) -> None:
    one, two = lake.reader(stream="one", table="orders"), lake.reader(stream="two", table="orders")
    assert one.ids() == two.ids() == list(range(1, 11))
    assert {reader.stream for reader in lake.state().readers()} == {"one", "two"}


def test_names_with_dots_do_not_run_together(lake: LakeWorld) -> None:
    """a.b/c and a/b.c would have the same property if dots were not encoded."""
    lake.reader("a.b", stream="c", table="orders").run()
    lake.reader("a", stream="b.c", table="orders").intend()
    found = {(reader.pipeline, reader.stream) for reader in lake.state().readers()}
    assert found == {("a.b", "c"), ("a", "b.c")}


def test_one_that_fails_for_a_week_affects_no_other(lake: LakeWorld) -> None:
    failing, other = lake.reader("failing", where="colour = 'red'"), lake.reader("other")
    for first in (11, 21, 31):
        lake.land(orders(first, first + 9))
        with pytest.raises(StreamRefused):
            failing.run()
        assert other.ids()[-10:] == list(range(first, first + 10))
    failing.options = {}
    assert failing.ids() == list(range(1, 41)), "and it misses nothing"


def test_the_table_learns_how_far_a_reader_is_at_its_next_run(lake: LakeWorld) -> None:
    reader = lake.reader()
    reader.run()
    assert marks(lake) == {"out": 0}, "late, which only keeps more"
    before = len(lake.table().metadata.snapshots)
    lake.land(orders(11, 11))
    reader.run()
    assert marks(lake) == {"out": 10}
    assert len(lake.table().metadata.snapshots) == before + 1, "raising a mark adds no snapshot"


def test_registering_and_going_back_add_a_snapshot(lake: LakeWorld) -> None:
    """So that a purge that is under way fails and looks again."""
    before = lake.state().main
    reader = lake.reader()
    reader.run()
    registered = lake.state().main
    assert before
    assert registered
    assert (registered.parent, registered.kind) == (before.id, "reader")
    reader.run()
    source = reader.source()
    content = source.content("orders")
    mark = source.mark_at("orders", content, reader.last, "4")
    from penstock.core.slices import Kind, following

    back = following(reader.last, pipeline="out", stream="orders", upto=mark, content=content, kind=Kind.REWIND)
    source.prepare("orders", content, back.position)
    lowered = lake.state().main
    assert lowered
    assert (lowered.parent, lowered.kind) == (registered.id, "reader")
    assert marks(lake) == {"out": 4}


def test_a_late_advance_does_not_raise_the_mark_of_a_reader_that_went_back(lake: LakeWorld) -> None:
    """A process that was frozen after its advance wakes up once another has rewound the stream."""
    from penstock.core.slices import Kind, following

    reader = lake.reader()
    reader.run()
    source, late = reader.source(), reader.last
    assert late is not None
    source.advanced("orders", late)
    assert marks(lake) == {"out": 10}
    content = source.content("orders")
    mark = source.mark_at("orders", content, late, "4")
    back = following(late, pipeline="out", stream="orders", upto=mark, content=content, kind=Kind.REWIND)
    source.prepare("orders", content, back.position)
    source.advanced("orders", late)
    assert marks(lake) == {"out": 4}
    source.advanced("orders", back.position)
    assert marks(lake) == {"out": 4}


def test_registering_takes_no_row_away_and_hands_out_no_number(lake: LakeWorld) -> None:
    head, rows = lake.state().head, lake.numbers()
    lake.reader().intend()
    assert (lake.state().head, lake.numbers()) == (head, rows)


def test_the_slowest_holds_back_retention_until_it_is_abandoned(lake: LakeWorld) -> None:
    slow, fast = lake.reader("slow"), lake.reader("fast")
    slow.intend()
    fast.run()
    lake.land(orders(11, 12))
    fast.run()
    slowest = lake.state().slowest()
    assert slowest
    assert (slowest.pipeline, slowest.mark) == ("slow", 0)
    assert abandon(lake.lake, "orders", "slow", "orders") == (
        "slow/orders (at 0) no longer holds back the retention of orders"
    )
    slowest = lake.state().slowest()
    assert slowest
    assert (slowest.pipeline, slowest.mark) == ("fast", 10)
    assert abandon(lake.lake, "orders", "slow", "orders") == "slow/orders was already abandoned"


def test_an_abandoned_reader_that_comes_back_is_registered_again(lake: LakeWorld) -> None:
    slow = lake.reader("slow")
    slow.intend()
    abandon(lake.lake, "orders", "slow", "orders")
    slow.said.clear()
    assert slow.ids() == list(range(1, 11))
    assert slow.said == ["registered as a reader of orders at number 0"]
    known = lake.state().reader("slow", "orders")
    assert known
    assert not known.abandoned


def test_abandoning_one_that_is_not_there(lake: LakeWorld) -> None:
    lake.reader("fast").run()
    with pytest.raises(InputError) as caught:
        abandon(lake.lake, "orders", "slow", "orders")
    assert caught.value.what == "the table orders has no reader slow/orders"
    assert caught.value.next_step == "its readers are: fast/orders"


def test_snapshots_expired_by_others_do_not_stop_a_reader(lake: LakeWorld) -> None:
    """All that is gone was ours, and known to be in order."""
    reader = lake.reader()
    reader.run()
    lake.reader("second").run()
    table = lake.table()
    current = table.current_snapshot()
    assert current
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != current.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert len(lake.table().metadata.snapshots) == 1
    assert reader.run() == []
    lake.land(orders(11, 11))
    assert reader.ids() == [11]
