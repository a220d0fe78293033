"""Narrowing two sets of rows down to what differs, for any two sets."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.comparing import WHOLE, Side, Summary, find_differences, narrow
from penstock.core.ranges import Key, Range, tiles

Rows = dict[Key, str]

ROWS = st.dictionaries(st.integers(0, 999).map(lambda n: (f"{n:03}",)), st.sampled_from("abc"), max_size=60)


def within(rows: Rows, range_: Range) -> Rows:
    low, high = range_.after, range_.upto
    return {key: rows[key] for key in sorted(rows) if (low is None or key > low) and (high is None or key <= high)}


def side(rows: Rows, asked: list[Range]) -> Side:
    def summarize(range_: Range) -> Summary:
        asked.append(range_)
        found = within(rows, range_)
        return Summary(len(found), repr(sorted(found.items())))

    def find_cuts(range_: Range, pieces: int) -> Sequence[Key]:
        keys = list(within(rows, range_))
        step = max(1, -(-len(keys) // pieces))
        return keys[step - 1 :: step]

    return Side(summarize, find_cuts)


@given(ROWS, ROWS, st.integers(1, 5), st.integers(2, 6))
def test_what_is_found_is_exactly_what_differs(source: Rows, sink: Rows, leaf_rows: int, fanout: int) -> None:
    ranges = list(narrow(side(source, []), side(sink, []), leaf_rows=leaf_rows, fanout=fanout))
    assert tiles([each.range for each in ranges], WHOLE)
    differing = []
    for each in ranges:
        left, right = within(source, each.range), within(sink, each.range)
        assert each.rows == len(left)
        assert each.equal == (left == right)
        if not each.equal:
            assert max(len(left), len(right)) <= leaf_rows
            differing += find_differences(left, right)
    assert sorted(differing) == sorted(key for key in {**source, **sink} if source.get(key) != sink.get(key))


def test_equal_sides_are_asked_once() -> None:
    asked: list[Range] = []
    rows: Rows = {(f"{n:03}",): "a" for n in range(500)}
    assert [each.equal for each in narrow(side(rows, asked), side(rows, []), leaf_rows=10)] == [True]
    assert asked == [WHOLE]


def test_one_difference_costs_one_path_down() -> None:
    asked: list[Range] = []
    rows: Rows = {(f"{n:04}",): "a" for n in range(4096)}
    changed = rows | {("0777",): "b"}
    leaves = [each for each in narrow(side(rows, asked), side(changed, []), leaf_rows=16) if not each.equal]
    (leaf,) = leaves
    assert leaf.rows == 16
    # The whole, sixteen pieces of it, and sixteen of the piece that differs.
    assert len(asked) <= 1 + 17 + 17


def test_a_range_that_cannot_be_cut_ends_the_search() -> None:
    rows: Rows = {(f"{n:03}",): "a" for n in range(50)}
    uncut = Side(side(rows, []).summarize, lambda _range, _pieces: ())
    (found,) = narrow(uncut, side({}, []), leaf_rows=10)
    assert (found.range, found.equal, found.rows) == (WHOLE, False, 50)


def test_sides_that_order_keys_differently_end_the_search() -> None:
    """Everything is a difference then, and is looked at key by key; the search must not go on for ever."""
    rows: Rows = {(f"{n:03}",): "a" for n in range(50)}
    right = side(rows, [])

    def reverse(key: Key | None) -> Key | None:
        return key and (f"{999 - int(key[0]):03}",)

    def summarize(range_: Range) -> Summary:
        return Summary(right.summarize(Range(reverse(range_.upto), reverse(range_.after))).rows, "other")

    def find_cuts(range_: Range, _pieces: int) -> Sequence[Key]:
        return [("020",), ("900",), ("010",)]

    leaves = list(narrow(Side(summarize, find_cuts), right, leaf_rows=5))
    assert not all(each.equal for each in leaves)
