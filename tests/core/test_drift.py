"""Drift: which columns have changed, how, and what the sink's columns become under each policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.core.strategies import given

from penstock.core.content import Column, Content
from penstock.core.drift import (
    POLICIES,
    QUARANTINE_COLUMN,
    ChangeKind,
    absent,
    changes,
    follow_drift,
    keep_columns,
    kind_of_change,
    list_changes,
)
from penstock.core.types import Plain, parse_type
from penstock.core.widening import widens
from penstock.errors import StreamRefused

TYPES = (
    *("null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"),
    *("float16", "float32", "float64", "string", "binary", "date"),
    *("decimal(5,0)", "decimal(10,0)", "decimal(12,2)", "decimal(14,2)", "decimal(20,4)"),
    *("timestamp", "timestamptz", "list<int32>", "list<int64>"),
)


def column(name: str, type_: str = "int32", origin: str | None = None) -> Column:
    return Column(name, parse_type(type_), origin)


def content(*columns: Column) -> Content:
    return Content(columns, identity={"source": "here"})


columns = st.lists(
    st.builds(column, st.sampled_from("abcdef"), st.sampled_from(TYPES)),
    max_size=6,
    unique_by=lambda each: each.name,
)
contents = columns.map(lambda found: content(*found))
policies = st.sampled_from(POLICIES)


# ---------------------------------------------------------------- types


def wider(was: str, now: str) -> bool:
    return widens(parse_type(was), parse_type(now))


def changed(was: str, now: str) -> ChangeKind:
    return kind_of_change(parse_type(was), parse_type(now))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("int16", "int32"),
        ("int32", "int64"),
        ("uint8", "int16"),
        ("uint32", "int64"),
        ("int16", "float32"),
        ("int32", "float64"),
        ("int32", "decimal(10,0)"),
        ("int32", "decimal(12,2)"),
        ("int64", "decimal(19,0)"),
        ("uint64", "decimal(20,0)"),
        ("float32", "float64"),
        ("float16", "float64"),
        ("decimal(12,2)", "decimal(14,2)"),
        ("decimal(12,2)", "decimal(14,4)"),
        ("decimal(38,2)", "decimal(39,2)"),
        ("null", "date"),
    ],
)
def test_a_wider_type_holds_every_value(was: str, now: str) -> None:
    assert wider(was, now)
    assert not wider(now, was)
    assert (changed(was, now), changed(now, was)) == (ChangeKind.WIDENED, ChangeKind.NARROWED)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("int64", "float64"),
        ("int32", "float32"),
        ("int32", "uint64"),
        ("int64", "uint64"),
        ("int32", "decimal(9,0)"),
        ("int32", "decimal(11,2)"),
        ("decimal(12,2)", "decimal(12,3)"),
        ("decimal(12,2)", "float64"),
        ("int32", "string"),
        ("string", "date"),
        ("date", "timestamp"),
        ("timestamp", "timestamptz"),
        ("bool", "int8"),
        ("list<int32>", "list<int64>"),
        ("string", "binary"),
    ],
)
def test_neither_of_two_types_is_the_wider_one(was: str, now: str) -> None:
    assert (changed(was, now), changed(now, was)) == (ChangeKind.RETYPED, ChangeKind.RETYPED)


@given(st.sampled_from(TYPES), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_widening_leads_one_way(one: str, other: str, third: str) -> None:
    assert not (wider(one, other) and wider(other, one))
    if wider(one, other) and wider(other, third):
        assert wider(one, third)


# ---------------------------------------------------------------- changes


@given(columns)
def test_nothing_has_changed_between_a_list_and_itself(found: list[Column]) -> None:
    assert changes(found, found) == ()
    assert changes(found, found[::-1]) == (), "another order is no change"


@given(columns, columns)
def test_every_column_is_accounted_for(before: list[Column], now: list[Column]) -> None:
    found = {change.column: change for change in changes(before, now)}
    old, new = ({each.name: each.type for each in side} for side in (before, now))
    for name in old | new:
        if name not in new:
            assert found[name].kind is ChangeKind.DROPPED
        elif name not in old:
            assert found[name].kind is ChangeKind.ADDED
        elif old[name] == new[name]:
            assert name not in found
        else:
            assert found[name].kind in (ChangeKind.WIDENED, ChangeKind.NARROWED, ChangeKind.RETYPED)
    assert len(changes(before, now)) == len(found)
    back = {change.column: change.kind for change in changes(now, before)}
    assert back.keys() == found.keys()
    assert all((found[name].kind is ChangeKind.WIDENED) == (back[name] is ChangeKind.NARROWED) for name in found)


def test_changes_are_told_in_the_words_of_the_source() -> None:
    before = [column("id", "int32", "integer"), column("note", "string", "text"), column("gone", "bool", "boolean")]
    now = [column("id", "int64", "bigint"), column("note", "int32", "integer"), column("new", "float32", "real")]
    assert list(map(str, changes(before, now))) == [
        "column id was integer and is bigint now, which is wider",
        "column note was text and is integer now",
        "column gone (boolean) is gone",
        "column new is new (real)",
    ]
    assert [change.level for change in changes(before, now)] == ["info", "warning", "warning", "info"]
    assert str(changes(now, before)[0]) == "column id was bigint and is integer now, which is narrower"


def test_a_column_that_went_as_another_came_at_its_place_was_perhaps_renamed() -> None:
    a, b, c = column("a"), column("b"), column("c")
    gone, come = changes([a, b, c], [a, column("d"), c])
    assert str(gone) == "column b (int32) is gone; perhaps it was renamed to d"
    assert str(come) == "column d is new (int32)"
    for now in ([a, c, column("d")], [a, column("d", "int64"), c], [a, column("d"), column("e")]):
        assert all(change.perhaps is None for change in changes([a, b, c], now))


def test_what_was_perhaps_renamed_stops_until_it_is_said_to_be_dropped() -> None:
    before, now = content(*map(column, "abc")), content(*map(column, "adec"))
    with pytest.raises(StreamRefused, match="column b is gone, and d and e of its type are new") as refused:
        follow_drift(before, now, "evolve")
    assert "`shape: {rename: {d: b}}`" in refused.value.next_step
    assert "`dropped: [b]`" in refused.value.next_step
    after = follow_drift(before, now, "evolve", dropped=["b"])
    assert absent(after) == ("b",)
    assert follow_drift(after, now, "evolve") == after, "said once"
    assert absent(follow_drift(before, now, "quarantine")) == ("b",)
    for elsewhere in ([*map(column, "acd")], [column("a"), column("d", "int64"), column("c")]):
        assert absent(follow_drift(before, content(*elsewhere), "evolve")) == ("b",)


def test_a_type_that_travels_otherwise_is_named_with_both_forms() -> None:
    """`unfit: text`, say: the table is as it was."""
    [change] = changes([column("a", "decimal(5,2)", "numeric(5,2)")], [column("a", "string", "numeric(5,2)")])
    assert str(change) == "column a was numeric(5,2) as decimal(5,2) and is numeric(5,2) as string now"


def test_another_name_for_the_same_type_is_no_change() -> None:
    assert changes([column("a", "string", "varchar(10)")], [column("a", "string", "varchar(20)")]) == ()


# ---------------------------------------------------------------- what becomes of them


def attempted(before: Content, now: Content, policy: str) -> Content | StreamRefused:
    try:
        return follow_drift(before, now, policy)
    except StreamRefused as refused:
        return refused


@given(contents, policies)
def test_the_first_slice_is_as_the_source_gives_it(now: Content, policy: str) -> None:
    assert follow_drift(None, now, policy) == now


@given(contents, contents, policies)
def test_every_column_of_the_source_arrives_or_is_put_aside(before: Content, now: Content, policy: str) -> None:
    after = attempted(before, now, policy)
    if isinstance(after, StreamRefused):
        assert after.next_step
        assert policy != "quarantine"
        assert any(change.column in after.what for change in changes(before.columns, now.columns))
        return
    assert after.undrifted == now
    assert follow_drift(after, now, policy) == after, "the same columns again change nothing"
    landed = {each.name: each.type for each in after.columns}
    assert len(landed) == len(after.columns)
    for each in after.reads:
        name, type_ = each.name, each.type
        fits = name in landed and (landed[name] == type_ or widens(type_, landed[name]))
        assert fits != (name in after.quarantined), "exactly one of the two"
    for each in before.columns:
        now_is = landed[each.name]
        assert now_is == each.type or widens(each.type, now_is), "what the sink has stays, or becomes wider"
    assert list(landed)[: len(before.columns)] == [each.name for each in before.columns]
    assert (QUARANTINE_COLUMN in landed) == bool(after.quarantined)


@given(contents, st.lists(st.tuples(contents, policies), max_size=5))
def test_a_history_of_changes_never_loses_a_column(first: Content, history: list[Any]) -> None:
    last: Content = first
    for now, policy in history:
        after = attempted(last, now, policy)
        if isinstance(after, StreamRefused):
            continue
        assert [each.name for each in after.columns][: len(last.columns)] == [each.name for each in last.columns]
        assert after.undrifted == now
        last = after


@given(contents, contents)
def test_frozen_columns_let_no_change_pass(before: Content, now: Content) -> None:
    found = changes(before.columns, now.columns) if before.columns else ()
    if not found:
        assert list_changes(before, follow_drift(before, now, "freeze")) == ()
        return
    with pytest.raises(StreamRefused) as refused:
        follow_drift(before, now, "freeze")
    assert all(str(change) in refused.value.what for change in found)


def test_frozen_columns_hold_against_what_evolve_has_accepted() -> None:
    before, now = content(column("a")), content(column("a"), column("b"))
    accepted = follow_drift(before, now, "evolve")
    assert follow_drift(accepted, now, "freeze") == accepted
    with pytest.raises(StreamRefused, match="column b"):
        follow_drift(accepted, before, "freeze")


def test_a_column_that_is_gone_stays_and_one_that_is_narrower_stays_wide() -> None:
    before = content(column("a", "int64"), column("b", "string"), column("c"))
    after = follow_drift(before, content(column("a", "int32"), column("c", "int64"), column("d")), "evolve")
    assert [(each.name, str(each.type)) for each in after.columns] == [
        ("a", "int64"),
        ("b", "string"),
        ("c", "int64"),
        ("d", "int32"),
    ]
    assert absent(after) == ("b",)
    assert after.identity == {"source": "here"}
    assert follow_drift(after, content(*after.columns), "evolve").drift is None


def test_a_column_that_comes_back_with_another_type_is_no_new_one() -> None:
    first = content(column("a"), column("b"))
    without = follow_drift(first, content(column("a")), "evolve")
    with pytest.raises(StreamRefused, match="column b was int32 and is string now") as refused:
        follow_drift(without, content(column("a"), column("b", "string")), "evolve")
    for step in ("shape: {cast", "shape: {rename", "drift: quarantine"):
        assert step in refused.value.next_step


def test_what_does_not_fit_is_put_aside() -> None:
    before = content(column("a"), column("b"), column("c", "int64"), column("d"))
    now = content(column("a", "string"), column("b", "int64"), column("c", "int32"), column("e"))
    after = follow_drift(before, now, "quarantine")
    assert after.quarantined == ("a", "b", "e")
    assert after.columns == (*before.columns, Column(QUARANTINE_COLUMN, Plain.STRING))
    assert absent(after) == ("d",)
    fitting = follow_drift(after, before, "quarantine")
    assert fitting.quarantined == ()
    assert absent(fitting) == (QUARANTINE_COLUMN,)
    assert [change.column for change in list_changes(after, fitting)] == ["a", "b", "c", "e", "d"]


def test_a_column_that_was_put_aside_can_be_taken_in_later() -> None:
    before, now = content(column("a")), content(column("a"), column("b"))
    aside = follow_drift(before, now, "quarantine")
    taken = follow_drift(aside, now, "evolve")
    assert [each.name for each in taken.columns] == ["a", QUARANTINE_COLUMN, "b"]
    assert taken.quarantined == ()
    assert list(map(str, list_changes(aside, taken))) == ["column b is new (int32)"]
    assert list_changes(taken, follow_drift(taken, now, "evolve")) == ()


def test_a_column_named_like_ours_is_told_apart() -> None:
    before = content(column("a"))
    with pytest.raises(StreamRefused, match=QUARANTINE_COLUMN) as refused:
        follow_drift(before, content(column("a"), column(QUARANTINE_COLUMN, "string")), "quarantine")
    assert "shape: {rename" in refused.value.next_step
    after = follow_drift(before, content(column("a"), column(QUARANTINE_COLUMN, "string")), "evolve")
    assert after.drift is None


def test_a_slice_without_rows_keeps_the_columns() -> None:
    before = follow_drift(content(column("a"), column("b")), content(column("a"), column("c", "string")), "evolve")
    now = replace(content(column("a", "string")), filter="elsewhere")
    stays = keep_columns(before, now)
    assert (stays.columns, stays.reads, stays.filter) == (before.columns, before.reads, "elsewhere")
    assert keep_columns(None, now) == now


@pytest.mark.parametrize("now", [content(column("a", "string")), content(column("b"))])
def test_a_copy_that_replaces_all_before_has_the_columns_of_now(now: Content) -> None:
    before = content(column("a"), column("b"))
    assert follow_drift(before, now, "evolve", whole=True) == now
    with pytest.raises(StreamRefused, match="frozen"):
        follow_drift(before, now, "freeze", whole=True)
