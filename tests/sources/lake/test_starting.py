"""Where a reader starts, and where it may not; how it goes back."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep

import pytest
from tests.sources.lake.lakes import LakeWorld, Reader, orders

from penstock.core.content import Content
from penstock.core.slices import Kind, following
from penstock.errors import PenstockError, StreamRefused, StreamStopped
from penstock.lake import names
from penstock.lake.table_state import ReaderMark
from penstock.ports import Budget
from penstock.sources.lake.marks import make_mark


@pytest.fixture
def lake(tmp_path: Path) -> LakeWorld:
    made = LakeWorld(tmp_path)
    made.land(orders(1, 5))
    return made


def retained(lake: LakeWorld, floor: int, *, lost: dict[str, int] | None = None) -> None:
    """As retention leaves the table: rows gone, the floor raised, what readers lost noted, in one commit."""
    table = lake.table()
    properties = {names.FLOOR: str(floor)}
    for reader in lake.state().readers():
        if lost and reader.pipeline in lost:
            said = ReaderMark(reader.pipeline, reader.stream, reader.mark, reader.at, False, lost[reader.pipeline])
            properties |= said.properties()
    with warnings.catch_warnings(action="ignore"), table.transaction() as change:
        change.delete(f"_ingest_seq <= {floor}", snapshot_properties={names.KIND: "retention", names.HEAD: "0"})
        change.set_properties(properties)


# ---------------------------------------------------------------- from


def test_from_the_beginning_unless_said_otherwise(lake: LakeWorld) -> None:
    assert lake.reader().ids() == [1, 2, 3, 4, 5]
    assert lake.reader("other", start="beginning").ids() == [1, 2, 3, 4, 5]


def test_from_a_number_starts_after_it(lake: LakeWorld) -> None:
    assert lake.reader(start=3).ids() == [4, 5]
    assert lake.reader("all", start=0).ids() == [1, 2, 3, 4, 5]
    last = lake.reader("last", start=5)
    assert last.ids() == []
    lake.land(orders(6, 7))
    assert last.ids() == [6, 7]


def test_from_now_is_made_durable_by_a_slice_without_rows(lake: LakeWorld) -> None:
    """So that rows that come between two runs are not skipped by the second."""
    reader = lake.reader(start="now")
    assert reader.run() == []
    (slice_,) = reader.slices
    assert (slice_.kind, slice_.after, reader.seq) == (Kind.REWIND, None, 5)
    lake.land(orders(6, 8))
    assert reader.ids() == [6, 7, 8]


def test_from_now_on_a_table_without_rows(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 0))
    reader = lake.reader(start="now")
    assert reader.run() == []
    lake.land(orders(1, 2))
    assert reader.ids() == [1, 2]


@pytest.mark.parametrize("start", [6, 10**18])
def test_a_start_in_the_future_is_refused(lake: LakeWorld, start: int) -> None:
    with pytest.raises(StreamRefused) as caught:
        lake.reader(start=start).run()
    assert caught.value.what == f"from: {start} is in the future: the highest number of shop.orders is 5"
    assert caught.value.next_step == "use `now`, `beginning`, or a number up to 5"


def test_a_start_below_the_floor_is_refused_as_long_as_nothing_was_read(lake: LakeWorld) -> None:
    reader = lake.reader(start=1)
    assert reader.ids() == [2, 3, 4, 5]
    retained(lake, 3)
    with pytest.raises(StreamRefused) as caught:
        lake.reader("late", start=1).run()
    assert "rows of shop.orders up to number 3 may be gone by retention, so from: 1" in caught.value.what
    assert "`beginning`" in caught.value.next_step
    assert lake.reader("rest").ids() == [4, 5]
    lake.land(orders(6, 6))
    assert reader.ids() == [6], "a reader that is past it does not care"


# ---------------------------------------------------------------- the floor


def test_a_reader_below_the_floor_stops_with_the_count(lake: LakeWorld) -> None:
    reader = lake.reader(start=1)
    reader.last = following(
        None, pipeline="out", stream="orders", upto=make_mark(lake.state().uuid, 1), content=Content(())
    ).position
    source = reader.source()
    source.prepare("orders", source.content("orders"), reader.last)
    retained(lake, 4, lost={"out": 3})
    with pytest.raises(StreamStopped) as caught:
        reader.run()
    assert caught.value.what == (
        "rows of shop.orders with numbers from 2 to 4 were removed by retention before this reader had seen them "
        "(3 rows)"
    )
    assert caught.value.next_step == "to go on without them: `penstock rewind FILE --to 4 --stream orders`"
    went(reader, "4")
    assert reader.ids() == [5], "the way out leads out"
    known = lake.state().reader("out", "orders")
    assert known
    assert known.lost is None


def went(reader: Reader, to: str) -> None:
    """What the engine does for `penstock rewind`."""
    source = reader.source()
    content = source.content("orders")
    assert reader.last
    source.accept("orders", reader.last, content)
    mark = source.mark_at("orders", content, reader.last, to)
    slice_ = following(reader.last, pipeline="out", stream="orders", upto=mark, content=content, kind=Kind.REWIND)
    source.prepare("orders", content, slice_.position)
    reader.last = slice_.position


@pytest.mark.parametrize("first", [True, False])
def test_an_open_slice_of_which_rows_are_gone_stops(lake: LakeWorld, first: bool) -> None:
    reader = lake.reader()
    if not first:
        reader.run()
        lake.land(orders(6, 9))
    slice_ = reader.intend()
    assert slice_
    floor = 2 if first else 7
    retained(lake, floor, lost={"out": 2})
    with pytest.raises(StreamStopped) as caught:
        reader.read(slice_)
    assert "(2 rows)" in caught.value.what
    # An open slice is finished before a rewind: it must be let go of first.
    assert "`penstock state recover FILE --stream orders`" in caught.value.next_step
    if first:
        assert reader.ids() == [3, 4, 5]
        assert [line for line in reader.said if "2 rows" in line], "what is lost is said"
        assert reader.run() == []
    else:
        went(reader, str(floor))
        assert reader.ids() == [8, 9]


def test_a_slice_that_lies_wholly_below_the_floor_stops(lake: LakeWorld) -> None:
    reader = lake.reader()
    slice_ = reader.intend()
    assert slice_
    lake.land(orders(6, 9))
    retained(lake, 7)
    with pytest.raises(StreamStopped, match="removed by retention"):
        reader.read(slice_)


def test_a_reader_that_had_told_its_mark_too_late_lost_nothing(lake: LakeWorld) -> None:
    """What is noted as lost is counted from the mark that the table knew."""
    reader = lake.reader()
    assert reader.ids() == [1, 2, 3, 4, 5]
    retained(lake, 5, lost={"out": 5})
    lake.land(orders(6, 7))
    reader.said.clear()
    assert reader.ids() == [6, 7]
    assert reader.said == []


# ---------------------------------------------------------------- going back


@pytest.fixture
def reader(lake: LakeWorld) -> Reader:
    made = lake.reader()
    made.run()
    return made


def rewound(reader: Reader, to: str) -> int:
    source = reader.source()
    mark = source.mark_at("orders", source.content("orders"), reader.last, to)
    assert mark
    return int(mark.document["key"][0])


def test_back_to_a_number(reader: Reader) -> None:
    assert rewound(reader, "0") == 0
    assert rewound(reader, "5") == 5
    went(reader, "2")
    assert reader.ids() == [3, 4, 5]


def test_back_to_a_time(reader: Reader) -> None:
    between = datetime.now(UTC)
    sleep(0.01)
    reader.lake.land(orders(6, 8))
    reader.run()
    assert rewound(reader, (between - timedelta(days=1)).isoformat()) == 0
    assert rewound(reader, between.isoformat()) == 5
    assert rewound(reader, between.isoformat().replace("+00:00", "Z")) == 5
    assert rewound(reader, datetime.now(UTC).isoformat()) == 8


@pytest.mark.parametrize(
    ("to", "what", "step"),
    [
        ("6", "number 6 does not exist yet: the highest number of shop.orders is 5", "give a number from 0 to 5"),
        ("²", "'²' is neither a number nor a time", "give a number from 0 to 5, or a time"),
        ("yesterday", "'yesterday' is neither a number nor a time", "give a number from 0 to 5, or a time"),
        ("2026-01-31T12:00", "'2026-01-31T12:00' has no time zone", "for UTC write 2026-01-31T12:00:00+00:00"),
        ("2026-01-31", "'2026-01-31' has no time zone", "for UTC write 2026-01-31T00:00:00+00:00"),
        ("2999-01-01T00:00Z", "2999-01-01T00:00Z is in the future", "give a time in the past"),
    ],
)
def test_a_place_that_is_none_is_refused(reader: Reader, to: str, what: str, step: str) -> None:
    with pytest.raises(StreamRefused) as caught:
        rewound(reader, to)
    assert what in caught.value.what
    assert step in caught.value.next_step


def test_forward_is_not_back(reader: Reader) -> None:
    """Rows that nobody has read would be skipped."""
    reader.lake.land(orders(6, 9))
    for to in ("7", datetime.now(UTC).isoformat()):
        with pytest.raises(StreamRefused) as caught:
            rewound(reader, to)
        assert "have not been read yet: this reader is at number 5" in caught.value.what
    assert reader.ids() == [6, 7, 8, 9]


def test_below_the_floor_there_is_nothing_to_go_back_to(reader: Reader) -> None:
    before = datetime.now(UTC)
    reader.lake.land(orders(6, 9))
    reader.run()
    retained(reader.lake, 7)
    for to in ("6", before.isoformat()):
        with pytest.raises(StreamRefused, match="up to number 7 may be gone by retention"):
            rewound(reader, to)
    assert rewound(reader, "7") == 7


def test_a_time_from_before_the_history_is_refused(reader: Reader) -> None:
    reader.lake.land(orders(6, 9))
    reader.run()
    table = reader.lake.table()
    oldest = min(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    table.maintenance.expire_snapshots().by_id(oldest.snapshot_id).commit()
    with pytest.raises(PenstockError) as caught:
        rewound(reader, "2020-01-01T00:00:00Z")
    assert "the history of shop.orders goes back only to 20" in caught.value.what


def test_a_table_that_was_rolled_back_stops_the_reader_and_a_rewind_leads_out(reader: Reader) -> None:
    lake = reader.lake
    lake.land(orders(6, 9))
    before = lake.state().main
    lake.land(orders(10, 12))
    reader.run()
    assert before
    lake.table().manage_snapshots().rollback_to_snapshot(before.id).commit()
    source = reader.source()
    content = source.content("orders")
    ceiling = source.ceiling("orders", content, "look")
    assert ceiling
    assert reader.last
    with pytest.raises(StreamStopped):  # seen in an idle look
        source.plan("orders", content, reader.last.mark, ceiling, Budget(bytes=1, look=True))
    with pytest.raises(StreamStopped) as caught:
        reader.run()
    assert "was rolled back to a snapshot before the one that was read" in caught.value.what
    assert "`penstock rewind FILE --to NUMBER --stream orders` (it was at 12)" in caught.value.next_step
    went(reader, "9")
    assert reader.ids() == []
    lake.append(orders(13, 13, _ingest_seq=[1]))
    assert reader.ids() == [13]
