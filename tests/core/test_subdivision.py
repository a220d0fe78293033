"""Subdivision: whatever the API holds and in whatever order answers come, every record is delivered exactly once."""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.core.list_api import ListApi, Reader, Record, whole
from tests.core.strategies import given

from penstock.core.documents import canonical
from penstock.core.subdivision import (
    CursorLost,
    CursorVanished,
    Order,
    PageError,
    PageFetched,
    Position,
    Range,
    Span,
    Subdivision,
    WorkerIdle,
    fold,
    judge_page,
    merge_ranges,
    reconcile,
    start,
)
from penstock.core.subdivision.fold import SEEN_LIMIT

LAST = 4_000
#: times alone, crowded into a few, in bursts, and at both ends
times = st.one_of(
    st.lists(st.integers(0, LAST - 1), max_size=150),
    st.lists(st.sampled_from([0, 1, 2, 1000, LAST - 1]), max_size=150),
    st.lists(st.tuples(st.sampled_from([0, 70, 2900]), st.integers(0, 40)).map(sum), max_size=300),
)
orders = st.sampled_from(Order)
page_sizes = st.integers(1, 12)
crowds = st.integers(1, 9)
randoms = st.integers(0, 2**32).map(Random)
bounds = st.none() | st.integers(0, LAST)


def ordered(records: list[Record]) -> list[Record]:
    return sorted(records)


@given(times, orders, page_sizes, crowds, st.booleans(), randoms, bounds, bounds)
def test_every_record_is_delivered_once(
    times: list[int],
    order: Order,
    page_size: int,
    workers: int,
    tokens: bool,
    random: Random,
    gte: int | None,
    lt: int | None,
) -> None:
    if gte is not None and lt is not None and gte >= lt:
        gte, lt = lt, gte + 1
    api = ListApi(times, order, page_size, tokens)
    reader = Reader(api, workers, random)
    state = reader.read(whole(gte, lt))
    low, high = Span(gte, lt).ends
    assert ordered(reader.delivered) == ordered([each for each in api.records if low <= each[0] < high])
    assert state.position() == Position((), (Span(gte, lt),))


@given(times, orders, page_sizes, crowds, randoms, st.floats(0, 0.4), st.floats(0, 0.4))
def test_crashes_and_failures_lose_and_double_nothing(
    times: list[int], order: Order, page_size: int, workers: int, random: Random, crash: float, abandon: float
) -> None:
    api = ListApi(times, order, page_size)
    reader = Reader(api, workers, random, crash=crash, abandon=abandon)
    reader.read(whole(0, LAST))
    assert ordered(reader.delivered) == ordered(api.records)


@given(times, orders, page_sizes, crowds, st.booleans(), randoms, st.floats(0, 0.5))
def test_a_cursor_that_vanishes_loses_and_doubles_nothing(
    times: list[int], order: Order, page_size: int, workers: int, tokens: bool, random: Random, delete: float
) -> None:
    """Only records that were delivered are deleted: a cursor is one of them."""
    api = ListApi(times, order, page_size, tokens)
    reader = Reader(api, workers, random, crash=0.1, delete=delete)
    reader.read(whole(0, LAST))
    assert ordered(reader.delivered) == ordered(api.records)


