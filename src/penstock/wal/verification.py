"""Reads all of a log, and names each byte range that is not as it was written.

Needs no lock: what lies behind the durable end is being written, or was never acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import InputError
from penstock.wal.durable_end import End, read_end
from penstock.wal.following import Found, follow_segment, read_log_id
from penstock.wal.frames import HEADER_BYTES, Record, UnreadableHeader, read_record
from penstock.wal.inspection import durable_size, while_deleting
from penstock.wal.ledger import Ledger
from penstock.wal.log import after_batch
from penstock.wal.opening import replay
from penstock.wal.readers import read_registry
from penstock.wal.segments import list_numbers, missing_numbers, path_of, read_copy


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is missing or damaged."""

    #: the file's name in the log's folder
    file: str
    reason: str
    #: None: it is no segment
    segment: int | None = None
    #: where it begins in the file; None: it is about the whole file
    offset: int | None = None
    #: where reading goes on; None: nowhere
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read, and what is wrong with it."""

    segments: int
    records: int
    bytes: int
    faults: tuple[Fault, ...]


@dataclass
class _State:
    records: int = 0
    bytes: int = 0
    #: after the records so far; None: some are damaged
    ledger: Ledger | None = None


def verify_log(folder: str) -> Verified:
    """Read every record of a log, and check everything that has a checksum."""
    try:
        read_registry(folder)
    except InputError as error:
        # Nobody knows which segments were deleted: those that are there are read all the same.
        faults, floor = [Fault("readers.json", error.what)], 0
        return _verify(folder, faults, floor)
    return while_deleting(folder, lambda: _verify(folder, [], read_registry(folder).floor))


def _verify(folder: str, faults: list[Fault], floor: int) -> Verified:
    # First the end: what is written later lies behind it.
    end = read_end(folder)
    numbers = [number for number in list_numbers(folder) if number >= floor]
    if end is None and numbers:
        faults.append(Fault("end", "it is missing or damaged: up to where the log is on disk is not known"))
    if numbers or end:
        missing = missing_numbers(numbers, floor, end.segment if end else 0)
        faults += [Fault(_name(folder, number), "the segment is missing", number) for number in missing]
    state = _State()
    log: bytes | None = None
    for number in numbers:
        name = _name(folder, number)
        if number - 1 not in numbers:
            state.ledger = None
        try:
            header = read_log_id(folder, number)
            if header.number != number:
                raise UnreadableHeader(f"it is segment {header.number} of its log")
            if log is not None and header.log != log:
                raise UnreadableHeader("it is a segment of another log than the one before it")
            log = header.log
        except UnreadableHeader as error:
            faults.append(Fault(name, str(error), number, 0, HEADER_BYTES))
        faults += _verify_segment(folder, number, name, end, state)
    return Verified(len(numbers), state.records, state.bytes, tuple(faults))


def _verify_segment(folder: str, number: int, name: str, end: End | None, state: _State) -> Iterator[Fault]:
    size = durable_size(folder, number, end)
    for index, found in enumerate(follow_segment(folder, number, HEADER_BYTES, size, whole=True)):
        if not isinstance(found, Found):
            segment, damage = found
            yield Fault(name, damage.reason, segment, damage.offset, damage.end)
            state.ledger = None
            continue
        state.records += 1
        if index == 0:
            yield from _verify_copy(folder, number, name, state)
        else:
            _fold(folder, found, state)
    state.bytes += size
    if end is not None and end.segment == number and size < end.offset:
        yield Fault(name, f"it ends here, and {end.offset - size:,} bytes more were acknowledged", number, size)


def _verify_copy(folder: str, number: int, name: str, state: _State) -> Iterator[Fault]:
    """A segment cut off between two records has no wrong checksum; but the next one says what was held."""
    copy = read_copy(folder, number)
    before, state.ledger = state.ledger, copy
    if copy is None:
        yield Fault(name, "it does not begin with a copy of the ledger", number, HEADER_BYTES)
    elif before is not None and not _leads_to(before, copy):
        yield Fault(
            name,
            f"its copy of the ledger says {copy.batches:,} batches, and those before it have {before.batches:,}: "
            f"records are missing at the end of segment {number - 1}, or it was put back from an older copy",
            number,
            HEADER_BYTES,
        )


def _leads_to(before: Ledger, copy: Ledger) -> bool:
    """Whether a copy is the ledger at the end of the segment before, but for keys that have expired."""
    keys = dict(before.keys)
    return (
        (before.producers, before.batches, before.rows, before.sources, before.clock)
        == (copy.producers, copy.batches, copy.rows, copy.sources, copy.clock)
    ) and all(keys.get(key) == known for key, known in copy.keys.items())


def _fold(folder: str, found: Found, state: _State) -> None:
    """The ledger after a record that is whole."""
    if state.ledger is None:
        return
    if found.batch is not None:
        state.ledger = after_batch(state.ledger, found.batch, found.place)
    else:
        with open(path_of(folder, found.place.segment), "rb") as file:
            record = read_record(os.pread(file.fileno(), found.place.length, found.place.offset), 0)
        assert isinstance(record, Record), "it was whole a moment ago"
        state.ledger = replay([record], found.place.segment, state.ledger)


def _name(folder: str, number: int) -> str:
    return os.path.basename(path_of(folder, number))
