"""Places of a log, as marks and users name them: whether a mark still fits, and where a rewind leads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container
from dataclasses import replace
from datetime import UTC, datetime

from penstock.core.marks import Mark
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.sources.wal.marks import LogPosition, sent_by
from penstock.wal import readers
from penstock.wal.durable_end import End, read_end
from penstock.wal.folders import folder_of, list_streams
from penstock.wal.following import Found, follow_segment, head_at, read_log_id
from penstock.wal.frames import HEADER_BYTES, UnreadableHeader
from penstock.wal.ledger import Chunk, Ledger
from penstock.wal.segments import list_numbers, path_of, read_copy

_PLACE = re.compile(r"(\d{1,12}):(\d{1,18})")
#: rewinds to the beginning of a log that was put back from an older copy
RESTORED = "restored"


def first(folder: str) -> LogPosition:
    """The beginning of what is kept."""
    return _beginning(folder, readers.read_registry(folder).floor)


def _beginning(folder: str, segment: int) -> LogPosition:
    ledger = read_copy(folder, segment) or Ledger()
    log = read_header(folder, segment)
    return LogPosition(log, segment, HEADER_BYTES, batches=ledger.batches, rows=ledger.rows)


def read_header(folder: str, segment: int, log: str = "") -> str:
    """The identity of a segment's log. StreamRefused if no header can be read, or it is another log than `log`."""
    path = path_of(folder, segment)
    try:
        header = read_log_id(folder, segment)
        if header.number != segment:
            raise UnreadableHeader(f"it is segment {header.number} of its log")
        if log and header.log.hex() != log:
            raise UnreadableHeader("it is a segment of another log than the one before it")
    except UnreadableHeader as error:
        raise StreamRefused(
            f"{path}: {error}",
            safe=UNTOUCHED,
            next_step="use the version of penstock that wrote it, or put the file back from a backup",
        ) from None
    return header.log.hex()


def require_mark(folder: str, at: LogPosition, stream: str) -> None:
    """StreamRefused if the log is not the one that was read up to there."""
    floor = readers.read_registry(folder).floor if os.path.isdir(folder) else 1
    if at.segment < floor:
        raise below_floor(at.segment, floor, stream)
    try:
        log = read_header(folder, at.segment)
    except FileNotFoundError:
        log = ""
    if log != at.log:
        raise _refused(
            f"the log in {folder} is another one than the stream was read from, or lacks segment {at.segment}",
            f"put the log back. If it is gone: {_ways_out(stream)}",
            stream,
        )
    if at.begins is not None:
        head = head_at(folder, at.segment, at.begins)
        if head is None or (at.begins + head.size, head.checksum) != (at.offset, at.checksum):
            raise _refused(
                f"the log in {folder} has no record that ends at {at.segment}:{at.offset} as it was read: it was put "
                "back from an older copy, or is damaged there",
                f"put the newest copy back. If there is none: {_ways_out(stream)}",
                stream,
            )


def _ways_out(stream: str) -> str:
    return (
        f"`penstock rewind FILE --to {RESTORED} --stream {stream}` reads what is there, without the slices of "
        "producers that were delivered before (batches that were sent without slices are delivered again); "
        f"`penstock state reset FILE --stream {stream}` reads all of it again"
    )


def below_floor(segment: int, floor: int, stream: str) -> StreamRefused:
    return _refused(
        f"the stream was read up to segment {segment}, and segments before {floor} were deleted: its reader was "
        "dropped, or the store was put back from an older copy",
        f"batches in between are gone; `penstock state reset FILE --stream {stream}` starts from what is there",
        stream,
    )


def _refused(what: str, next_step: str, stream: str) -> StreamRefused:
    return StreamRefused(what, safe=UNTOUCHED, next_step=next_step, stream=stream)


def unread(directory: str, streams: Container[str]) -> list[str]:
    """Streams below a directory that no pipeline reads."""
    found = []
    for stream in list_streams(directory):
        folder = folder_of(directory, stream)
        if stream not in streams and read_end(folder) and not readers.read_registry(folder).readers:
            found.append(stream)
    return found


# ---------------------------------------------------------------- rewinds


def find_mark(folder: str, last: LogPosition | None, to: str, stream: str) -> Mark | None:
    """The mark for SEGMENT:OFFSET, a timestamp, `start` or `restored`; None: the beginning."""
    if to == "start":
        return None
    end = read_end(folder)
    if end is None:
        raise _refused(f"the log in {folder} is empty", "send something first", stream)
    if to == RESTORED:
        sent = last.sent if last else {}
        begin = first(folder)
        return LogPosition(begin.log, begin.segment, begin.offset, None, 0, begin.batches, begin.rows, sent).mark()
    if place := _PLACE.fullmatch(to):
        return _mark_before(folder, (int(place[1]), int(place[2])), end, stream).mark()
    try:
        time = datetime.fromisoformat(to)
    except ValueError:
        raise _refused(
            f"'{to}' is no place of a log",
            "name SEGMENT:OFFSET as `penstock wal inspect` prints it, a timestamp such as 2026-11-15T06:00:00Z, "
            f"`start`, or `{RESTORED}` for a log that was put back from an older copy",
            stream,
        ) from None
    at = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    return _mark_before_time(folder, at, end).mark()


def _mark_before(folder: str, place: tuple[int, int], end: End, stream: str) -> LogPosition:
    """The mark after which a place is read next."""
    segment, offset = place
    if segment not in list_numbers(folder) or place > end.place:
        raise _refused(f"the log has no place {segment}:{offset}", "`penstock wal inspect FILE` lists segments", stream)
    position = _walk(folder, segment, end, lambda found: found.place.offset >= offset)
    if position.offset != max(offset, HEADER_BYTES):
        near = f"{position.segment}:{position.offset}"
        raise _refused(
            f"no record begins at {segment}:{offset}; the last one before it ends at {near}",
            f"`penstock rewind FILE --to {near} --stream {stream}`",
            stream,
        )
    return position


def _mark_before_time(folder: str, at: int, end: End) -> LogPosition:
    """The mark after which the first record of a time, or a later one, is read next."""
    floor = readers.read_registry(folder).floor
    numbers = [number for number in list_numbers(folder) if number >= floor]
    earlier = [number for number in numbers if read_log_id(folder, number).created < at]
    return _walk(folder, (earlier or numbers)[-1 if earlier else 0], end, lambda found: _time(found) >= at)


def _time(found: Found) -> int:
    return found.batch.at if found.batch is not None else 0


def _walk(folder: str, segment: int, end: End, is_there: Callable[[Found], bool]) -> LogPosition:
    """The mark before the first record of a segment that is the one; else at the end of the segment."""
    position = _beginning(folder, segment)
    position = replace(position, sent=sent_by(read_copy(folder, segment) or Ledger()))
    upto = end.offset if segment == end.segment else os.path.getsize(path_of(folder, segment))
    for found in follow_segment(folder, segment, HEADER_BYTES, upto):
        if not isinstance(found, Found):
            continue
        if is_there(found):
            break
        batch = found.batch
        position = replace(position, offset=found.end, begins=found.place.offset, checksum=found.checksum)
        if batch is not None:
            position = replace(position, batches=batch.total[0], rows=batch.total[1])
            if batch.before is not None and isinstance(batch.sender, Chunk):
                position = position.with_slice(batch.sender)
    return position
