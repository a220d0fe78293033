"""The log of one stream: takes batches, writes them with one sync, and forgets none that it has acknowledged.

Used by one thread at a time. What a batch is answered is decided by the ledger; the ledger moves only with records that
are on disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.core.documents import canonical
from penstock.wal import segments
from penstock.wal.batches import Batch, Head, Withdrawal, encode_batch, encode_withdrawal
from penstock.wal.durable_end import End, EndFile
from penstock.wal.frames import HEADER_BYTES, Damage, Header, Kind, encode_pieces, encode_record
from penstock.wal.ledger import (
    Bare,
    Chunk,
    Known,
    Ledger,
    Place,
    Producer,
    Refuse,
    Take,
    forget_keys,
    judge_bare,
    judge_chunk,
    to_document,
    with_bare,
    with_chunk,
    withdraw,
)
from penstock.wal.meta import with_batch
from penstock.wal.segments import Torn

_MICROSECONDS = 1_000_000
#: bytes of the disk that batches leave free: readers must write how far they are before segments can be deleted
RESERVE_BYTES = 256 << 10
DISK_FULL = "the disk under the log is full"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Sizes and times of a log."""

    #: a segment is closed when it is larger
    segment_bytes: int = 64 << 20
    #: a segment is closed when it is older
    segment_seconds: float = 3600.0
    #: bytes that all segments may take
    budget_bytes: int = 10 << 30
    #: a bare key counts for this time
    key_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Full:
    """There is no room: the batch is to be sent again later. The log is as it was."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be made durable: it is to be sent again. The log is as it was."""

    reason: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Nothing to write: asks whether what the ledger says is on disk."""


Entry = Batch | Withdrawal | Confirm
Outcome = Take | Known | Refuse | Full | Failed


@dataclass
class Log:
    """See `penstock.wal.opening.open_log`."""

    folder: str
    options: LogOptions
    #: the log's identity
    id: bytes
    #: microseconds since 1970
    now: Callable[[], int]
    ledger: Ledger
    #: damaged records that were found when it was opened, by segment
    damages: tuple[tuple[int, Damage], ...]
    #: what was cut off the end of the last segment when it was opened
    torn: tuple[Torn, ...]
    _lock: int
    _end_file: EndFile
    _number: int
    _created: int
    _end: int
    _descriptor: int
    #: bytes of all earlier segments
    _earlier: int
    #: the last segment is to be closed: a failure left its end in doubt, or its copy of the ledger is damaged
    _in_doubt: bool = False
    #: where the copy of the ledger ends in the last segment
    _first_end: int = 0
    #: the file with the durable end could not be written: readers in other processes do not see the last records
    _is_end_behind: bool = False
    _is_closed: bool = False
    #: the file with the durable end was missing or damaged when it was opened: a torn end may have been acknowledged
    lost_end: bool = False

    @property
    def end(self) -> tuple[int, int]:
        """(segment, offset) up to which everything is on disk."""
        return self._number, self._end

    @property
    def is_in_doubt(self) -> bool:
        """Whether a write has failed, and the segment was not read again: what it holds may be gone from the disk."""
        return self._in_doubt

    @property
    def size(self) -> int:
        """What all segments take."""
        return self._earlier + self._end

    def append(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Write what is new, sync once, and say what became of each entry. None is half there, whatever fails."""
        outcomes: list[Outcome] = []
        if self._is_end_behind:
            self.write_end()
        try:
            self._rotate_if_due()
        except OSError as error:
            return [_lost(error) for _ in entries]
        ledger, pieces, size, free = self.ledger, list[bytes](), 0, None
        for entry in entries:
            outcome, after, record = self._take(entry, ledger, self._end + size)
            # A withdrawal needs next to nothing, and makes way for another slice.
            length = sum(map(len, record))
            if isinstance(entry, Batch) and record:
                free = self._free_bytes() if free is None else free
                if full := self._lacks_room(size + length, free):
                    outcomes.append(full)
                    continue
            pieces += record
            size += length
            ledger = after
            outcomes.append(outcome)
        if not pieces:
            self.ledger = ledger
            return outcomes
        try:
            segments.write_at(self._descriptor, pieces, self._end)
            os.fsync(self._descriptor)
        except OSError as error:
            self._in_doubt = True
            return [_lost(error) if isinstance(each, Take | Known) else each for each in outcomes]
        self._end += size
        self.ledger = ledger
        self.write_end()
        return outcomes

    def _free_bytes(self) -> int:
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize

    def _lacks_room(self, wanted: int, free: int) -> Full | None:
        if self.size + wanted > self.options.budget_bytes:
            # Readers in other processes may have deleted segments.
            self._earlier = segments.measure(self.folder, self._number)
        if self.size + wanted > self.options.budget_bytes:
            return Full(f"the log has used its {self.options.budget_bytes:,} bytes")
        return Full(DISK_FULL) if free - wanted < RESERVE_BYTES else None

    def write_end(self) -> None:
        """Tell readers in other processes up to where they may read."""
        ledger = self.ledger
        try:
            self._end_file.write(End(self._number, self._end, ledger.batches, ledger.rows, ledger.clock))
        except OSError:
            # The records are on disk, and that is what was asked for. The next append tries again.
            self._is_end_behind = True
        else:
            self._is_end_behind = False

    def _take(self, entry: Entry, ledger: Ledger, offset: int) -> tuple[Outcome, Ledger, tuple[bytes, ...]]:
        """The verdict on an entry, the ledger after it, and the pieces of the record to write; (): none."""
        if isinstance(entry, Confirm):
            return Take(), ledger, ()
        at = max(self.now(), ledger.clock)
        if isinstance(entry, Withdrawal):
            after = withdraw(ledger, entry.producer, entry.slice, at)
            if isinstance(after, Refuse):
                return after, ledger, ()
            is_new = after is not ledger
            return Take(), after, encode_pieces(Kind.WITHDRAWAL, encode_withdrawal(entry, at)) if is_new else ()
        sender = entry.sender
        if isinstance(sender, Chunk):
            verdict = judge_chunk(ledger, sender)
        elif isinstance(sender, Bare):
            verdict = judge_bare(ledger, sender, self._keys_since(at))
        else:
            verdict = Take()
        if not isinstance(verdict, Take):
            return verdict, ledger, ()
        head = _head_of(entry, ledger, at)
        record = encode_pieces(Kind.BATCH, *encode_batch(entry, head))
        return verdict, after_batch(ledger, head, Place(self._number, offset, sum(map(len, record)))), record

    def _keys_since(self, at: int) -> int:
        return at - int(self.options.key_seconds * _MICROSECONDS)

    # ------------------------------------------------------------ segments

    def _rotate_if_due(self) -> None:
        """Begin a new segment where the last one is full, old, or in doubt."""
        if self._in_doubt:
            # What was not acknowledged is cut off, so that nobody reads what may be gone after a crash.
            os.ftruncate(self._descriptor, self._end)
            os.fsync(self._descriptor)
            found = segments.read_segment(self.folder, self._number)
            if found.end != self._end:
                raise OSError(errno.EIO, f"segment {self._number} ends at {found.end} instead of {self._end}")
        is_old = self.now() - self._created > self.options.segment_seconds * _MICROSECONDS
        # Without the copy of the ledger: one that is larger than a segment must not close each at once.
        is_used = self._end - self._first_end > self.options.segment_bytes
        if self._in_doubt or is_used or (is_old and self._has_batches()):
            self._rotate()

    def _has_batches(self) -> bool:
        return self._end > self._first_end

    def _rotate(self) -> None:
        header = Header(self._number + 1, self.id, self.now())
        ledger = forget_keys(self.ledger, self._keys_since(max(self.now(), self.ledger.clock)))
        first = encode_record(Kind.LEDGER, canonical(to_document(ledger)).encode())
        path = segments.create_segment(self.folder, header, first)
        descriptor = os.open(path, os.O_RDWR)
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.ledger = ledger
        self._earlier = segments.measure(self.folder, header.number)
        self._number, self._created = header.number, header.created
        self._end = self._first_end = HEADER_BYTES + len(first)
        self._in_doubt = False
        self.write_end()

    def close(self) -> None:
        """Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)
            self._end_file.close()
            os.close(self._lock)


def _head_of(batch: Batch, ledger: Ledger, at: int) -> Head:
    """The head of a batch that is to be written next."""
    sender = batch.sender
    before, rows_before = tuple[Place, ...](), 0
    is_last = True
    if isinstance(sender, Chunk):
        held = ledger.producers.get(sender.producer, Producer()).open
        before, rows_before = (held.places, held.rows) if held else ((), 0)
        is_last = sender.chunk == sender.chunks
    total = (ledger.batches, ledger.rows)
    if is_last:
        total = (ledger.batches + len(before) + 1, ledger.rows + rows_before + batch.rows)
    return Head(
        sender, batch.rows, batch.schema, batch.kind, at, before if is_last else None, rows_before, total, batch.meta
    )


def after_batch(ledger: Ledger, head: Head, place: Place) -> Ledger:
    """The ledger after a batch."""
    sender = head.sender
    if isinstance(sender, Chunk):
        ledger = with_chunk(ledger, sender, place, head.at)
    elif sender is not None:
        ledger = with_bare(ledger, sender, head.at)
    sources = with_batch(ledger.sources, head.source, head.meta, head.rows, head.kind, head.at)
    clock, (batches, rows) = max(ledger.clock, head.at), head.total
    return replace(ledger, clock=clock, batches=batches, rows=rows, sources=sources)


def _lost(error: OSError) -> Full | Failed:
    if error.errno in segments.NO_SPACE:
        return Full(DISK_FULL)
    return Failed(f"the log could not be written: {error.strerror}")
