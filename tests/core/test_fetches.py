"""What fetching has cost, and the parts of a range that are done."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import strategies as st
from tests.core.strategies import given

from penstock.core.fetches import FetchCounts, shares_of
from penstock.core.messages import WorkProgress, decode, encode
from penstock.core.subdivision import Span, merge_ranges

#: pairs of times around the range from 100 to 200
SPANS = st.lists(st.tuples(st.integers(50, 250), st.integers(50, 250)), max_size=6)


@given(SPANS)
def test_shares_are_the_parts_of_the_range(pairs: list[tuple[int, int]]) -> None:
    spans = [span.ends for span in merge_ranges(Span(*sorted(pair)) for pair in pairs)]
    parts = shares_of(spans, 100, 200)
    inside = {t for begin, end in spans for t in range(max(begin, 100), min(end, 200))}
    assert sum(upto - after for after, upto in parts) == pytest.approx(len(inside) / 100)
    for time in range(100, 200):
        middle = (time + 0.5 - 100) / 100
        assert any(after < middle < upto for after, upto in parts) is (time in inside)
    assert all(one[1] < other[0] for one, other in zip(parts, parts[1:], strict=False)), "in order, and apart"


def test_counts_without_a_page_have_no_ratio() -> None:
    counts = FetchCounts(requests=3)
    assert (counts.requests_per_page, counts.records_per_second, counts.share_done) == (None, None, None)
    counts = FetchCounts(100, 2, 3, seconds=4.0, begin="a", end="b", done=((0.0, 0.25), (0.5, 0.6)))
    assert (counts.requests_per_page, counts.records_per_second) == (1.5, 25.0)
    assert counts.share_done == pytest.approx(0.35)


def test_counts_are_read_as_they_were_written() -> None:
    counts = FetchCounts(100, 2, 3, 1, 0.5, 4.0, "a", "b", ((0.0, 0.25), (0.5, 0.6)))
    for fetched in (counts, None):
        work = WorkProgress(ts=datetime(2026, 1, 1, tzinfo=UTC), stream="s", doing="fetching", fetched=fetched)
        assert decode(encode(work)) == work
