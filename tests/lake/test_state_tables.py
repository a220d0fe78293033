"""State tables in a real lake: slices, crashes, and what a state table is refused for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.harness.doubles import LoopMover
from tests.lake.folds import LAYOUT
from tests.lake.state_tables import STREAM, StateWorld
from tests.lake.test_folding import DELETE, Case, document, query, set_
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.core.content import Column, Content
from penstock.core.ops import FanOut, Layout, Row
from penstock.core.slices import Kind
from penstock.core.types import Plain
from penstock.errors import InputError, StreamRefused, StreamStopped
from penstock.lake.folding import reading, side_data
from penstock.lake.folding.run import FoldResult, FoldRun
from penstock.lake.tables import commit_snapshot, extract_state, load_table
from penstock.lake.upkeep.job import UpkeepJob
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.lake.upkeep.run import run_upkeep
from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.ports import NoProbe, NoSpark, StreamInfo
from penstock.testing.contracts.delivery import Crash, Crashing

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

Worlds = Callable[..., StateWorld]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, spark_provider: SparkSessionProvider) -> Worlds:
    folder, numbers = tmp_path_factory.mktemp("state"), count(1)
    return lambda **more: StateWorld(folder, f"n{next(numbers)}", spark_provider, **more)


def image(key: str, *ops: Any) -> dict[str, Any]:
    return document(*ops, key=key, creates=True)


def posts(post: str, title: str | None) -> dict[str, Any]:
    return query({"field": "post", "eq": post}, set_("title", title))


def test_random_slices_in_a_real_lake(worlds: Worlds) -> None:
    world, random = worlds(), Random(7)
    cases = [Case(random, f"c{number}") for number in range(20)]
    for _ in range(3):
        world.land(*(case.document() for case in cases for _ in range(3)))
        world.check()


def test_a_first_load_is_written_without_a_fold(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless something else concerns its entities. That the proofs suffice is tested in test_new_entities."""
    monkeypatch.setattr(reading, "FEW_CREATING", 1)
    results: list[FoldResult] = []
    whole = FoldRun.run

    def run(self: FoldRun) -> FoldResult:
        results.append(whole(self))
        return results[-1]

    monkeypatch.setattr(FoldRun, "run", run)

    def images(*keys: str, post: str = "p1") -> list[Any]:
        return [image(key, set_("post", post), set_("size", ord(key))) for key in keys]

    def new(*documents: Any) -> int:
        world.land(*documents)
        world.check()
        return sum(each.rows for each in results.pop().new)

    world = worlds()
    clears = [document({"op": "clear"}), document({"op": "clear", "field": "title"}, table="posts")]
    assert new(*images("b", "c")) == 2
    # The bounds of one part hold those of the other, and those of the table; the keys differ.
    assert new(*images("a", "g", "e"), *images("f", "d", "h")) == 6
    # An early op, and a value of a fan-out: these entities alone are folded.
    assert new(document(set_("size", 1), key="j"), posts("p2", "x"), document(DELETE, key="h")) == 0
    assert new(*images("i", "j", "k"), *images("l", "m", post="p2"), *images("n")) == 3
    assert new(*images("o", "p"), *images("h")) == 0
    assert len(world.current()["entities"]) == 16
    # What a first load begins with clears nothing, and needs no fold.
    world = worlds()
    monkeypatch.setattr(FoldRun, "_fold", lambda *_: pytest.fail("folded"))
    rows = world.rows([*clears, *images("x", "y")])
    slice_ = world.next_slice()
    world.try_slice(rows, parts=2)
    world.expect(rows, slice_)
    world.check()
    assert sum(each.rows for each in results.pop().new) == 2


def test_a_slice_that_died_anywhere_is_applied_once(worlds: Worlds) -> None:
    """A slice whose attempts die one after the other, each at the next point, until one has landed.

    `script/soak suite` lets an attempt that nothing stops follow on each death.
    """
    world = worlds()
    world.land(image("a", set_("post", "p1")), image("b", set_("post", "p1")), document(set_("size", 1), key="early"))
    probe = Crashing()
    world.land(posts("p1", "x"), image("c", set_("post", "p1")), document(DELETE, key="b"), probe=probe)
    points = probe.points
    assert {"lake.prepared", "lake.folded", "lake.staged", "lake.merged", "lake.side_staged"} <= {*points}
    open_rows: list[Row] = []
    newest = "c"
    for place in range(len(points)):
        if not open_rows:
            documents = [posts("p1", f"title {place}"), image(f"new{place}"), document(set_("size", place), key="z")]
            open_rows = world.rows([*documents, document(DELETE, key=newest)])
            newest = f"new{place}"
        rows = open_rows
        slice_ = world.next_slice()
        with pytest.raises(Crash):
            world.try_slice(rows, probe=Crashing(at_call=place))
        held = world.sink().held(STREAM)
        is_in = held is not None and held.position == slice_.position
        assert is_in or points[place] != "lake.landed"
        if not is_in:
            world.check()
            if "PENSTOCK_SEARCH" not in os.environ and place + 1 < len(points):
                continue
            world.try_slice(rows)
        world.expect(rows, slice_)
        world.check()
        open_rows = []


