"""The reference fold of ops: it leads to what the tables hold, and every mistake that we could think of is caught."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.core.ops_tables import SHAPE, tables_after
from tests.core.strategies import given

from penstock.core.ops import FanOut, Record, Row, Shape, State, fold, forget_early
from penstock.core.ops.fold import _Draft, _Work

randoms = st.integers(0, 2**32).map(Random)
sizes = st.integers(0, 40)


def rows_of(*documents: Any) -> list[Row]:
    return [Row(number, document, at=number) for number, document in enumerate(documents)]


def document(*ops: dict[str, Any], table: str = "images", **members: Any) -> dict[str, Any]:
    return {"v": 1, "table": table, "ops": list(ops), **members}


def set_(field: str, value: Any) -> dict[str, Any]:
    return {"op": "set", "field": field, "value": value}


def add(value: Any) -> dict[str, Any]:
    return {"op": "add", "field": "tags", "value": value}


def take(value: Any) -> dict[str, Any]:
    return {"op": "remove", "field": "tags", "value": value}


def fan_out(post: int, title: str | None, table: str = "posts") -> dict[str, Any]:
    where = {"field": "post", "eq": post}
    return document({"op": "query_op_set", "where": where, "ops": [set_("title", title)]}, table=table)


DELETE = {"op": "delete"}
CLEAR = {"op": "clear"}


def state_after(*documents: Any, shape: Shape = SHAPE) -> dict[str, Any]:
    """Scalars and sorted tags of each entity."""
    folded = fold(State(), shape, rows_of(*documents))
    assert not folded.quarantined
    return {
        key: {**record.scalars, **{name: sorted(map(json.loads, each)) for name, each in record.multi.items()}}
        for key, record in folded.state.entities.items()
    }


def in_slices(random: Random, rows: list[Row], shape: Shape = SHAPE) -> tuple[State, list[Any], int]:
    """Fold random slices one after the other; some are folded twice, as by a run that was killed before its commit."""
    state, quarantined, early, at = State(), list[Any](), 0, 0
    while at < len(rows):
        upto = at + random.randint(1, 5)
        folded = fold(state, shape, rows[at:upto])
        assert random.random() < 0.7 or fold(state, shape, rows[at:upto]) == folded
        state, at = folded.state, upto
        quarantined += folded.quarantined
        early += folded.early
    return state, quarantined, early


# ------------------------------------------------------------ what ops mean


def test_the_last_write_of_a_field_counts() -> None:
    made = document(set_("size", 1), set_("size", 2), key=1, creates=True)
    assert state_after(made, document(set_("size", 3), key=1)) == {"1": {"size": 3}}
    assert state_after(made, document({"op": "remove", "field": "size"}, key=1)) == {"1": {}}
    assert state_after(made, document(set_("size", None), key=1)) == {"1": {}}


def test_keys_and_values_of_different_types_differ() -> None:
    made = [document(add(value), key=key, creates=True) for key, value in ((1, 1), ("1", "1"), ([1, "1"], True))]
    assert state_after(*made) == {"1": {"tags": [1]}, '"1"': {"tags": ["1"]}, '[1,"1"]': {"tags": [True]}}
    assert state_after(made[0], document(take("1"), key=1)) == {"1": {"tags": [1]}}


def test_an_added_and_removed_value_is_gone_even_if_it_was_there_before() -> None:
    made = document(add("x"), key=1, creates=True)
    assert state_after(made, document(add("x"), take("x"), key=1)) == {"1": {}}
    assert state_after(made, document(take("x"), add("x"), key=1)) == {"1": {"tags": ["x"]}}


def test_a_delete_absorbs_what_came_before() -> None:
    made = document(set_("size", 1), add("x"), key=1, creates=True)
    gone = document(DELETE, key=1)
    assert state_after(made, gone) == {}
    assert state_after(made, gone, document(set_("post", 2), key=1, creates=True)) == {"1": {"post": 2}}


def test_only_a_creating_document_creates() -> None:
    assert state_after(document(set_("size", 1), key=1)) == {}
    assert state_after(document(key=1, creates=True)) == {"1": {}}


def test_early_ops_wait_for_their_entity() -> None:
    early = document(add("x"), set_("size", 1), key=1)
    folded = fold(State(), SHAPE, rows_of(early))
    assert (folded.early, folded.state.entities) == (2, {})
    assert folded.state.early == {"1": Record({"size": 1}, {"tags": frozenset({'"x"'})})}
    made = document(set_("size", 2), key=1, creates=True)
    assert state_after(early, made) == {"1": {"size": 2, "tags": ["x"]}}
    assert state_after(early, document(DELETE, key=1), made) == {"1": {"size": 2}}
    assert state_after(early, document(take("x"), key=1), made) == {"1": {"size": 2}}
    assert fold(State(), SHAPE, rows_of(document(take("x"), key=1))).state == State(), "nothing is kept for nothing"


def test_early_ops_can_be_forgotten() -> None:
    folded = fold(
        State(), SHAPE, rows_of(*(document(add("x"), key=key) for key in range(4)), document(add("y"), key=0))
    )
    state, dropped = forget_early(folded.state, before=2)
    assert (dropped, sorted(state.early), sorted(state.early_since)) == (2, ["2", "3"], ["2", "3"])


def test_clear_is_a_barrier() -> None:
    made = [document(set_("size", key), add("x"), key=key, creates=True) for key in (1, 2)]
    assert state_after(*made, document(CLEAR)) == {}
    assert state_after(*made, document(CLEAR), made[0]) == {"1": {"size": 1, "tags": ["x"]}}
    assert state_after(*made, document({**CLEAR, "field": "tags"})) == {"1": {"size": 1}, "2": {"size": 2}}
    early = document(add("y"), key=3)
    created = document(key=3, creates=True)
    assert state_after(early, document(CLEAR), created) == {"3": {}}
    assert state_after(early, document({**CLEAR, "field": "tags"}), created) == {"3": {}}


def test_a_fan_out_of_an_undeclared_table_changes_what_matches_now() -> None:
    made = [document(set_("post", key), set_("title", "own"), key=key, creates=True) for key in (1, 2)]
    assert state_after(*made, fan_out(1, "new", table="other")) == {
        "1": {"post": 1, "title": "new"},
        "2": {"post": 2, "title": "own"},
    }
    assert state_after(fan_out(1, "new", table="other"), made[0]) == {"1": {"post": 1, "title": "own"}}


@pytest.mark.parametrize(
    ("where", "matched"),
    [
        ({"field": "post", "in": [1, 2]}, "12"),
        ({"field": "tags", "eq": "x"}, "1"),
        ({"and": [{"field": "post", "in": [1, 2]}, {"field": "size", "eq": 2}]}, "2"),
        ({"field": "post", "eq": "1"}, ""),
        ({"field": "title", "eq": "none"}, ""),
    ],
)
def test_filters(where: dict[str, Any], matched: str) -> None:
    made = [document(set_("post", key), set_("size", key), key=key, creates=True) for key in (1, 2, 3)]
    tagged = document(add("x"), key=1)
    op = {"op": "query_op_set", "where": where, "ops": [set_("title", "hit"), take("x")]}
    found = state_after(*made, tagged, document(op, table="other"))
    assert "".join(key for key, fields in found.items() if fields.get("title")) == matched
    assert found["1"].get("tags") == (None if "1" in matched else ["x"])


def test_a_fan_out_decides_whichever_comes_first() -> None:
    """An image that is inserted beside an open update of its post reads the old title."""
    made = document(set_("post", 1), set_("title", "old"), key=1, creates=True)
    both = {"1": {"post": 1, "title": "new"}}
    assert state_after(made, fan_out(1, "new")) == both
    assert state_after(fan_out(1, "new"), made) == both
    assert state_after(fan_out(1, "new"), made, document(set_("title", "own"), key=1)) == both
    assert state_after(fan_out(1, None), made) == {"1": {"post": 1}}


def test_an_entity_that_moves_takes_the_values_of_its_new_match() -> None:
    made = document(set_("post", 1), key=1, creates=True)
    moved = document(set_("post", 2), key=1)
    assert state_after(fan_out(1, "a"), fan_out(2, "b"), made, moved) == {"1": {"post": 2, "title": "b"}}
    assert state_after(fan_out(1, "a"), made, moved) == {"1": {"post": 2}}, "nothing of the match that it left"
    sized = document(set_("title", "own"), set_("post", 2), key=1)
    assert state_after(fan_out(1, "a"), made, sized) == {"1": {"post": 2, "title": "own"}}
    assert state_after(fan_out(2, "b"), document(set_("post", 2), key=1), document(key=1, creates=True)) == {
        "1": {"post": 2, "title": "b"}
    }


def test_a_truncated_fan_out_table_forgets_its_values() -> None:
    made = document(set_("post", 1), key=1, creates=True)
    truncated = document({**CLEAR, "field": "title"}, table="posts")
    assert state_after(fan_out(1, "a"), made, truncated, document(DELETE, key=1), made) == {"1": {"post": 1}}
    of_another = document({**CLEAR, "field": "title"}, table="images")
    assert state_after(fan_out(1, "a"), made, of_another) == {"1": {"post": 1, "title": "a"}}


CHAIN = Shape(
    scalars=frozenset({"post", "author", "title", "name"}),
    fan_outs=(FanOut("users", ("author",), ("name",)), FanOut("posts", ("post",), ("title", "author"))),
)


def test_a_fan_out_may_set_what_another_one_matches_on() -> None:
    def users(author: int, name: str) -> dict[str, Any]:
        where = {"field": "author", "eq": author}
        return document({"op": "query_op_set", "where": where, "ops": [set_("name", name)]}, table="users")

    def posts(post: int, author: int) -> dict[str, Any]:
        where = {"field": "post", "eq": post}
        return document({"op": "query_op_set", "where": where, "ops": [set_("author", author)]}, table="posts")

    assert [each.table for each in CHAIN.fan_outs] == ["posts", "users"]
    made = document(set_("post", 1), key=1, creates=True)
    ann = {"1": {"post": 1, "author": 7, "name": "ann"}}
    everything = [made, posts(1, 7), users(7, "ann"), users(8, "bob")]
    for turn in range(4):
        assert state_after(*everything[turn:], *everything[:turn], shape=CHAIN) == ann
    bob = {"1": {"post": 1, "author": 8, "name": "bob"}}
    assert state_after(*everything, posts(1, 8), shape=CHAIN) == bob
    assert state_after(*everything, posts(1, 9), shape=CHAIN) == {"1": {"post": 1, "author": 9}}


# ------------------------------------------------------------ what is not understood


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (set_("sizes", 1), "unknown field 'sizes'; did you mean 'size'?"),
        (set_("tags", "x"), "field 'tags' holds several values: use `add`, or `remove` with `value`"),
        ({**add("x"), "field": "size"}, "field 'size' holds a single value: use `set`, or `remove` without `value`"),
        ({"op": "upsert", "field": "size"}, "unknown op 'upsert'; did you mean 'set'?"),
        ({"op": "set", "field": "size"}, "`set` needs `value`"),
        (7, "an op is a JSON object, not an integer"),
    ],
)
def test_an_op_that_is_not_understood_is_quarantined_and_the_rest_applies(bad: Any, reason: str) -> None:
    folded = fold(State(), SHAPE, rows_of(document(set_("size", 1), bad, add("x"), key=1, creates=True)))
    assert [(each.row, each.op, each.reason) for each in folded.quarantined] == [(0, bad, reason)]
    assert folded.state.entities == {"1": Record({"size": 1}, {"tags": frozenset({'"x"'})})}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "a document is a JSON object, not null"),
        (document(DELETE, key=1) | {"v": 2}, "`v` is 2; this penstock reads version 1"),
        (document(DELETE), "`delete` needs the `key` of its entity"),
        (document({**CLEAR, "field": "tag"}), "unknown field 'tag'; did you mean 'tags'?"),
        (
            document({"op": "query_op_set", "where": {"field": "pots", "eq": 1}, "ops": [set_("title", 1)]}),
            "unknown field 'pots' in `where`; did you mean 'post'?",
        ),
        (
            document({"op": "query_op_set", "where": {"field": "post", "like": 1}, "ops": [set_("title", 1)]}),
            "`where`: a filter has `field` and `eq`, `field` and `in`, or `and` alone",
        ),
        (
            document(
                {"op": "query_op_set", "where": {"field": "size", "eq": 1}, "ops": [set_("title", 1)]}, table="posts"
            ),
            "fan-out posts is declared to match on post, and this filter compares size",
        ),
        (
            document(
                {"op": "query_op_set", "where": {"field": "post", "eq": 1}, "ops": [set_("size", 1)]}, table="posts"
            ),
            "fan-out posts is declared to set title, and this one has `set` of 'size'",
        ),
    ],
)
def test_a_document_that_is_not_understood_changes_nothing(bad: Any, reason: str) -> None:
    before = fold(State(), SHAPE, rows_of(document(set_("post", 1), set_("size", 1), add("x"), key=1, creates=True)))
    folded = fold(before.state, SHAPE, [Row(9, bad)])
    assert [(each.row, each.reason) for each in folded.quarantined] == [(9, reason)]
    assert folded.state == before.state


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"multi": frozenset({"a"})}, "field 'a' is declared both as scalar and as multi-value"),
        ({"fan_outs": (FanOut("t", ("aa",), ("b",)),)}, "fan-out t names 'aa', which is no scalar field"),
        ({"fan_outs": (FanOut("t", (), ("b",)),)}, "fan-out t needs at least one match field"),
        (
            {"fan_outs": (FanOut("t", ("a",), ("b",)), FanOut("u", ("a",), ("b",)))},
            "'b' is set by two fan-outs, t and u",
        ),
        ({"fan_outs": (FanOut("t", ("a",), ("b",)), FanOut("u", ("b",), ("a",)))}, "fan-outs set what they match on"),
        ({"fan_outs": (FanOut("t", ("a",), ("a",)),)}, "fan-outs set what they match on: t -> t"),
        ({"fan_outs": (FanOut("t", ("a",), ("b",)), FanOut("t", ("a",), ("c",)))}, "a table is declared as a fan-out"),
    ],
)
def test_a_contradictory_shape_is_refused(shape: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Shape(**{"scalars": frozenset("abc"), **shape})


# ------------------------------------------------------------ properties


@given(randoms, sizes)
def test_the_fold_leads_to_what_the_tables_hold(random: Random, changes: int) -> None:
    tables = tables_after(random, changes)
    state, quarantined, _ = in_slices(random, tables.rows)
    assert not quarantined
    assert state.entities == tables.truth
    assert state.early == {}, "an early op whose entity came is no longer early"


keys = st.sampled_from([1, 2, "1", [1, 2]])
values = st.sampled_from([None, 0, 1, "a"])
scalars = st.sampled_from([0, 1, "a"])
scalar_ops = st.one_of(
    st.builds(set_, st.sampled_from(["post", "size", "title", "odd"]), values),
    st.builds(lambda field: {"op": "remove", "field": field}, st.sampled_from(["post", "title"])),
)
entity_ops = st.one_of(scalar_ops, st.builds(add, scalars), st.builds(take, scalars), st.just({"op": "odd"}))
filters = st.recursive(
    st.builds(lambda field, eq: {"field": field, "eq": eq}, st.sampled_from(["post", "size", "tags"]), scalars),
    lambda inner: st.builds(lambda parts: {"and": parts}, st.lists(inner, min_size=1, max_size=2)),
    max_leaves=2,
)
own = st.builds(
    lambda key, ops, creates: document(*ops, key=key, creates=creates),
    keys,
    st.lists(entity_ops, min_size=1, max_size=3),
    st.booleans(),
)
deletes = st.builds(lambda key: document(DELETE, key=key), keys)
declared = st.builds(fan_out, st.integers(0, 1), values)
undeclared = st.builds(
    lambda where, op: document({"op": "query_op_set", "where": where, "ops": [op]}, table="other"), filters, scalar_ops
)
clears = st.builds(
    lambda field: document({**CLEAR, **field}), st.sampled_from([{}, {"field": "tags"}, {"field": "post"}])
)
odd = st.sampled_from([None, {}, document(DELETE, key=1) | {"v": 7}])
commuting = st.lists(st.one_of(own, own, own, deletes), max_size=12)


@given(st.lists(st.one_of(own, own, own, deletes, declared, declared, undeclared, clears, odd), max_size=25), randoms)
def test_slices_do_not_matter(documents: list[Any], random: Random) -> None:
    rows = rows_of(*documents)
    whole = fold(State(), SHAPE, rows)
    assert in_slices(random, rows) == (whole.state, list(whole.quarantined), whole.early)


@given(commuting, st.lists(declared, max_size=6), randoms)
def test_entities_and_declared_fan_outs_may_come_in_any_order(
    own: list[Any], fan_outs: list[Any], random: Random
) -> None:
    mixed = [*own]
    at = 0
    for each in fan_outs:
        at = random.randint(at, len(mixed))
        mixed.insert(at, each)
        at += 1
    first = fold(State(), SHAPE, rows_of(*fan_outs, *own)).state
    assert fold(State(), SHAPE, rows_of(*mixed)).state.entities == first.entities
    assert fold(State(), SHAPE, rows_of(*own, *fan_outs)).state.entities == first.entities


# ------------------------------------------------------------ mistakes


def _keeps_fields_of_deleted(work: _Work, key: str) -> None:
    if key in work.drafts:
        work.drafts[key].exists = False


def _drops_early(original: Callable[[_Work, Row], None]) -> Callable[[_Work, Row], None]:
    def apply(work: _Work, row: Row) -> None:
        draft = work.drafts.get(str(row.document["key"]))
        if row.document.get("creates") or (draft is not None and draft.exists):
            original(work, row)

    return apply


def _without_its_reset(original: Callable[..., None]) -> Callable[..., None]:
    def settle(work: _Work, draft: _Draft, written: set[str], *, born: bool = False) -> None:
        original(work, draft, written | {"title"}, born=born)

    return settle


def _cancelled(rows: list[Row]) -> list[Row]:
    """A deduplication that lets an add and the next remove of a value cancel."""
    kept: list[Row] = []
    for row in rows:
        ops, key = row.document["ops"], row.document.get("key")
        added = [{**ops[0], "op": "add"}] if ops and ops[0]["op"] == "remove" and "value" in ops[0] else None
        twin = next(
            (each for each in kept if added and (each.document.get("key"), each.document["ops"]) == (key, added)), None
        )
        if twin is not None:
            kept.remove(twin)
        else:
            kept.append(row)
    return kept


def _fan_outs_and_clears_last(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: "key" not in row.document)


def _unchanged(rows: list[Row]) -> list[Row]:
    return rows


_FOLD = sys.modules[fold.__module__]

#: a function of the fold with what stands in for it, and a change of the rows before they are folded
MISTAKES: dict[str, tuple[str, Any, Callable[[list[Row]], list[Row]]]] = {
    "none": ("_absorb", _FOLD._absorb, _unchanged),
    "a delete does not absorb": ("_absorb", _keeps_fields_of_deleted, _unchanged),
    "early ops are dropped": ("_apply_to_entity", _drops_early(_FOLD._apply_to_entity), _unchanged),
    "fan-outs are forgotten for later entities": ("_last_values", lambda *_: {}, _unchanged),
    "a moved entity keeps the values of its old match": ("_settle", _without_its_reset(_FOLD._settle), _unchanged),
    "a clear is no barrier": ("_clear", lambda *_: None, _unchanged),
    "fan-outs and clears come last": ("_absorb", _FOLD._absorb, _fan_outs_and_clears_last),
    "an add and a remove cancel": ("_absorb", _FOLD._absorb, _cancelled),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is found by the property that the fold leads to what the tables hold."""
    function, stand_in, rearranged = MISTAKES[name]
    monkeypatch.setattr(_FOLD, function, stand_in)
    random = Random(1)
    wrong = 0
    for _ in range(150):
        tables = tables_after(random, 25)
        wrong += fold(State(), SHAPE, rearranged(tables.rows)).state.entities != tables.truth
    assert (wrong > 0) is (name != "none"), f"{wrong} of 150"
