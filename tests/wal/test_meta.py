"""What senders say of their origin is kept with each batch, and the last of it by source survives deleted segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.wal.batches import Batch, decode_head
from penstock.wal.ledger import Bare, Chunk, Take
from penstock.wal.log import LogOptions
from penstock.wal.meta import MOST_SOURCES, Meta, Sources, SourceState, read_meta, with_batch
from penstock.wal.opening import open_log
from penstock.wal.segments import list_numbers, read_copy, read_segment

TIME = 1_700_000_000_000_000


def test_meta_comes_back_from_a_batch_and_from_the_ledger(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=100)
    log = open_log(str(tmp_path), options, lambda: TIME)
    first = read_meta({"source": "shop", "cursor": "2026-01-01T00:00:00Z", "max_id": 900, "lag_rows": 7})
    second = read_meta({"source": "shop", "cursor": 12, "lag_seconds": 0.25})
    batches = [
        Batch(Bare("token", "a", "d", 3), 3, bytes(200), meta=first),
        Batch(Chunk("shop-lake", "s1", 1, "", 1, 1, "d", 2), 2, bytes(200), kind="ops", meta=second),
        Batch(Bare("token", "b", "d", 1), 1, bytes(200)),
        Batch(Chunk("other", "s1", 1, "", 1, 2, "d", 4), 4, bytes(200), kind="ops"),
    ]
    for batch in batches:
        assert log.append([batch]) == [Take()]
    log.close()
    numbers = list_numbers(str(tmp_path))
    heads = [decode_head(record.payload) for n in numbers for record in read_segment(str(tmp_path), n).records[1:]]
    assert [each.meta for each in heads] == [first, second, None, None]
    ledger = read_copy(str(tmp_path), numbers[-1])
    assert ledger is not None
    assert dict(ledger.sources) == {
        "shop": SourceState(Meta("shop", 12, 900, 7, 250), 2, 5, 2, TIME),
        "token": SourceState(Meta(), 1, 1, 0, TIME),
    }


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"sauce": "shop"}, "sauce is not one of source, cursor, max_id, lag_rows, lag_seconds"),
        ({"source": ""}, "source must be a string of 1 to 1000 characters"),
        ({"source": 5}, "source must be a string"),
        ({"cursor": 1.5}, "cursor must be a whole number or a string"),
        ({"cursor": "x" * 1001}, "cursor must be"),
        ({"max_id": True}, "max_id must be"),
        ({"max_id": 2**63}, "max_id must be"),
        ({"lag_rows": -1}, "lag_rows must be a whole number from 0 on"),
        ({"lag_rows": "7"}, "lag_rows must be"),
        ({"lag_seconds": -0.5}, "lag_seconds must be a number from 0 on"),
        ({"lag_seconds": float("inf")}, "lag_seconds must be"),
        ({"lag_seconds": float("nan")}, "lag_seconds must be"),
    ],
)
def test_meta_that_does_not_fit_is_refused(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_meta(document)


def test_sources_without_end_do_not_fill_the_ledger() -> None:
    sources = Sources()
    for number in range(MOST_SOURCES + 5):
        sources = with_batch(sources, f"s{number}", Meta(f"s{number}"), 1, "rows", number)
    assert len(sources) == MOST_SOURCES
    assert "s4" not in sources
    assert "s5" in sources


def test_of_sources_heard_of_at_one_time_the_same_one_is_always_forgotten() -> None:
    names = [f"s{number}" for number in range(MOST_SOURCES)]
    for order in (names, names[::-1]):
        sources = Sources()
        for name in order:
            sources = with_batch(sources, name, None, 1, "rows", 1)
        sources = with_batch(sources, "zz", None, 1, "rows", 1)
        assert set(names) - set(sources) == {"s0"}
