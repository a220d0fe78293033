"""Sizes and durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.core.sizes import duration, shown_duration, shown_size, size


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1", 1), ("64KiB", 65536), ("1.5GB", 1_500_000_000), ("256 MiB", 256 << 20), (7, 7), ("2tib", 2 << 40)],
)
def test_size(text: object, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "MiB", "1 XB", "-1", "1e3"])
def test_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        size(text)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("7d", timedelta(days=7)),
        ("12h", timedelta(hours=12)),
        ("1h30m", timedelta(minutes=90)),
        ("0s", timedelta(0)),
        (90, timedelta(seconds=90)),
        (timedelta(1), timedelta(1)),
    ],
)
def test_duration(text: object, span: timedelta) -> None:
    assert duration(text) == span


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1w", "30m1h"])
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time"):
        duration(text)


def test_shown() -> None:
    assert [shown_size(n) for n in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    spans = (timedelta(days=7), timedelta(days=1), timedelta(hours=30), timedelta(seconds=90), timedelta(seconds=-1))
    assert [shown_duration(span) for span in spans] == ["7d", "1d", "30h", "90s", "0s"]
