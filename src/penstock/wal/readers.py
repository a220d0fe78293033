"""Who reads a log, and how far: a segment is deleted only when every registered reader is past it.

A log without readers keeps everything, up to its budget. Kept in one small file, which the process that writes the log
and those that read it change under a lock of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

import google_crc32c

from penstock.core.documents import canonical
from penstock.errors import UNTOUCHED, InputError
from penstock.links.durable import sync, write_durably
from penstock.wal.frames import HEADER_BYTES
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
    #: where the record after its mark begins, in `segment`
    offset: int = HEADER_BYTES
    #: batches that could be read up to its mark since the log began, and their rows
    batches: int = 0
    rows: int = 0


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
    path = os.path.join(folder, _FILE)
    try:
        with open(path, encoding="utf-8") as file:
            document: dict[str, Any] = json.load(file)
        if document.pop("checksum") != _checksum(document):
            raise ValueError("its checksum is wrong")
        readers = {name: Reader(**each) for name, each in document["readers"].items()}
        return Registry(MappingProxyType(readers), document["floor"])
    except FileNotFoundError:
        return Registry()
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}): it says which segments are still needed",
            safe=UNTOUCHED,
            next_step="put the file back from a backup. Without one, move it away, and run each pipeline that "
            "reads this log: it registers itself again, and stops if a segment that it needs is gone",
        ) from None


def _checksum(document: Mapping[str, Any]) -> int:
    return int(google_crc32c.value(canonical(document).encode()))


def register(folder: str, name: str, at: int) -> Reader:
    """Register a reader from the first segment that is kept on; one that is known stays where it is."""
    with _changing(folder) as change:
        known = change.registry.readers.get(name)
        if known is None:
            known = begin(folder, change.registry, at=at)
            change.put(name, known)
        return known


def begin(folder: str, registry: Registry, number: int = 0, at: int = 0) -> Reader:
    """A reader that has read nothing of what is kept."""
    ledger = read_copy(folder, registry.floor) if os.path.exists(path_of(folder, registry.floor)) else None
    batches, rows = (ledger.batches, ledger.rows) if ledger else (0, 0)
    return Reader(registry.floor, number, at, batches=batches, rows=rows)


def register_at(folder: str, name: str, reader: Reader) -> int:
    """Register a reader at its mark, or move one there that is known; the floor.

    The floor may be above it: then segments that it needs are gone, and nothing was changed.
    """
    with _changing(folder) as change:
        known = change.registry.readers.get(name)
        if reader.segment >= change.registry.floor and (known is None or replace(known, at=0) != replace(reader, at=0)):
            change.put(name, reader)
        return change.registry.floor


def raise_mark(folder: str, name: str, reader: Reader) -> None:
    """Say how far a reader has delivered. An older number changes nothing; a newer one may lead back: a rewind."""
    with _changing(folder) as change:
        known = change.registry.readers.get(name)
        if known is None:
            raise InputError(
                f"{name} is no reader of the log in {folder}: it was dropped",
                next_step="run the pipeline again: it registers itself, and stops if something it needs was deleted",
            )
        if reader.number > known.number:
            change.put(name, reader)


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
            with suppress(FileNotFoundError):  # deleted before a power failure, and listed again after it
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
        document: dict[str, Any] = {"readers": readers, "floor": registry.floor}
        write_durably(f"{path}.new", canonical({**document, "checksum": _checksum(document)}))
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