def test_a_lost_race_folds_again(worlds: Worlds) -> None:
    """Another writer commits at every point of a landing."""
    world = worlds()
    world.land(image("a", set_("post", "p1")), posts("p1", "x"))

    def commit() -> None:
        table = load_table(world.lake, STREAM)
        assert table is not None
        commit_snapshot(table, kind="turn", head=extract_state(table).head)

    rows = world.rows([posts("p1", "y"), image("b", set_("post", "p1")), document(set_("size", 1), key="c")])
    slice_ = world.next_slice()
    probe = Crashing(at_call=1, action=commit)
    world.try_slice(rows, probe=probe)
    assert probe.points[:2] == ["lake.prepared", "lake.folded"]
    assert probe.points.count("lake.folded") == 2
    world.expect(rows, slice_)
    world.check()


def test_a_rolled_back_table_gets_back_what_belongs_to_it(worlds: Worlds) -> None:
    world = worlds()
    world.land(image("a", set_("post", "p1")), posts("p1", "x"))
    before, kept = world.last, world.expected
    main = world.state().main
    assert main is not None
    world.land(posts("p1", "y"), document(set_("size", 1), key="b"), document(DELETE, key="a"))
    table = load_table(world.lake, STREAM)
    assert table is not None
    table.manage_snapshots().rollback_to_snapshot(main.id).commit()
    with pytest.raises(StreamStopped):
        world.sink().held(STREAM)
    assert world.sink().recover(STREAM)
    world.last, world.expected = before, kept
    world.check()
    world.land(image("c", set_("post", "p1")), image("b"))
    world.check()


