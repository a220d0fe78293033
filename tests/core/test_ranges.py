"""Ranges: what is cut tiles the whole; a gap or an overlap is seen."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume
from hypothesis import strategies as st
from tests.core.strategies import given

from penstock.core.ranges import Key, Range, cut, tiles

#: ordered bounds, as a source would give them; numbers as text, compared by the source alone
ordered = st.lists(st.integers(1, 60), max_size=12).map(sorted)


def key(number: int) -> Key:
    return (str(number),)


def inside(number: int, range_: Range) -> bool:
    """Only a test knows that these keys are numbers."""
    after = int(range_.after[0]) if range_.after else -1
    upto = int(range_.upto[0]) if range_.upto else 10**6
    return after < number <= upto


wholes = st.tuples(st.none() | st.just(0), st.none() | st.just(61)).map(
    lambda ends: Range(*(key(end) if end is not None else None for end in ends))
)


@given(wholes, ordered)
def test_the_pieces_tile_the_whole(whole: Range, bounds: list[int]) -> None:
    pieces = cut(whole, map(key, bounds))
    assert tiles(pieces, whole)
    for number in range(1, 62):
        assert sum(inside(number, piece) for piece in pieces) == inside(number, whole)


@given(wholes, ordered)
def test_no_piece_is_empty(whole: Range, bounds: list[int]) -> None:
    pieces = cut(whole, map(key, bounds))
    assert len(pieces) == len(set(bounds)) + 1
    assert all(piece.after != piece.upto or piece.after is None for piece in pieces)


def test_bounds_at_the_ends_cut_nothing() -> None:
    whole = Range(key(1), key(9))
    assert cut(whole, [key(1), key(9)]) == [whole]
    assert cut(whole, []) == [whole]


@given(wholes, ordered, st.data())
def test_a_missing_piece_is_seen(whole: Range, bounds: list[int], data: st.DataObject) -> None:
    pieces = cut(whole, map(key, bounds))
    del pieces[data.draw(st.integers(0, len(pieces) - 1))]
    assert not tiles(pieces, whole)


@given(wholes, ordered, st.data())
def test_a_piece_given_twice_is_seen(whole: Range, bounds: list[int], data: st.DataObject) -> None:
    pieces = cut(whole, map(key, bounds))
    index = data.draw(st.integers(0, len(pieces) - 1))
    assert not tiles([*pieces[: index + 1], *pieces[index:]], whole)


@given(wholes, ordered, st.integers(1, 60), st.data())
def test_a_joint_that_does_not_fit_is_seen(whole: Range, bounds: list[int], other: int, data: st.DataObject) -> None:
    pieces = cut(whole, map(key, bounds))
    assume(len(pieces) > 1 and other not in bounds)
    index = data.draw(st.integers(0, len(pieces) - 2))
    # Whether that leaves a gap or an overlap depends on an order that only the source knows.
    pieces[index] = Range(pieces[index].after, key(other))
    assert not tiles(pieces, whole)


@given(wholes, ordered)
def test_pieces_in_another_order_are_seen(whole: Range, bounds: list[int]) -> None:
    pieces = cut(whole, map(key, bounds))
    assume(len(pieces) > 1)
    assert not tiles(pieces[::-1], whole)


def test_two_open_ends_do_not_join() -> None:
    assert not tiles([Range(None, None), Range(None, None)], Range(None, None))


def test_ends_other_than_the_wholes_are_seen() -> None:
    whole = Range(key(1), key(9))
    for piece in (Range(None, key(9)), Range(key(1), None), Range(key(2), key(9)), Range(key(1), key(8))):
        assert not tiles([piece], whole)
    assert not tiles([], whole)


@given(ordered)
def test_pieces_chain(bounds: list[int]) -> None:
    for before, after in pairwise(cut(Range(None, None), map(key, bounds))):
        assert before.upto == after.after
