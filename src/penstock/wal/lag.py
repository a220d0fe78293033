"""How much of a log its readers have not read yet. Reads small files only, however much that is."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from penstock.wal import readers
from penstock.wal.durable_end import End, read_end
from penstock.wal.following import Found, follow
from penstock.wal.segments import list_kept, list_numbers, path_of

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class ReaderLag:
    """What a registered reader has not delivered yet."""

    #: pipeline/stream
    name: str
    #: batches that can be read, and their rows
    batches: int
    rows: int
    #: of the log, with all that is not readable yet
    bytes: int
    #: since the oldest batch that it has not delivered was acknowledged; 0: it has delivered all
    seconds: float
    #: the number of the last slice that it has delivered; 0: none
    number: int
    #: microseconds since 1970, when it was registered or its mark last rose
    at: int
    #: (segment, offset) of its mark
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogLag:
    """A log, and how far each of its readers is."""

    #: batches that could be read since the log began, and their rows
    batches: int
    rows: int
    #: bytes of the segments that are kept
    bytes: int
    #: their numbers, in order
    segments: tuple[int, ...]
    #: the durable end: (segment, offset)
    end: tuple[int, int]
    #: the time of the last record, in microseconds since 1970
    last_at: int
    #: files with damaged records, and with ends that were cut off
    damaged: int
    torn: int
    readers: tuple[ReaderLag, ...]


def measure_lag(folder: str, now: int) -> LogLag | None:
    """`now` in microseconds since 1970. None: there is no log yet, or its durable end is not known.

    Works without the log's lock, also while another process writes to it and a third deletes segments.
    """
    end = read_end(folder)
    if end is None:
        return None
    registry = readers.read_registry(folder)
    sizes = {}
    for number in list_numbers(folder):
        with suppress(FileNotFoundError):
            sizes[number] = os.path.getsize(path_of(folder, number))
    kept = list_kept(folder)
    return LogLag(
        end.batches,
        end.rows,
        sum(sizes.values()),
        tuple(sizes),
        end.place,
        end.clock,
        sum(each.what == "damaged" for each in kept),
        sum(each.what == "torn" for each in kept),
        tuple(_lag_of(folder, name, each, end, sizes, now) for name, each in sorted(registry.readers.items())),
    )


def _lag_of(folder: str, name: str, reader: readers.Reader, end: End, sizes: dict[int, int], now: int) -> ReaderLag:
    place = (reader.segment, reader.offset)
    size = 0
    if place < end.place:
        between = sum(size for number, size in sizes.items() if reader.segment <= number < end.segment)
        size = max(0, between + end.offset - reader.offset)
    batches = max(0, end.batches - reader.batches)
    since = _oldest(folder, place, end.place) if batches else None
    seconds = max(0.0, (now - since) / _MICROSECONDS) if since is not None else 0.0
    rows = max(0, end.rows - reader.rows)
    return ReaderLag(name, batches, rows, size, seconds, reader.number, reader.at, place)


def _oldest(folder: str, place: tuple[int, int], end: tuple[int, int]) -> int | None:
    """When the first batch after a place could be read; None: none can, or the segment was deleted meanwhile."""
    with suppress(FileNotFoundError):
        for found in follow(folder, *place, end):
            if isinstance(found, Found) and found.batch is not None and found.batch.before is not None:
                return found.batch.at
    return None