@given(times, orders, page_sizes, st.integers(2, 9), randoms)
def test_a_crowded_time_is_read_on_from_an_earlier_record(
    times: list[int], order: Order, page_size: int, workers: int, random: Random
) -> None:
    """With few ids kept. If all of them vanish, the range says so instead of guessing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[fold.__module__], "SEEN_LIMIT", max(3, page_size + 1))
        api = ListApi([time // 500 * 500 for time in times], order, page_size)
        reader = Reader(api, workers, random, crash=0.1, delete=0.1)
        try:
            reader.read(whole(0, LAST))
        except CursorLost:
            return
        assert ordered(reader.delivered) == ordered(api.records)


@given(
    times | st.lists(st.sampled_from([0, 1, 3, 500, 501]), max_size=20), orders, page_sizes, st.integers(1, 40), randoms
)
def test_requests_stay_within_the_bound(
    times: list[int], order: Order, page_size: int, workers: int, random: Random
) -> None:
    """The budget of the rule, which is below 1.1·M + 8·workers everywhere, and below 1.12·M where M >= 50·workers."""
    api = ListApi(times, order, page_size)
    Reader(api, workers, random).read(whole(0, LAST))
    pages = len(times) / page_size
    assert len(api.requests) <= pages + max(1, 5 * workers + 0.02 * pages, 0.1 * pages)


@given(times, orders, page_sizes, crowds, randoms, st.floats(0, 0.2))
def test_requests_stay_within_the_bound_of_every_restart(
    times: list[int], order: Order, page_size: int, workers: int, random: Random, crash: float
) -> None:
    """A restart gives a new budget, and its requests under way are sent again."""
    api = ListApi(times, order, page_size)
    reader = Reader(api, workers, random, crash=crash)
    reader.read(whole(0, LAST))
    pages = len(times) / page_size
    assert len(api.requests) <= 1.1 * pages + 8 * workers * (1 + reader.restarts)


@given(times, orders, page_sizes, crowds, randoms, st.integers(0, 60))
def test_a_replay_gives_the_same_state(
    times: list[int], order: Order, page_size: int, workers: int, random: Random, steps: int
) -> None:
    reader = Reader(ListApi(times, order, page_size), workers, random, abandon=0.1)
    state = reader.read(whole(0, LAST), steps)
    again = start(whole(0, LAST), order, page_size)
    for event in reader.events:
        again = fold(again, event)
    assert again == state
    assert canonical(again.position().to_document()) == canonical(state.position().to_document())


@given(times, orders, page_sizes, st.integers(2, 9), randoms, st.integers(0, 40))
def test_pages_of_different_ranges_may_come_in_any_order(
    times: list[int], order: Order, page_size: int, workers: int, random: Random, steps: int
) -> None:
    """The same answers in two orders: the same state, and the same records delivered."""
    api = ListApi(times, order, page_size)
    reader = Reader(api, workers, random)
    state = reader.read(whole(0, LAST), steps)
    for worker in range(workers):
        state = fold(state, WorkerIdle(worker, workers - worker))
    requests = [request for worker in range(workers) if (request := state.request_of(worker)) is not None]
    answers = {request.key: api.page(request) for request in requests}

    def folded(keys: list[int]) -> tuple[Subdivision, list[Record]]:
        after, delivered = state, []
        for key in keys:
            records, has_more, cursor = answers[key]
            verdict = judge_page(after, key, records, has_more, cursor)
            delivered += [records[place] for place in verdict.keep]
            after = fold(after, verdict.event)
        return after, ordered(delivered)

    keys = [request.key for request in requests]
    assert folded(keys) == folded(random.sample(keys, len(keys)))


@given(times, orders, page_sizes, crowds, randoms, st.lists(st.tuples(bounds, bounds), min_size=1, max_size=5))
def test_a_changed_range_reads_the_difference(
    times: list[int],
    order: Order,
    page_size: int,
    workers: int,
    random: Random,
    windows: list[tuple[int | None, int | None]],
) -> None:
    """Windows change while they are half read; the last one is read to its end."""
    api = ListApi(times, order, page_size)
    reader = Reader(api, workers, random)
    position = Position(())
    windows = [window for window in windows if Span(*window).ends[0] < Span(*window).ends[1]]
    expected: set[Record] = set()
    for number, window in enumerate(windows):
        position = reconcile(position, Span(*window), order)
        position.check()
        low, high = Span(*window).ends
        assert all(low <= each.span.ends[0] and each.span.ends[1] <= high for each in position.remaining)
        position = reader.read(position, 10**6 if number == len(windows) - 1 else random.randrange(8)).position()
        expected = {record for record in api.records if low <= record[0] < high}
        assert reconcile(position, Span(*window), order) == position
    assert len(reader.delivered) == len(set(reader.delivered))
    assert expected <= set(reader.delivered)


@pytest.mark.parametrize("order", Order)
def test_a_time_read_in_part_survives_a_narrower_range(order: Order) -> None:
    """Two of its five records are delivered; then it is outside for two runs, and inside again."""
    api = ListApi([5, *[9] * 5, 12], order, 2)
    reader = Reader(api, 1, Random(1))
    span = Span(0, 10) if order is Order.NEWEST_FIRST else Span(9, 13)
    position = reader.read(reconcile(Position(()), span, order), steps=1).position()
    assert [record[0] for record in reader.delivered] == [9, 9]
    for narrow in (Span(0, 9), Span(10, 13)):
        position = reader.read(reconcile(position, narrow, order)).position()
        assert [(each.gte, each.lt, len(each.seen)) for each in position.partial] == [(9, 10, 2)]
    position = reader.read(reconcile(position, Span(0, 13), order)).position()
    assert position == Position((), (Span(0, 13),))
    assert ordered(reader.delivered) == ordered(api.records)


def test_a_split_takes_no_more_parts_than_the_budget_has() -> None:
    """Eleven workers have 55 requests: 52 brought nothing, one range is open, two are left."""
    state = fold(start(whole(0, 10_000), Order.NEWEST_FIRST, 10), WorkerIdle(0))
    state = fold(state, PageFetched(10_000, 9_999, 9_990, 10, True, "a", ("a",)))
    for parts, wasted in ((3, 52), (1, 54), (1, 60)):
        before = replace(state, short=wasted * 10, pages=state.pages + wasted)
        assert len(fold(before, WorkerIdle(1, idle=10)).tasks) == parts


@given(st.lists(st.tuples(bounds, bounds)))
def test_merged_ranges_hold_the_same_times(pairs: list[tuple[int | None, int | None]]) -> None:
    spans = [Span(*pair) for pair in pairs]
    merged = merge_ranges(spans)
    assert merge_ranges(reversed(merged)) == merged
    for left, right in zip(merged, merged[1:], strict=False):
        assert left.ends[1] < right.ends[0]
    for time in {-1, LAST + 1, *(end for pair in pairs for end in pair if end is not None)}:
        for near in (time - 1, time):
            inside = [low <= near < high for low, high in (span.ends for span in spans)]
            assert sum(low <= near < high for low, high in (span.ends for span in merged)) == any(inside)


def test_nothing_new_costs_one_request() -> None:
    api = ListApi([], Order.NEWEST_FIRST, 100)
    Reader(api, 50, Random(1)).read(whole(0, LAST))
    assert len(api.requests) == 1


@pytest.mark.parametrize("order", Order)
def test_one_time_is_paged_by_cursor(order: Order) -> None:
    """It cannot be split, however many workers are idle."""
    api = ListApi([7] * 95, order, 10)
    reader = Reader(api, 9, Random(1))
    reader.read(whole(7, 8))
    assert (len(reader.delivered), len(api.requests)) == (95, 10)


@pytest.mark.parametrize(
    ("order", "span", "page"),
    [
        (Order.NEWEST_FIRST, (None, 1000), (999, 900)),
        (Order.NEWEST_FIRST, (None, None), (999, 900)),
        (Order.ASCENDING, (1000, None), (1000, 1099)),
    ],
)
def test_a_range_without_an_end_is_cut_as_far_ahead_as_it_was_read(
    order: Order, span: tuple[int | None, int | None], page: tuple[int, int]
) -> None:
    """The part that is cut off has no end either."""
    state = fold(start(whole(*span), order, 10), WorkerIdle(1))
    key = next(iter(state.tasks))
    state = fold(state, PageFetched(key, *page, 10, True, "a", ("a",)))
    for _ in range(4):
        page = (page[1], page[1] - 100) if order is Order.NEWEST_FIRST else (page[1], page[1] + 100)
        state = fold(state, PageFetched(key, *page, 10, True, "a", ("a",)))
    state = fold(state, WorkerIdle(2))
    first, second = state.request_of(1), state.request_of(2)
    assert first is not None
    assert second is not None
    if order is Order.NEWEST_FIRST:
        assert (second.gte, second.lt) == (None, first.gte)
        assert 0 <= 500 - (first.gte or 0) <= 500
    else:
        assert (second.lt, second.gte) == (None, first.lt)
        assert 0 <= (first.lt or 0) - 1500 <= 500


def test_a_time_that_cannot_be_cut_does_not_keep_workers_idle() -> None:
    """However dense it is: another range is cut."""
    state = start(Position((Range(0, 1), Range(10, 1010))), Order.NEWEST_FIRST, 10)
    for worker in (1, 2):
        state = fold(state, WorkerIdle(worker, 3 - worker))
    state = fold(state, PageFetched(1, 0, 0, 10, True, "a", ("a",)))
    state = fold(state, PageFetched(1010, 1009, 990, 10, True, "b", ("b",)))
    for _ in range(200):
        state = fold(state, PageFetched(1, 0, 0, 10, True, "a", ("a",)))
    request = fold(state, WorkerIdle(3)).request_of(3)
    assert request is not None
    assert request.gte == 10


def test_a_page_that_reaches_past_a_cut_ends_its_range() -> None:
    """Its records below the cut are dropped: they belong to the other part."""
    state = start(whole(0, 1000), Order.NEWEST_FIRST, 2)
    state = fold(fold(state, WorkerIdle(1)), PageFetched(1000, 999, 998, 2, True, "b", ("b",)))
    asked = state.request_of(1)
    state = fold(state, WorkerIdle(2))
    other = state.request_of(2)
    assert asked is not None
    assert other is not None
    assert other.lt is not None
    assert (asked.gte, asked.lt, other.gte) == (0, 999, 0)
    records = [(other.lt, "c"), (other.lt - 1, "d")]
    verdict = judge_page(state, asked.key, records, True, "d")
    assert verdict.keep == (0,)
    state = fold(state, verdict.event)
    assert state.request_of(1) is None
    assert state.position() == Position((Range(0, other.lt),), (Span(other.lt, 1000),))


@pytest.mark.parametrize(
    ("records", "has_more", "cursor", "says"),
    [
        ([(5, "a"), (6, "b")], False, None, "record 2 of the page is out of order: 6"),
        ([(5, "a")], True, None, "no cursor"),
        ([], True, "c", "the same cursor"),
    ],
)
def test_an_impossible_page_is_refused(records: list[Record], has_more: bool, cursor: str | None, says: str) -> None:
    state = start(Position((Range(0, 10, "c"),)), Order.NEWEST_FIRST, 2)
    with pytest.raises(PageError, match=says):
        judge_page(state, 10, records, has_more, cursor)


def test_a_filter_that_the_api_ignores_is_counted() -> None:
    state = start(whole(0, 10), Order.NEWEST_FIRST, 4)
    verdict = judge_page(state, 10, [(12, "a"), (10, "b"), (9, "c"), (-1, "d")], False, None)
    assert (verdict.outside, verdict.keep) == (2, (2,))


def test_an_api_that_gives_smaller_pages_is_read_in_parallel() -> None:
    """It was asked for a hundred and gives ten: its pages are full all the same."""
    api = ListApi(range(0, LAST, 4), Order.NEWEST_FIRST, 10)
    reader = Reader(api, 5, Random(1))
    state = start(whole(0, LAST), api.order, 100)
    state = fold(state, WorkerIdle(0, 5))
    request = state.request_of(0)
    assert request is not None
    state = fold(state, judge_page(state, request.key, *api.page(request)).event)
    state = fold(state, WorkerIdle(1, 4))
    assert len(state.tasks) == 5
    reader.read(whole(0, LAST))
    assert ordered(reader.delivered) == ordered(api.records)


def test_too_many_ids_at_one_time_are_not_kept() -> None:
    state = start(whole(0, 10), Order.NEWEST_FIRST, 600)
    for page in range(3):
        ids = tuple(f"{page}-{number}" for number in range(600))
        state = fold(state, PageFetched(10, 9, 9, 600, True, ids[-1], ids))
    (range_,) = state.position().remaining
    assert (len(range_.seen), range_.crowded) == (SEEN_LIMIT, True)
    (again,) = fold(state, CursorVanished(10, cursor_is_id=True)).position().remaining
    assert (again.cursor, again.seen) == (range_.seen[0], range_.seen)
    with pytest.raises(CursorLost, match="the cursor of a range is gone"):
        fold(state, CursorVanished(10))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"remaining": [{"gte": 0, "lt": 1}], "covered": []},
        {"remaining": [{"gte": 0, "lt": 1.5, "cursor": None}], "covered": []},
        {"remaining": [{"gte": 0, "lt": 1, "cursor": 7}], "covered": []},
        {"remaining": [{"gte": 0, "lt": 1, "cursor": None, "last": 0, "seen": [7]}], "covered": []},
        {"remaining": [{"gte": 3, "lt": 3, "cursor": None}], "covered": []},
        {"remaining": [{"gte": 0, "lt": 3, "cursor": None}], "covered": [{"gte": 2, "lt": 5}]},
        {"remaining": [{"gte": 0, "lt": 3, "cursor": None}, {"gte": 2, "lt": None, "cursor": None}], "covered": []},
    ],
)
def test_a_document_that_is_no_position_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"position|empty|overlap"):
        Position.from_document(document)
