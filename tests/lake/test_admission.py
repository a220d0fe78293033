"""Which tables a stream may land in that are there already, and what its first slice does where it has no rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.harness.contents import content as content_of
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.core.content import Content
from penstock.core.documents import canonical
from penstock.core.marks import Mark
from penstock.core.slices import Kind, Slice, following
from penstock.errors import StreamRefused
from penstock.lake import names
from penstock.lake.readers import abandon, register
from penstock.lake.upkeep.job import UpkeepJob
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.lake.upkeep.run import run_upkeep
from penstock.ports import StreamInfo
from penstock.sinks import lake as lake_sink
from penstock.sources import lake as lake_source

CONTENT = content_of(id="int64", note="string")


def sink_for(lake: LakeWorld, pipeline: str, namespace: str | None = None, **options: Any) -> lake_sink.LakeSink:
    streams = {"orders": lake_sink.StreamOptions.model_validate(options)}
    return lake_sink.build(lake_sink.Options(namespace=namespace), streams, lake.context(pipeline))


def info(
    kind: Kind = Kind.ROWS, primary_key: Sequence[str] = ("id",), order: Sequence[str] = ("note", "id")
) -> StreamInfo:
    return StreamInfo("orders", kind, tuple(primary_key), tuple(order))


def first(pipeline: str, kind: Kind = Kind.ROWS) -> Slice:
    return following(None, pipeline=pipeline, stream="orders", upto=Mark.of({"n": 1}), content=CONTENT, kind=kind)


def refusal(sink: lake_sink.LakeSink, stream: StreamInfo, content: Content = CONTENT) -> str:
    with pytest.raises(StreamRefused) as refused:
        sink.check(stream, content)
    return f"{refused.value.what} | {refused.value.next_step}"


def test_pipelines_whose_names_give_one_namespace_do_not_share_it_unasked(tmp_path: Path) -> None:
    """The namespace of `shop-eu` and of `shop_eu` is shop_eu."""
    lake = LakeWorld(tmp_path, namespace="shop_eu")
    one, other = sink_for(lake, "shop-eu"), sink_for(lake, "shop_eu")
    slice_ = first("shop-eu")
    one.commit(slice_, "a1", [])
    one.check(info(), CONTENT)
    assert refusal(other, info()).startswith("pipeline 'shop-eu' lands its stream 'orders' in the table shop_eu.orders")
    # Also where the check came before the other's first slice.
    with pytest.raises(StreamRefused, match="pipeline 'shop-eu' lands"):
        other.writer(first("shop_eu"), "b1")
    # On the user's word they may.
    sink_for(lake, "shop_eu", namespace="shop_eu").check(info(), CONTENT)
    sink_for(lake, "shop_eu", into="orders").check(info(), CONTENT)


@pytest.mark.parametrize("rows", [0, 3])
def test_a_first_refresh_does_not_delete_rows_of_others_unasked(tmp_path: Path, rows: int) -> None:
    lake = LakeWorld(tmp_path)
    lake.make(orders(1, 1))
    if rows:
        lake.append(orders(1, rows))
    refresh, sink = info(Kind.REFRESH), sink_for(lake, "in", "shop", into_existing=True)
    if not rows:
        sink.check(refresh, CONTENT)
        return
    assert "the first full refresh would delete them | set `replace_existing: true`" in refusal(sink, refresh)
    with pytest.raises(StreamRefused, match="would delete them"):
        sink.writer(first("in", Kind.REFRESH), "a1")
    assert lake.table().scan().to_arrow().num_rows == rows
    # The other word alone is not enough either, and both are.
    assert "penstock did not create it" in refusal(sink_for(lake, "in", "shop", replace_existing=True), refresh)
    both = sink_for(lake, "in", "shop", into_existing=True, replace_existing=True)
    both.check(refresh, CONTENT)
    both.writer(first("in", Kind.REFRESH), "a2")
    both.commit(first("in", Kind.REFRESH), "a2", [])
    assert lake.table().scan().to_arrow().num_rows == 0
    # Once it has replaced them, the table is its own.
    sink.check(refresh, CONTENT)


def test_a_stream_that_becomes_a_refresh_does_not_delete_rows_of_others_either(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.make(orders(1, 1))
    lake.append(orders(1, 3))
    lake.land(orders(4, 5), into_existing=True)
    sink = sink_for(lake, "in", "shop", into_existing=True)
    sink.check(info(), CONTENT)
    assert "would delete them" in refusal(sink, info(Kind.REFRESH))


def test_a_table_does_not_go_into_itself(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 3))
    content = lake.source("copy").content("orders")
    sink = sink_for(lake, "copy", "shop", into="orders")
    assert refusal(sink, info(), content).startswith("the table shop.orders is the one that the stream reads")
    with pytest.raises(StreamRefused, match="would go into itself"):
        sink.writer(following(None, pipeline="copy", stream="orders", upto=Mark.of({"n": 1}), content=content), "a1")
    sink_for(lake, "copy", "shop", into="copies").check(info(), content)


def test_a_first_slice_without_rows_makes_the_table(tmp_path: Path) -> None:
    """As a first run leaves it that meets an open writer: it has a mark, and no row yet."""
    lake = LakeWorld(tmp_path)
    sink, slice_ = sink_for(lake, "in", "shop"), first("in")
    sink.commit(slice_, "a1", [])
    held = sink.held("orders")
    assert held
    assert held.position == slice_.position
    assert lake.table().scan().to_arrow().num_rows == 0


# ---------------------------------------------------------------- which of two rows is newer


def test_a_key_that_several_rows_share_is_compared_by_the_cursor(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    stream = info(order=("at", "id"))
    content = content_of(id="int64", email="int64", at="int64")
    by_id, by_email = (sink_for(lake, "in", mode="merge", key=[key]) for key in ("id", "email"))
    for sink, wanted in ((by_id, None), (by_email, "at")):
        sink.begin_run([stream])
        sink.check(stream, content)
        assert sink.newer_than("orders") == wanted
        assert any("the highest at" in remark.text for remark in sink.explain(stream, content)) == bool(wanted)
    named = sink_for(lake, "in", mode="merge", key=["email"], newer_than="id")
    named.begin_run([stream])
    assert named.newer_than("orders") == "id"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "merge", "key": ["note"]}, "the cursor 'at', which tells the newest of them, is not shipped"),
        ({"mode": "merge", "newer_than": "nowhere"}, "`newer_than` names the column 'nowhere'"),
        ({"mode": "merge", "newer_than": "tags"}, "whose values have no order"),
        ({"newer_than": "note"}, "`newer_than` has no meaning without `mode: merge`"),
    ],
)
def test_what_cannot_tell_the_newest_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    content = content_of(id="int64", note="string", tags="list<string>")
    assert said in refusal(sink_for(LakeWorld(tmp_path), "in", **options), info(order=("at", "id")), content)


def test_a_source_in_order_needs_no_column(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 3))
    (stream,) = lake.source("copy").catalog()
    sink = sink_for(lake, "copy", mode="merge", key=["note"])
    sink.begin_run([stream])
    assert sink.newer_than("orders") is None


def test_a_merged_table_that_copies_on_write_is_refused(tmp_path: Path) -> None:
    """Spark cannot tell the rows of a slice by their files then."""
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 1), key=("id",))
    with lake.table().transaction() as transaction:
        transaction.set_properties({"write.merge.mode": "copy-on-write"})
    said = refusal(sink_for(lake, "in", "shop", mode="merge", key=["id"]), info())
    assert "ALTER TABLE `lake`.`shop`.`orders` SET TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')" in said


def test_a_table_of_another_version_is_refused_and_nothing_in_it_is_changed(tmp_path: Path) -> None:
    """The content of the commit before this form, which had no version."""
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 3))
    sink = lake_sink.build(lake_sink.Options(namespace=lake.namespace), {}, lake.context("in"))
    place = sink.lake
    register(place, "orders", "other", "orders", 0)
    [(name, text)] = [each for each in lake.table().properties.items() if each[0].startswith(names.CONTENT)]
    older = canonical({key: value for key, value in json.loads(text).items() if key != "format"})
    with lake.table().transaction() as change:
        change.set_properties({name: older})
    before = lake.table().metadata
    for ask in (sink.held, sink.recover):
        with pytest.raises(StreamRefused) as refused:
            ask("orders")
        what, safe, step = str(refused.value).split("\n")
        assert what.startswith("in/orders: slice 1 in the table at ")
        assert what.endswith("was landed by another version of penstock: its format is 1, this penstock reads 2")
        assert safe == "Nothing was changed: neither the mark nor the table."
        assert "name another table with `into` on the stream" in step
    context = lake.context("export")
    source = lake_source.build(lake_source.Options(namespace=lake.namespace), {}, context)
    job = UpkeepJob(place, "orders", UpkeepOptions(), context.spark, context.mover, context.probe, datetime.now(UTC))
    uses: list[Callable[[], object]] = [
        lambda: source.content("orders"),
        lambda: source.prepare("orders", CONTENT, None),
        lambda: list(run_upkeep(job)),
        lambda: list(run_upkeep(replace(job, dry_run=True))),
        lambda: abandon(place, "orders", "other", "orders"),
    ]
    for use in uses:
        with pytest.raises(StreamRefused, match="was written by another version of penstock: slice 1 of in/orders: "):
            use()
    assert lake.table().metadata == before
