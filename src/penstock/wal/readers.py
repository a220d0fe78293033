"""Who reads a log, and how far: a segment is deleted only when every registered reader is past it.

A log without readers keeps everything, up to its budget. Kept in one small file, which the process that writes the log
and those that read it change under a lock of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from penstock.core.documents import canonical
from penstock.errors import InputError
from penstock.links.durable import sync, write_durably
from penstock.wal.segments import list_numbers, path_of, read_copy

_FILE = "readers.json"


@dataclass(frozen=True, slots=True)
class Reader:
    """A registered reader."""

    #: the segment that it has not read to its end
    segment: int
    #: the last slice that it has delivered
    number: int = 0
    #: microseconds since 1970, when it was registered or its mark last rose
    at: int = 0


@dataclass(frozen=True, slots=True)
class Registry:
    """All readers of a log, and what was deleted."""

    readers: Mapping[str, Reader] = field(default_factory=lambda: MappingProxyType({}))
    #: the first segment that is kept: earlier ones were deleted
    floor: int = 1

    @property
    def lowest(self) -> int | None:
        """The first segment that a reader still needs; None: nobody is registered."""
        return min((each.segment for each in self.readers.values()), default=None)


def read_registry(folder: str) -> Registry:
    try:
        with open(os.path.join(folder, _FILE), encoding="utf-8") as file:
            document: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return Registry()
    readers = {name: Reader(**each) for name, each in document["readers"].items()}
    return Registry(MappingProxyType(readers), document["floor"])


def register(folder: str, name: str, at: int) -> Reader:
    """Register a reader from the first segment that is kept on; one that is known stays where it is."""
    with _changing(folder) as change:
        known = change.registry.readers.get(name)
        if known is None:
            known = Reader(change.registry.floor, 0, at)
            change.put(name, known)
        return known


def raise_mark(folder: str, name: str, segment: int, number: int, at: int) -> None:
    """Say that a reader has delivered slice `number`, which ends in `segment`. An older number changes nothing."""
    with _changing(folder) as change:
        known = change.registry.readers.get(name)
        if known is None:
            raise InputError(
                f"{name} is no reader of the log in {folder}: it was dropped",
                next_step="run the pipeline again: it registers itself, and stops if something it needs was deleted",
            )
        if number > known.number:
            change.put(name, Reader(max(segment, known.segment), number, at))


def drop(folder: str, name: str) -> bool:
    """Forget a reader; False if there is none with this name."""
    with _changing(folder) as change:
        if name not in change.registry.readers:
            return False
        change.put(name, None)
        return True


def delete_read(folder: str) -> list[int]:
    """Delete the segments that every reader is past; their numbers. The last segment is never deleted."""
    with _changing(folder) as change:
        lowest = change.registry.lowest
        if lowest is None:
            return []
        numbers = list_numbers(folder)
        kept_from = _first_needed(folder, lowest) if lowest in numbers else lowest
        gone = [number for number in numbers[:-1] if number < kept_from]
        if gone:
            # First the floor, durably: a reader below it stops instead of missing what is gone.
            change.set_floor(gone[-1] + 1)
        for number in gone:
            os.remove(path_of(folder, number))
        return gone


def _first_needed(folder: str, segment: int) -> int:
    """The first segment that is needed to read from this one on: slices that were open then may begin before it."""
    ledger = read_copy(folder, segment)
    if ledger is None:
        return 0  # the copy is damaged: nobody knows
    opened = [place.segment for each in ledger.producers.values() if each.open for place in each.open.places]
    return min([segment, *opened])


class _Change:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.registry = read_registry(folder)

    def put(self, name: str, reader: Reader | None) -> None:
        readers = {other: each for other, each in self.registry.readers.items() if other != name}
        if reader is not None:
            readers[name] = reader
        self._write(replace(self.registry, readers=MappingProxyType(readers)))

    def set_floor(self, floor: int) -> None:
        self._write(replace(self.registry, floor=floor))

    def _write(self, registry: Registry) -> None:
        readers = {name: asdict(each) for name, each in registry.readers.items()}
        path = os.path.join(self._folder, _FILE)
        write_durably(f"{path}.new", canonical({"readers": readers, "floor": registry.floor}))
        os.rename(f"{path}.new", path)
        sync(self._folder)
        self.registry = registry


@contextmanager
def _changing(folder: str) -> Iterator[_Change]:
    lock = os.open(os.path.join(folder, "readers.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _Change(folder)
    finally:
        os.close(lock)
