"""Sizes and durations as people write them: 256MiB, 1.5 GB, 7d, 1h30m."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

#: how sizes and durations are written, as regular expressions that check a string before it is read
SIZE_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,6})? ?([bB]|[kKmMgGtT][iI]?[bB])?$"
DURATION_PATTERN = r"^(?=[0-9])([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,9}s)?$"

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("ib", 1024), ("b", 1000))
}
_SIZE = re.compile(r"(?P<number>[0-9]{1,15}(\.[0-9]{1,6})?) ?(?P<unit>[a-zA-Z]*)")
_DURATION = re.compile(
    r"(?:(?P<days>\d{1,6})d)?(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,6})m)?(?:(?P<seconds>\d{1,9})s)?"
)


def size(value: Any) -> Any:
    """Bytes from `256MiB`, `1.5 GB` or a number; anything but a text is left as it is."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    unit = found and _UNITS.get(found["unit"].lower())
    if not found or not unit:
        raise ValueError("expected a size such as 256MiB, 1.5GB or a number of bytes")
    return int(float(found["number"]) * unit) if found[2] else int(found["number"]) * unit


def duration(value: Any) -> Any:
    """A time span from `7d`, `12h`, `1h30m`, `90s` or a number of seconds; other things are left as they are."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return timedelta(seconds=value)
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip())
    if not found or not value.strip():
        raise ValueError("expected a time such as 7d, 12h, 1h30m or 90s")
    return timedelta(**{unit: int(count) for unit, count in found.groupdict().items() if count})


def count_noun(number: int, thing: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def shown_size(count: int) -> str:
    """Bytes in a few characters: 340 B, 1.2 MiB."""
    if count < 1024:
        return f"{count} B"
    value, unit = count / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}"


def shown_duration(span: timedelta) -> str:
    """A time span in a few characters: 7d, 12h, 90s."""
    seconds = max(0, int(span.total_seconds()))
    for letter, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length or (seconds >= length and seconds % length == 0):
            return f"{seconds // length}{letter}"
    return f"{seconds}s"
