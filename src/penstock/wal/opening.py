"""Opens a log: checks that all of it is there, cuts a torn end off, and replays the ledger."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable, Sequence

from penstock.core.documents import canonical
from penstock.errors import UNTOUCHED, ConnectionFailed
from penstock.links.durable import make_folder, sync
from penstock.wal import segments
from penstock.wal.batches import decode_head, decode_withdrawal
from penstock.wal.durable_end import EndFile, read_end
from penstock.wal.following import read_log_id
from penstock.wal.frames import HEADER_BYTES, Header, Kind, Record, UnreadableHeader, encode_record
from penstock.wal.ledger import Ledger, Place, Refuse, from_document, to_document, withdraw
from penstock.wal.log import Log, LogOptions, after_batch
from penstock.wal.readers import read_registry

#: only this user reads logs
_PRIVATE = 0o700


class LogHeld(ConnectionFailed):
    """Another process has the log open."""


def open_log(folder: str, options: LogOptions, now: Callable[[], int]) -> Log:
    """Open the log in a folder, or begin one. LogHeld if another process has it, ConnectionFailed if it cannot be."""
    make_folder(folder, _PRIVATE)
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise LogHeld(
            f"another process has the log in {folder} open",
            safe=UNTOUCHED,
            next_step="stop the other `penstock serve`",
        ) from None
    try:
        segments.remove_unfinished(folder)
        floor = read_registry(folder).floor
        # Deleting is not synced: after a power failure a segment below the floor may be there again.
        numbers = [number for number in segments.list_numbers(folder) if number >= floor]
        end = read_end(folder)
        if not numbers and end is None and floor == 1:
            return _begin(folder, options, now, lock)
        _require_all(folder, numbers, floor, end.segment if end else 0)
        try:
            return _reopen(folder, options, now, lock, numbers, end.place if end else None)
        except OSError as error:
            raise ConnectionFailed(
                f"the log in {folder} cannot be opened: {error.strerror}",
                safe="Nothing of it was changed that was acknowledged.",
                next_step="make room on the disk, or repair it, and start `penstock serve` again",
            ) from None
    except BaseException:
        os.close(lock)
        raise


def _require_all(folder: str, numbers: Sequence[int], floor: int, last: int) -> None:
    """ConnectionFailed if a segment is missing at the beginning, in the middle or at the end, or is of another log."""
    if missing := segments.missing_numbers(numbers, floor, last):
        raise ConnectionFailed(
            f"segment {missing[0]} of the log in {folder} is missing: batches that were acknowledged are gone",
            safe=UNTOUCHED,
            next_step="put the file back from a backup; `penstock wal verify` lists what is there. Without a backup, "
            "move the folder away: the log begins again, and the receiver tells producers that it holds nothing",
        )
    logs = set()
    for number in numbers:
        try:
            header = read_log_id(folder, number)
            if header.number != number:
                raise UnreadableHeader(f"it is segment {header.number} of its log")
        except UnreadableHeader as error:
            raise ConnectionFailed(
                f"{segments.path_of(folder, number)}: {error}",
                safe=UNTOUCHED,
                next_step="use the version of penstock that wrote it, or put the file back from a backup",
            ) from None
        logs.add(header.log)
        if len(logs) > 1:
            raise ConnectionFailed(
                f"{segments.path_of(folder, number)} is a segment of another log than the one before it",
                safe=UNTOUCHED,
                next_step="put the segments of one log into the folder",
            )


def _begin(folder: str, options: LogOptions, now: Callable[[], int], lock: int) -> Log:
    header = Header(1, uuid.uuid4().bytes, now())
    first = encode_record(Kind.LEDGER, canonical(to_document(Ledger())).encode())
    path = segments.create_segment(folder, header, first)
    end = HEADER_BYTES + len(first)
    descriptor = os.open(path, os.O_RDWR)
    log = Log(
        folder,
        options,
        header.log,
        now,
        Ledger(),
        (),
        (),
        lock,
        EndFile(folder),
        1,
        header.created,
        end,
        descriptor,
        0,
        _first_end=end,
    )
    log.write_end()
    return log


def _reopen(
    folder: str,
    options: LogOptions,
    now: Callable[[], int],
    lock: int,
    numbers: Sequence[int],
    end: tuple[int, int] | None,
) -> Log:
    last = segments.read_segment(folder, numbers[-1])
    torn = segments.cut_tail(folder, last.number, _end_of(last, end), end)
    if torn:
        last = segments.read_segment(folder, last.number)
    for damage in last.damages:
        segments.keep_damage(folder, last.number, damage)
    log = Log(
        folder,
        options,
        last.header.log,
        now,
        _read_ledger(folder, numbers, last),
        tuple((last.number, damage) for damage in last.damages),
        (torn,) if torn else (),
        lock,
        EndFile(folder),
        last.number,
        last.header.created,
        last.size,
        os.open(last.path, os.O_RDWR),
        segments.measure(folder, last.number),
        # With a damaged copy of the ledger, older segments could not be deleted.
        _in_doubt=not _has_copy(last),
        _first_end=last.records[0].end if last.records else last.end,
        lost_end=end is None,
    )
    # Another process may have been ended between its write and its sync.
    sync(last.path)
    log.write_end()
    return log


def _end_of(last: segments.Segment, end: tuple[int, int] | None) -> int:
    """Where the last segment ends: with its last whole record, or before damage that no sync had reached.

    A write that was under way when the power failed may be there in part, with a hole. Nothing in it was acknowledged,
    and what its producers send again must not meet the half of it.
    """
    if end is None:
        return last.end
    for damage in last.damages:
        if (last.number, damage.offset) >= end:
            return damage.offset
    # A damaged record below the durable end was acknowledged: it stays, and readers stop at it or skip it.
    return max(last.end, end[1]) if end[0] == last.number and last.size >= end[1] else last.end


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
            ledger = after_batch(ledger, decode_head(record.payload), place)
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
            safe=UNTOUCHED,
            next_step=f"put {os.path.basename(last.path)} back from a backup",
        )
    ledger = Ledger()
    for segment in reversed(after):
        ledger = replay(segment.records, segment.number, ledger)
    return ledger


def _has_copy(segment: segments.Segment) -> bool:
    return bool(segment.records) and segment.records[0].kind == Kind.LEDGER
