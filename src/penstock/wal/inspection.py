"""Looks at a log without its lock, also while another process writes to it: segments, producers, what was cut off."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.wal.durable_end import End, read_end
from penstock.wal.following import Found, follow_segment, read_log_id
from penstock.wal.frames import HEADER_BYTES, Damage, Kind, Record, UnreadableHeader
from penstock.wal.ledger import Ledger
from penstock.wal.opening import replay
from penstock.wal.readers import read_registry
from penstock.wal.segments import Kept, list_kept, list_numbers, missing_numbers, path_of, read_segment

T = TypeVar("T")

#: a segment that was listed may be deleted before it is read
_TRIES = 100


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A segment, by the heads of its records."""

    number: int
    bytes: int
    #: microseconds since 1970; 0: its header is damaged
    created: int
    #: batches that were written to it, with those that are not readable yet, and their rows
    batches: int
    rows: int
    #: records whose heads are damaged; `penstock wal verify` reads the rest of each too
    damages: tuple[Damage, ...]


@dataclass(frozen=True, slots=True)
class LogState:
    """A log as it is on disk."""

    #: its identity, in hexadecimal digits; "": no header could be read
    log: str
    #: segments before this one were read by all readers, and deleted
    floor: int
    #: None: it is not known up to where the log is on disk
    end: End | None
    segments: tuple[SegmentState, ...]
    #: numbers of segments that are missing between those that are there
    missing: tuple[int, ...]
    #: None: no copy of it is whole
    ledger: Ledger | None
    #: files with bytes that were cut off, or found damaged
    kept: tuple[Kept, ...]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.segments)


def inspect_log(folder: str) -> LogState:
    """What is there. InputError if the file with the readers is damaged."""
    return while_deleting(folder, lambda: _inspect(folder))


def while_deleting(folder: str, look: Callable[[], T]) -> T:
    """Look again if segments were deleted meanwhile, because all readers are past them."""
    for _ in range(_TRIES):
        floor = read_registry(folder).floor
        try:
            found = look()
        except FileNotFoundError:
            if read_registry(folder).floor == floor:
                raise
        else:
            if read_registry(folder).floor == floor:
                return found
    return look()


def _inspect(folder: str) -> LogState:
    floor, end = read_registry(folder).floor, read_end(folder)
    numbers = [number for number in list_numbers(folder) if number >= floor]
    segments = tuple(_segment(folder, number, end) for number in numbers)
    missing = missing_numbers(numbers, floor, end.segment if end else 0) if numbers or end else []
    return LogState(
        _id_of(folder, numbers), floor, end, segments, tuple(missing), _ledger_at(folder, numbers, end),
        tuple(list_kept(folder)),
    )  # fmt: skip


def _id_of(folder: str, numbers: Sequence[int]) -> str:
    for number in reversed(numbers):
        try:
            return read_log_id(folder, number).log.hex()
        except UnreadableHeader:
            continue
    return ""


def durable_size(folder: str, number: int, end: End | None) -> int:
    """Up to where a segment is part of the log: what lies behind the durable end is being written, or never was."""
    size = os.path.getsize(path_of(folder, number))
    if end is None or number < end.segment:
        return size
    return min(size, end.offset) if number == end.segment else 0


def _segment(folder: str, number: int, end: End | None) -> SegmentState:
    batches = rows = 0
    damages = []
    size = durable_size(folder, number, end)
    for found in follow_segment(folder, number, HEADER_BYTES, size):
        if not isinstance(found, Found):
            damages.append(found[1])
        elif found.batch is not None:
            batches, rows = batches + 1, rows + found.batch.rows
    try:
        created = read_log_id(folder, number).created
    except UnreadableHeader:
        created = 0
    return SegmentState(number, size, created, batches, rows, tuple(damages))


def read_ledger(folder: str, end: End) -> Ledger | None:
    """The ledger at the durable end; None: no copy of it is whole."""

    def look() -> Ledger | None:
        floor = read_registry(folder).floor
        return _ledger_at(folder, [each for each in list_numbers(folder) if floor <= each <= end.segment], end)

    return while_deleting(folder, look)


def _ledger_at(folder: str, numbers: Sequence[int], end: End | None) -> Ledger | None:
    """What is held of each producer, from the last whole copy of the ledger and the records after it."""
    after: list[tuple[int, list[Record]]] = []
    for number in reversed(numbers):
        try:
            records = read_segment(folder, number).records
        except UnreadableHeader:
            return None
        after.append((number, [each for each in records if end is None or (number, each.end) <= end.place]))
        if after[-1][1] and after[-1][1][0].kind == Kind.LEDGER:
            break
    else:
        return None
    ledger = Ledger()
    for number, records_of in reversed(after):
        ledger = replay(records_of, number, ledger)
    return ledger
