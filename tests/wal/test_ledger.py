"""What a producer sends again is known, what contradicts is refused, and nothing else is taken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.documents import canonical
from penstock.wal.ledger import (
    Bare,
    Chunk,
    Known,
    Ledger,
    Place,
    Refuse,
    Take,
    forget_keys,
    from_document,
    judge_bare,
    judge_chunk,
    to_document,
    with_bare,
    with_chunk,
    withdraw,
)


def chunk(number: int, k: int, of: int = 2, digest: str = "", producer: str = "shop", predecessor: str = "") -> Chunk:
    before = predecessor or (f"s{number - 1}" if number > 1 else "")
    return Chunk(producer, f"s{number}", number, before, k, of, digest or f"d{number}.{k}", 10)


def fold(*chunks: Chunk) -> Ledger:
    ledger = Ledger()
    for at, each in enumerate(chunks):
        assert judge_chunk(ledger, each) == Take(), each
        ledger = with_chunk(ledger, each, Place(1, 100 * at, 100), at)
    return ledger


def test_slices_and_chunks_are_taken_in_order() -> None:
    ledger = fold(chunk(1, 1), chunk(1, 2), chunk(2, 1), chunk(2, 2))
    held = ledger.producers["shop"]
    assert (held.open, held.last and held.last.slice) == (None, "s2")


@pytest.mark.parametrize("sent", [chunk(1, 1), chunk(1, 2), chunk(2, 1)])
def test_what_is_sent_again_is_known(sent: Chunk) -> None:
    assert judge_chunk(fold(chunk(1, 1), chunk(1, 2), chunk(2, 1)), sent) == Known(10)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (chunk(1, 1, digest="other"), "is held with other contents"),
        (chunk(1, 1, of=3), "was announced as number 1 with 2 chunks"),
        (chunk(2, 1, digest="other"), "is held with other contents"),
        (chunk(2, 3, of=3), "was announced"),
        (chunk(3, 1), r"slice 2 \(s2\) is open: 1 of 2 chunks are held"),
    ],
)
def test_what_contradicts_is_refused(sent: Chunk, reason: str) -> None:
    verdict = judge_chunk(fold(chunk(1, 1), chunk(1, 2), chunk(2, 1)), sent)
    assert isinstance(verdict, Refuse)
    import re

    assert re.search(reason, verdict.reason)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (chunk(3, 1), "its predecessor is s2, and the last slice held is s1"),
        (chunk(1, 1, predecessor="x"), ""),
        (chunk(2, 2), "chunk 2 comes before chunk 1"),
        (chunk(5, 1, predecessor="lost"), "its predecessor is lost, and the last slice held is s1"),
    ],
)
def test_a_slice_follows_the_one_that_is_held(sent: Chunk, reason: str) -> None:
    verdict = judge_chunk(fold(chunk(1, 1), chunk(1, 2)), sent)
    assert isinstance(verdict, Refuse)
    assert reason in verdict.reason


def test_an_open_slice_is_withdrawn_and_another_taken() -> None:
    ledger = withdraw(fold(chunk(1, 1), chunk(1, 2), chunk(2, 1)), "shop", "s2", 9)
    assert isinstance(ledger, Ledger)
    again = Chunk("shop", "s2b", 2, "s1", 1, 1, "d", 3)
    assert judge_chunk(ledger, again) == Take()
    assert withdraw(ledger, "shop", "s2", 9) is ledger


def test_a_whole_slice_is_not_withdrawn() -> None:
    assert isinstance(withdraw(fold(chunk(1, 1), chunk(1, 2)), "shop", "s1", 9), Refuse)


def test_a_bare_key_counts_for_its_owner_and_its_time() -> None:
    ledger = with_bare(Ledger(), Bare("token", "k", "d", 4), 100)
    assert judge_bare(ledger, Bare("token", "k", "d", 4)) == Known(4)
    assert isinstance(judge_bare(ledger, Bare("token", "k", "other", 4)), Refuse)
    assert judge_bare(ledger, Bare("another", "k", "other", 4)) == Take()
    assert judge_bare(forget_keys(ledger, 101), Bare("token", "k", "d", 4)) == Take()


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(1, 3), st.booleans()), max_size=40))
def test_each_chunk_is_taken_once_and_in_order(sent: list[tuple[str, int, int, bool]]) -> None:
    ledger, taken = Ledger(), []
    for at, (producer, number, k, alters) in enumerate(sent):
        each = chunk(number, k, of=3, producer=producer, digest="x" if alters else "")
        if judge_chunk(ledger, each) == Take():
            ledger = with_chunk(ledger, each, Place(1, at, 1), at)
            taken.append((producer, number, k))
        assert from_document(json.loads(canonical(to_document(ledger)))) == ledger
    for producer in "ab":
        own = [(number, k) for name, number, k in taken if name == producer]
        assert own == [(1 + at // 3, 1 + at % 3) for at in range(len(own))]
