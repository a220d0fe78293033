"""The log of one stream: takes batches, writes them with one sync, and forgets none that it has acknowledged.

Used by one thread at a time. What a batch is answered is decided by the ledger; the ledger moves only with records that
are on disk.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.core.documents import canonical
from penstock.errors import ConnectionFailed
from penstock.links.durable import make_folder, sync
from penstock.wal import segments
from penstock.wal.batches import (
    Batch,
    Withdrawal,
    decode_batch,
    decode_withdrawal,
    encode_batch,
    encode_withdrawal,
)
from penstock.wal.durable_end import write_end
from penstock.wal.frames import HEADER_BYTES, Damage, Header, Kind, Record, UnreadableHeader, encode_record
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
    from_document,
    judge_bare,
    judge_chunk,
    to_document,
    with_bare,
    with_chunk,
    withdraw,
)

#: only this user reads logs
_PRIVATE = 0o700
_MICROSECONDS = 1_000_000


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


Entry = Batch | Withdrawal
Outcome = Take | Known | Refuse | Full | Failed


@dataclass
class Log:
    """See `open_log`."""

    folder: str
    options: LogOptions
    #: the log's identity
    id: bytes
    #: microseconds since 1970
    now: Callable[[], int]
    ledger: Ledger
    #: damaged records that were found when it was opened, by segment
    damages: tuple[tuple[int, Damage], ...]
    #: files with what was cut off the end of the last segment
    torn: tuple[str, ...]
    _lock: int
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
    _is_closed: bool = False

    @property
    def end(self) -> tuple[int, int]:
        """(segment, offset) up to which everything is on disk."""
        return self._number, self._end

    @property
    def size(self) -> int:
        """What all segments take."""
        return self._earlier + self._end

    def append(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Write what is new, sync once, and say what became of each entry. None is half there, whatever fails."""
        outcomes: list[Outcome] = []
        try:
            self._rotate_if_due()
        except OSError as error:
            return [_lost(error) for _ in entries]
        ledger, data = self.ledger, bytearray()
        for entry in entries:
            outcome, after, record = self._take(entry, ledger, self._end + len(data))
            if record and self.size + len(data) + len(record) > self.options.budget_bytes:
                outcomes.append(Full(f"the log has used its {self.options.budget_bytes:,} bytes"))
                continue
            data += record
            ledger = after
            outcomes.append(outcome)
        if not data:
            self.ledger = ledger
            return outcomes
        try:
            segments.write_at(self._descriptor, bytes(data), self._end)
            os.fsync(self._descriptor)
        except OSError as error:
            self._in_doubt = True
            return [_lost(error) if isinstance(each, Take | Known) else each for each in outcomes]
        self._end += len(data)
        self.ledger = ledger
        write_end(self.folder, *self.end)
        return outcomes

    def _take(self, entry: Entry, ledger: Ledger, offset: int) -> tuple[Outcome, Ledger, bytes]:
        """The verdict on an entry, the ledger after it, and the record to write (b"": none)."""
        at = max(self.now(), ledger.clock)
        if isinstance(entry, Withdrawal):
            after = withdraw(ledger, entry.producer, entry.slice, at)
            if isinstance(after, Refuse):
                return after, ledger, b""
            record = encode_record(Kind.WITHDRAWAL, encode_withdrawal(entry, at)) if after is not ledger else b""
            return Take(), after, record
        sender = entry.sender
        if isinstance(sender, Chunk):
            verdict = judge_chunk(ledger, sender)
        elif isinstance(sender, Bare):
            ledger = forget_keys(ledger, at - int(self.options.key_seconds * _MICROSECONDS))
            verdict = judge_bare(ledger, sender)
        else:
            verdict = Take()
        if not isinstance(verdict, Take):
            return verdict, ledger, b""
        before, rows_before = tuple[Place, ...](), 0
        is_last = True
        if isinstance(sender, Chunk):
            held = ledger.producers.get(sender.producer, Producer()).open
            before, rows_before = (held.places, held.rows) if held else ((), 0)
            is_last = sender.chunk == sender.chunks
        record = encode_record(Kind.BATCH, encode_batch(entry, at, before, rows_before, is_last=is_last))
        place = Place(self._number, offset, len(record))
        return verdict, _after(ledger, sender, place, at), record

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
        is_used = self._end > HEADER_BYTES + self.options.segment_bytes
        if self._in_doubt or is_used or (is_old and self._has_batches()):
            self._rotate()

    def _has_batches(self) -> bool:
        return self._end > self._first_end

    def _rotate(self) -> None:
        header = Header(self._number + 1, self.id, self.now())
        first = encode_record(Kind.LEDGER, canonical(to_document(self.ledger)).encode())
        path = segments.create_segment(self.folder, header, first)
        os.close(self._descriptor)
        self._earlier += self._end
        self._descriptor = os.open(path, os.O_RDWR)
        self._number, self._created = header.number, header.created
        self._end = self._first_end = HEADER_BYTES + len(first)
        self._in_doubt = False
        write_end(self.folder, *self.end)

    def close(self) -> None:
        """Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)
            os.close(self._lock)


def _after(ledger: Ledger, sender: Chunk | Bare | None, place: Place, at: int) -> Ledger:
    if isinstance(sender, Chunk):
        return with_chunk(ledger, sender, place, at)
    return with_bare(ledger, sender, at) if sender is not None else ledger


def _lost(error: OSError) -> Full | Failed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Full("the disk under the log is full")
    return Failed(f"the log could not be written: {error.strerror}")


# ---------------------------------------------------------------- opening


def open_log(folder: str, options: LogOptions, now: Callable[[], int]) -> Log:
    """Open the log in a folder, or begin one. ConnectionFailed if another process has it, or it cannot be read."""
    make_folder(folder, _PRIVATE)
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConnectionFailed(
            f"another process has the log in {folder} open", next_step="stop the other `penstock serve`"
        ) from None
    try:
        numbers = segments.list_numbers(folder)
        return _reopen(folder, options, now, lock, numbers) if numbers else _begin(folder, options, now, lock)
    except BaseException:
        os.close(lock)
        raise


def _begin(folder: str, options: LogOptions, now: Callable[[], int], lock: int) -> Log:
    header = Header(1, uuid.uuid4().bytes, now())
    first = encode_record(Kind.LEDGER, canonical(to_document(Ledger())).encode())
    path = segments.create_segment(folder, header, first)
    end = HEADER_BYTES + len(first)
    log = Log(
        folder, options, header.log, now, Ledger(), (), (), lock, 1, header.created, end, os.open(path, os.O_RDWR), 0
    )
    log._first_end = end
    write_end(folder, *log.end)
    return log


def _reopen(folder: str, options: LogOptions, now: Callable[[], int], lock: int, numbers: list[int]) -> Log:
    if missing := list(segments.missing_numbers(numbers)):
        raise ConnectionFailed(
            f"segment {missing[0]} of the log in {folder} is missing: batches that were acknowledged are gone",
            next_step="put the file back from a backup; `penstock wal verify` lists what is there",
        )
    try:
        last = segments.read_segment(folder, numbers[-1])
    except UnreadableHeader as error:
        raise ConnectionFailed(
            f"{segments.path_of(folder, numbers[-1])}: {error}",
            next_step="use the version of penstock that wrote it, or put the file back from a backup",
        ) from None
    torn = segments.cut_tail(folder, last)
    ledger = _read_ledger(folder, numbers, last)
    log = Log(
        folder,
        options,
        last.header.log,
        now,
        ledger,
        tuple((last.number, damage) for damage in last.damages if damage.end is not None),
        (torn,) if torn else (),
        lock,
        last.number,
        last.header.created,
        last.end,
        os.open(last.path, os.O_RDWR),
        sum(os.path.getsize(segments.path_of(folder, number)) for number in numbers[:-1]),
    )
    log._first_end = last.records[0].end if last.records else last.end
    # With a damaged copy of the ledger, older segments could not be deleted.
    log._in_doubt = not _has_copy(last)
    # Another process may have been ended between its write and its sync.
    sync(last.path)
    write_end(folder, *log.end)
    return log


def replay(records: Sequence[Record], number: int, ledger: Ledger | None = None) -> Ledger:
    """The ledger at the end of a segment, from the copy at its beginning and the records after it.

    Where that copy is damaged, from the ledger at the end of the segment before it.
    """
    ledger = ledger or Ledger()
    for record in records:
        place = Place(number, record.offset, record.end - record.offset)
        if record.kind == Kind.LEDGER:
            ledger = from_document(json.loads(record.payload))
        elif record.kind == Kind.BATCH:
            stored = decode_batch(record.payload, place)
            ledger = _after(ledger, stored.batch.sender, place, stored.at)
        elif record.kind == Kind.WITHDRAWAL:
            withdrawal, at = decode_withdrawal(record.payload)
            after = withdraw(ledger, withdrawal.producer, withdrawal.slice, at)
            ledger = ledger if isinstance(after, Refuse) else after
    return ledger


def _read_ledger(folder: str, numbers: Sequence[int], last: segments.Segment) -> Ledger:
    """The ledger at the end of the log. ConnectionFailed if no copy of it is whole."""
    after = [last]
    for number in reversed(numbers[:-1]):
        if _has_copy(after[-1]):
            break
        after.append(segments.read_segment(folder, number))
    if not _has_copy(after[-1]):
        raise ConnectionFailed(
            f"the log in {folder} has no whole copy of its ledger: what producers send again could not be recognised",
            next_step=f"put {os.path.basename(last.path)} back from a backup",
        )
    ledger = Ledger()
    for segment in reversed(after):
        ledger = replay(segment.records, segment.number, ledger)
    return ledger


def _has_copy(segment: segments.Segment) -> bool:
    return bool(segment.records) and segment.records[0].kind == Kind.LEDGER
