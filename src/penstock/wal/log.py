"""The log of one stream: takes batches, writes them with one sync, and forgets none that it has acknowledged.

One thread writes, and one may sync beside it: the next batches are judged and written while the last ones are synced.
What a batch is answered is decided by the ledger with all that was written before it; the answer is given, and the
ledger that others see moves, only once the records are on disk.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
#: of all entries that were written together; an exception: a defect
Outcomes = list[Outcome] | Exception
Answer = Callable[[Outcomes], None]


@dataclass(frozen=True, slots=True)
class _Group:
    """Entries that were written together, and are not on disk yet."""

    answer: Answer
    outcomes: list[Outcome]
    #: once they are on disk
    ledger: Ledger
    end: int


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
    #: what the ledger will be, and where the last segment will end, once all that was written is on disk
    _written: Ledger = field(init=False)
    _written_end: int = field(init=False)
    _unsynced: list[_Group] = field(default_factory=list)
    #: syncs that have failed, and what the last one has failed with
    _failures: int = 0
    _failed: Exception | None = None
    #: held for what one thread writes and another syncs
    _state: threading.Lock = field(default_factory=threading.Lock)
    #: held by who syncs, or begins a new segment
    _syncing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._written, self._written_end = self.ledger, self._end

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
        answers = list[Outcomes]()
        self.write(entries, answers.append)
        self.sync()
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def write(self, entries: Sequence[Entry], answer: Answer) -> None:
        """Judge entries and write what is new; `answer` gets what became of them once that is on disk, or cannot be.

        One thread writes, and another may sync what was written before.
        """
        try:
            ledger, begin, failures = self._begin()
        except OSError as error:
            answer([_lost(error) for _ in entries])
            return
        outcomes, pieces, size, ledger = self._judge(entries, ledger, begin)
        try:
            if pieces:
                segments.write_at(self._descriptor, pieces, begin)
        except OSError as error:
            self._in_doubt = True
            answer(_all_lost(outcomes, error))
            return
        with self._state:
            # What a failed sync has undone may be what these entries were judged by.
            failed = self._failed if self._failures != failures else None
            is_pending = failed is None and bool(pieces or self._unsynced)
            if failed is None:
                self._written, self._written_end = ledger, begin + size
            if is_pending:
                self._unsynced.append(_Group(answer, outcomes, ledger, begin + size))
        if failed is not None:
            answer(_all_lost(outcomes, failed))
        elif not is_pending:
            answer(outcomes)

    def sync(self) -> None:
        """Make durable what was written, and answer it. What is written meanwhile waits for the next call."""
        with self._syncing:
            if self._is_end_behind:
                self.write_end()
            with self._state:
                groups = [*self._unsynced]
            if not groups:
                return
            try:
                if groups[-1].end != self._end:
                    os.fsync(self._descriptor)
            except Exception as error:  # noqa: BLE001 (it is passed on to every client)
                self._fail(error)
                return
            with self._state:
                del self._unsynced[: len(groups)]
                self.ledger, self._end = groups[-1].ledger, groups[-1].end
            self.write_end()
        for group in groups:
            group.answer(group.outcomes)

    def _fail(self, error: Exception) -> None:
        """What is not on disk is gone, with what was written during the sync that failed: it was judged by the rest."""
        with self._state:
            groups, self._unsynced = self._unsynced, []
            self._in_doubt = True
            self._failed, self._failures = error, self._failures + 1
        for group in groups:
            group.answer(_all_lost(group.outcomes, error))

    def _judge(
        self, entries: Sequence[Entry], ledger: Ledger, begin: int
    ) -> tuple[list[Outcome], list[bytes], int, Ledger]:
        """The outcome of each entry, what is to be written from an offset on, its size, and the ledger after it."""
        outcomes, pieces, size, free = list[Outcome](), list[bytes](), 0, None
        for entry in entries:
            outcome, after, record = self._take(entry, ledger, begin + size)
            length = sum(map(len, record))
            # A withdrawal needs next to nothing, and makes way for another slice.
            if isinstance(entry, Batch) and record:
                free = self._free_bytes() if free is None else free
                if full := self._lacks_room(begin + size + length, length, free - size):
                    outcomes.append(full)
                    continue
            pieces += record
            size += length
            ledger = after
            outcomes.append(outcome)
        return outcomes, pieces, size, ledger

    def _free_bytes(self) -> int:
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize

    def _lacks_room(self, end: int, wanted: int, free: int) -> Full | None:
        """Whether the last segment may not end there, or this does not fit on the disk."""
        if self._earlier + end > self.options.budget_bytes:
            # Readers in other processes may have deleted segments.
            self._earlier = segments.measure(self.folder, self._number)
        if self._earlier + end > self.options.budget_bytes:
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

    def _begin(self) -> tuple[Ledger, int, int]:
        """The ledger with all that was written, where the next record goes, and how many syncs have failed."""
        while True:
            self._rotate_if_due()
            with self._state:
                # A sync may have failed since.
                if not self._in_doubt:
                    return self._written, self._written_end, self._failures

    def _rotate_if_due(self) -> None:
        """Begin a new segment where the last one is full, old, or in doubt; before that, what was written is synced."""
        is_old = self.now() - self._created > self.options.segment_seconds * _MICROSECONDS
        # Without the copy of the ledger: one that is larger than a segment must not close each at once.
        size = self._written_end - self._first_end
        if self._in_doubt or size > self.options.segment_bytes or (is_old and size):
            self.sync()
            with self._syncing:
                self._close_segment()

    def _close_segment(self) -> None:
        if self._in_doubt:
            # What was not acknowledged is cut off, so that nobody reads what may be gone after a crash.
            os.ftruncate(self._descriptor, self._end)
            os.fsync(self._descriptor)
            found = segments.read_segment(self.folder, self._number)
            if found.end != self._end:
                raise OSError(errno.EIO, f"segment {self._number} ends at {found.end} instead of {self._end}")
        header = Header(self._number + 1, self.id, self.now())
        ledger = forget_keys(self.ledger, self._keys_since(max(self.now(), self.ledger.clock)))
        first = encode_record(Kind.LEDGER, canonical(to_document(ledger)).encode())
        path = segments.create_segment(self.folder, header, first)
        descriptor = os.open(path, os.O_RDWR)
        os.close(self._descriptor)
        self._descriptor = descriptor
        self.ledger = self._written = ledger
        self._earlier = segments.measure(self.folder, header.number)
        self._number, self._created = header.number, header.created
        self._end = self._written_end = self._first_end = HEADER_BYTES + len(first)
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
    return Ledger(ledger.producers, ledger.keys, clock, batches, rows, sources)


def _all_lost(outcomes: Sequence[Outcome], error: Exception) -> Outcomes:
    """Even a refusal may come from records that are not on disk. A defect is passed on as one."""
    return [_lost(error) for _ in outcomes] if isinstance(error, OSError) else error


def _lost(error: OSError) -> Full | Failed:
    if error.errno in segments.NO_SPACE:
        return Full(DISK_FULL)
    return Failed(f"the log could not be written: {error.strerror}")