def test_side_data_is_written_anew(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some slices, and where a fan-out forgets its values; what is in quarantine stays."""
    monkeypatch.setattr(side_data, "MAX_FILES", 2)
    world = worlds()
    odd = document({"op": "upsert"}, key="a")
    for number in range(3):
        world.land(document(set_("size", number), key=f"e{number}"), posts(f"p{number}", "x"), odd, "no JSON")
        world.check()
    world.land(document({"op": "clear", "field": "title"}, table="posts"), image("e1", set_("post", "p1")))
    world.check()
    assert len([row for row in world.side() if row["kind"] == "bad"]) == 6


def test_what_is_in_quarantine_is_listed(worlds: Worlds) -> None:
    world = worlds()
    outcome = world.land(
        image("a", set_("size", "many"), set_("size", 5)), "{", document(set_("sizes", 1), key="b"), image("c")
    )
    assert outcome is not None
    assert (outcome.quarantined, outcome.updated) == (3, 1)
    counts, rows = world.sink().quarantined([], limit=2)
    assert counts == {STREAM: 3}
    assert [(row.id, row.stream, row.number, row.key, row.reason) for row in rows] == [
        (
            *(1, STREAM, 1),
            '{"document": 1, "key": "a", "op": "{\\"op\\":\\"set\\",\\"field\\":\\"size\\",\\"value\\":\\"many\\"}"}',
            'the value "many" of field size is not of its type int64',
        ),
        (
            *(2, STREAM, 1),
            '{"document": 2, "op": "{"}',
            "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
    ]
    with pytest.raises(InputError, match="cannot be replayed"):
        world.sink().replay(STREAM, [1], overwrite=False)
    with pytest.raises(InputError, match="cannot be dropped"):
        world.sink().drop([STREAM], [1])


def test_early_ops_are_dropped_after_a_time(worlds: Worlds) -> None:
    world = worlds()
    world.land(document(set_("size", 1), key="a"), document(set_("size", 1), key="b"), *[image("x")] * 3)
    assert sorted(world.current()["early"]) == ["a", "b"]
    # The first document is 50 microseconds older than the last one of the next slice, the second one 40.
    world.land(image("y"), early_for=timedelta(microseconds=45))
    assert sorted(world.current()["early"]) == ["b"]
    assert "early ops of 1 entities were dropped: they had waited longer than `early_for`" in world.said


def test_fields_may_be_added_and_widened(worlds: Worlds) -> None:
    def layout(size: Plain, *more: Column) -> Layout:
        return Layout(key=(Column("id", Plain.INT64),), scalars=(Column("size", size), *more))

    world = worlds(layout=layout(Plain.INT32))
    world.land(document(set_("size", 1), key=1, creates=True), document(set_("size", 2**40), key=2, creates=True))
    assert world.current()["entities"] == {"1": ({"size": 1}, {}), "2": ({}, {})}
    world.layout = layout(Plain.INT64, Column("url", Plain.STRING))
    world.land(document(set_("size", 2**40), set_("url", "u"), key=2))
    assert world.current()["entities"] == {"1": ({"size": 1}, {}), "2": ({"size": 2**40, "url": "u"}, {})}
    world.layout = layout(Plain.STRING)
    with pytest.raises(StreamRefused, match="column 'size' is long in the table and string in the stream"):
        world.sink().check(StreamInfo(STREAM, Kind.ROWS, ("id",)), world.content())


def test_upkeep_leaves_what_is_beside_the_entities(worlds: Worlds) -> None:
    """Far in the future, so that everything old goes: branches of attempts, snapshots, orphans and tombstones."""
    world = worlds()
    for number in range(2):
        world.land(
            image(f"a{number}", set_("post", "p1")),
            posts("p1", f"title {number}"),
            document(set_("size", number), key="early"),
            document(DELETE, key=f"a{number - 1}"),
            "no JSON",
        )
    with pytest.raises(Crash):
        world.try_slice(world.rows([image("never")]), probe=Crashing(at_call=3))
    later = datetime.now(UTC) + timedelta(days=100)
    options = UpkeepOptions.model_validate({"min_input_files": 2, "snapshots": {"keep_at_least": 1}})
    job = UpkeepJob(world.lake, STREAM, options, world.spark, LoopMover, NoProbe(), later, force=True)
    done = list(run_upkeep(job))
    assert [each for each in done if each.error] == []
    table = load_table(world.lake, STREAM)
    assert table is not None
    assert len(table.metadata.snapshots) < 7
    world.check()
    assert world.sink().quarantined([], limit=0)[0] == {STREAM: 2}
    world.land(image("b", set_("post", "p1")), image("early"))
    world.check()


def test_readers_get_changed_rows_and_tombstones(worlds: Worlds) -> None:
    world = worlds()
    world.land(image("a", set_("size", 1)), image("b"), image("c"), document(set_("size", 1), key="early"))
    lake = LakeWorld(world.folder, world.namespace, world.spark)
    reader = lake.reader(stream=STREAM)
    assert sorted(row["id"] for rows in reader.run() for row in rows.to_pylist()) == ["a", "b", "c"]
    world.land(document(set_("size", 1), key="a"), document(set_("size", 2), key="b"), document(DELETE, key="c"))
    changes = [(row["id"], row["_change"]) for rows in reader.run() for row in rows.to_pylist()]
    assert sorted(changes) == [("b", "upsert"), ("c", "delete")]


# ---------------------------------------------------------------- without Spark

FAN = FanOut("users", ("title",), ("size",))


def refusals(world: StateWorld, content: Content | None = None, **options: Any) -> list[str]:
    stream = StreamInfo(STREAM, Kind.ROWS, ("id",))
    try:
        world.sink(**options).check(stream, content or world.content())
    except StreamRefused as refused:
        return [refused.what, *(each.what for each in refused.others)]
    return []


@pytest.mark.parametrize(
    ("change", "options", "what"),
    [
        ({}, {}, None),
        ({"entities": None}, {}, "rows of this stream are not documents of ops"),
        ({"entities": None}, {"mode": "append"}, None),
        ({}, {"mode": "append", "early_for": "1d"}, "`early_for` has no meaning without `mode: state`"),
        ({}, {"key": ["id"]}, "`key` has no meaning with `mode: state`"),
        ({}, {"newer_than": "at"}, "`newer_than` has no meaning with `mode: state`"),
        ({}, {"deletes": "ignore"}, "`deletes: ignore` has no meaning with `mode: state`"),
        (
            {"entities": replace(LAYOUT, fan_outs=(*LAYOUT.fan_outs, FAN)).document()},
            {},
            None,
        ),
        (
            {"entities": replace(LAYOUT, scalars=(*LAYOUT.scalars, Column("raw", Plain.BINARY))).document()},
            {},
            "field 'raw' is of type binary, which a state table cannot hold",
        ),
        (
            {"entities": replace(LAYOUT, key=(Column("id", Plain.FLOAT64),)).document()},
            {},
            "the key column 'id' is of type float64",
        ),
    ],
)
def test_a_stream_that_cannot_have_a_state_table_is_refused(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], what: str | None
) -> None:
    world = StateWorld(tmp_path, "shop", NoSpark())
    found = refusals(world, replace(world.content(), **change), **options)
    assert bool(found) == bool(what)
    assert what is None or any(what in each for each in found), found


def test_a_table_that_is_not_the_streams_own_is_refused(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 2), table=STREAM)
    world = StateWorld(tmp_path, "shop", NoSpark())
    found = refusals(world)
    assert any("was made with mode append, not state" in each for each in found), found
    world.pipeline = "another"
    assert any("the order of two streams of ops is not defined" in each for each in refusals(world))
    lake.make(orders(1, 1), name="theirs")
    assert any("a state table begins empty" in each for each in refusals(world, into="theirs"))
