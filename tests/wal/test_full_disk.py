"""A disk that is full, or fails: nothing that was acknowledged is lost, and the log goes on when there is room."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ConnectionFailed
from penstock.wal import readers
from penstock.wal.batches import Batch, Withdrawal
from penstock.wal.ledger import Chunk, Known, Take
from penstock.wal.log import RESERVE_BYTES, Failed, Full, Log, LogOptions
from penstock.wal.opening import open_log
from penstock.wal.segments import list_kept, list_numbers, path_of
from penstock.wal.verification import verify_log
from tests.wal.disks import small_disk
from tests.wal.test_log import Clock, chunk, opened, stored

#: two segments and a bit fit on the disk
OPTIONS = LogOptions(segment_bytes=200_000)
SIZE = 768 << 10
BODY = 20_000


def numbers_of(folder: Path) -> list[int]:
    return [each.batch.sender.number for each in stored(folder) if isinstance(each.batch.sender, Chunk)]


def fill(log: Log, first: int = 1) -> int:
    """Send slices until the log is full; the last one that was taken."""
    number = first
    while (outcome := log.append([chunk(number, body=os.urandom(BODY))])[0]) == Take():
        number += 1
    assert isinstance(outcome, Full)
    assert outcome.reason == "the disk under the log is full"
    return number - 1


def test_a_full_disk_loses_nothing_and_the_log_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", SIZE, monkeypatch) as disk:
        folder = disk / "orders"
        log = opened(folder, OPTIONS)
        last = fill(log)
        assert last > 20
        assert log.append([chunk(last)]) == [Known(2)], "what is held is still answered"
        assert verify_log(str(folder)).faults == ()
        assert numbers_of(folder) == [*range(1, last + 1)]
        # What lets segments go can be written on the full disk: the log leaves room for it.
        readers.register(str(folder), "lake/orders", 1)
        readers.raise_mark(str(folder), "lake/orders", readers.Reader(log.end[0], 1, 2))
        gone = readers.delete_read(str(folder))
        assert gone
        assert fill(log, last + 1) > last
        log.close()
        assert verify_log(str(folder)).faults == ()


def test_a_slice_is_withdrawn_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", SIZE, monkeypatch) as disk:
        log = opened(disk / "orders", OPTIONS)
        other = Batch(Chunk("other", "o1", 1, "", 1, 2, "d", 2), 2, b"rows")
        assert log.append([other]) == [Take()]
        number = fill(log) + 1
        while log.append([chunk(number)]) == [Take()]:
            number += 1
        assert log.append([Withdrawal("other", "o1"), other]) == [Take(), Full("the disk under the log is full")]
        assert log.ledger.producers["other"].open is None
        log.close()


def test_others_who_fill_the_disk_to_the_last_byte_lose_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", SIZE, monkeypatch) as disk:
        folder = disk / "orders"
        log = opened(folder, OPTIONS)
        assert log.append([chunk(1, body=os.urandom(BODY))]) == [Take()]
        # The log looks at the disk before it writes; the room goes while it does.
        monkeypatch.setattr("penstock.wal.log.RESERVE_BYTES", -SIZE)
        (disk / "others").write_bytes(b"")
        with open(disk / "others", "ab", buffering=0) as others:
            room = os.statvfs(disk).f_bavail * 4096 - 8192
            others.write(bytes(room))
            others.flush()
        outcomes = log.append([chunk(2, body=os.urandom(BODY)), chunk(3, body=os.urandom(BODY))])
        assert [type(each) for each in outcomes] == [Full, Full]
        log.close()
        # A restart finds half a record, which nobody acknowledged, and no room for a copy of it.
        again = open_log(str(folder), OPTIONS, Clock())
        [torn] = again.torn
        assert (torn.path, torn.was_acknowledged) == (None, False)
        assert torn.bytes > 0
        assert list_kept(str(folder)) == []
        assert verify_log(str(folder)).faults == ()
        assert numbers_of(folder) == [1]
        assert isinstance(again.append([chunk(2, body=os.urandom(BODY))])[0], Full)
        (disk / "others").unlink()
        assert again.append([chunk(2, body=os.urandom(BODY))]) == [Take()]
        again.close()
        assert numbers_of(folder) == [1, 2]


def test_an_acknowledged_end_that_cannot_be_kept_is_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", SIZE, monkeypatch) as disk:
        folder = disk / "orders"
        log = opened(folder, OPTIONS)
        log.append([chunk(1), chunk(2, body=os.urandom(BODY))])
        log.close()
        path = path_of(str(folder), 1)
        os.truncate(path, os.path.getsize(path) - 3)
        torn = Path(path).read_bytes()
        (disk / "others").write_bytes(bytes(os.statvfs(disk).f_bavail * 4096 - 8192))
        with pytest.raises(ConnectionFailed, match="cannot be opened: No space left on device"):
            opened(folder, OPTIONS)
        assert Path(path).read_bytes() == torn
        (disk / "others").unlink()
        again = opened(folder, OPTIONS)
        assert again.torn[0].was_acknowledged
        assert again.append([chunk(2, body=b"x")]) == [Take()]
        again.close()


def test_the_reserve_is_left_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", SIZE, monkeypatch) as disk:
        log = opened(disk / "orders", OPTIONS)
        fill(log)
        found = os.statvfs(disk)
        assert RESERVE_BYTES - 8192 <= found.f_bavail * found.f_frsize < RESERVE_BYTES + 2 * BODY
        log.close()


# ---------------------------------------------------------------- a disk that fails


def test_after_a_failed_sync_nothing_is_acknowledged_until_the_segment_was_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the kernel may have dropped what was written: only the disk says what is there."""
    log = opened(tmp_path)
    assert log.append([chunk(1, body=b"one" * 100), chunk(2)]) == [Take(), Take()]
    path, end = path_of(str(tmp_path), 1), log.end[1]
    real, calls = os.fsync, []

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        first = log.append([chunk(2), chunk(3)])
        assert [type(each) for each in first] == [Failed, Failed], "not even what is held is confirmed"
        assert isinstance(log.append([chunk(3)])[0], Failed), "the cut is not on disk either"
        assert len(calls) == 2
    # A page with acknowledged records was dropped: the disk has zeros there.
    whole = Path(path).read_bytes()
    with open(path, "r+b") as file:
        file.seek(end - 10)
        file.write(bytes(10))
    outcome = log.append([chunk(3)])[0]
    assert isinstance(outcome, Failed)
    assert list_numbers(str(tmp_path)) == [1], "no segment follows one that lacks records"
    with open(path, "r+b") as file:
        file.write(whole[:end])
    assert log.append([chunk(2), chunk(3)]) == [Known(2), Take()]
    assert list_numbers(str(tmp_path)) == [1, 2]
    assert os.fsync is real
    log.close()
    assert numbers_of(tmp_path) == [1, 2, 3]
    assert verify_log(str(tmp_path)).faults == ()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_segment_that_cannot_be_begun_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = opened(tmp_path, replace(OPTIONS, segment_bytes=100))
    assert log.append([chunk(1, body=bytes(200))]) == [Take()]

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("penstock.wal.segments.write_bytes_durably", fail)
        outcome = log.append([chunk(2)])[0]
        assert isinstance(outcome, Full if number == errno.ENOSPC else Failed)
    assert os.listdir(tmp_path).count("000000000002.wal.new") == 0
    assert log.append([chunk(2)]) == [Take()]
    log.close()
    assert numbers_of(tmp_path) == [1, 2]
    assert list_kept(str(tmp_path)) == []
