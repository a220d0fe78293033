"""Batches are written while the ones before them are synced: none is acknowledged by a record that is not on disk."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.wal.batches import Withdrawal
from penstock.wal.group_commit import GroupCommit
from penstock.wal.ledger import Known, Refuse, Take
from penstock.wal.log import Failed, Log, LogOptions
from penstock.wal.segments import list_numbers
from penstock.wal.verification import verify_log
from tests.wal.test_log import chunk, opened, stored

#: seconds, on a busy machine
PATIENCE = 30


class HeldSync:
    """The next sync waits until it is let go on, and then fails if it was told to."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.error: int | None = None
        self.real = os.fsync

    def __call__(self, descriptor: int) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(PATIENCE)
            if self.error is not None:
                raise OSError(self.error, os.strerror(self.error))
        self.real(descriptor)


@contextmanager
def held(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[GroupCommit, HeldSync]]:
    """A group commit whose first sync is held, with the first chunk of a log in it."""
    sync = HeldSync()
    with monkeypatch.context() as patch, GroupCommit() as group:
        patch.setattr(os, "fsync", sync)
        try:
            yield group, sync
        finally:
            sync.go_on.set()


def wait_until_written(log: Log, number: int) -> None:
    """Until the log's file has the records of so many groups that are not synced."""
    for _ in range(PATIENCE * 100):
        if len(log._unsynced) == number:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{len(log._unsynced)} groups were written")


def numbers(folder: Path) -> list[int]:
    return [each.batch.sender.number for each in stored(folder) if each.batch.sender is not None]  # type: ignore[union-attr]


def test_what_was_written_during_a_sync_that_fails_has_failed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    assert log.append([chunk(1)]) == [Take()]
    with held(log, monkeypatch) as (group, sync):
        second = group.submit(log, chunk(2))
        assert sync.begun.wait(PATIENCE)
        third = group.submit(log, chunk(3))
        wait_until_written(log, 2)
        again = group.submit(log, chunk(2))
        wait_until_written(log, 3)
        sync.error = errno.EIO
        sync.go_on.set()
        outcomes = [each.result(PATIENCE) for each in (second, third, again)]
        assert [type(each) for each in outcomes] == [Failed, Failed, Failed]
        assert group.submit(log, chunk(3)).result(PATIENCE) == Refuse(
            "its predecessor is s2, and the last slice held is s1",
            "`penstock state recover` rebuilds the producer's store from what is held here",
        )
        assert [group.submit(log, chunk(number)).result(PATIENCE) for number in (2, 3)] == [Take(), Take()]
    log.close()
    assert numbers(tmp_path) == [1, 2, 3]
    assert list_numbers(str(tmp_path)) == [1, 2], "the segment in doubt was closed"
    assert verify_log(str(tmp_path)).faults == ()


def test_what_is_being_written_while_a_sync_fails_has_failed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    real = os.pwritev

    def write_after_the_failure(descriptor: int, pieces: list[bytes], offset: int) -> int:
        sync.error = errno.EIO
        sync.go_on.set()
        assert isinstance(first.result(PATIENCE), Failed)
        return real(descriptor, pieces, offset)

    with held(log, monkeypatch) as (group, sync):
        first = group.submit(log, chunk(1))
        assert sync.begun.wait(PATIENCE)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", write_after_the_failure)
            assert isinstance(group.submit(log, chunk(2)).result(PATIENCE), Failed)
        assert [group.submit(log, chunk(number)).result(PATIENCE) for number in (1, 2)] == [Take(), Take()]
    log.close()
    assert numbers(tmp_path) == [1, 2]
    assert verify_log(str(tmp_path)).faults == ()


def test_nothing_is_answered_before_its_own_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is written during a sync waits for the next one; so do retries of it and of the one in the sync."""
    log = opened(tmp_path)
    with held(log, monkeypatch) as (group, sync):
        first = group.submit(log, chunk(1))
        assert sync.begun.wait(PATIENCE)
        others = []
        for each in (chunk(2), chunk(2), chunk(1)):
            others.append(group.submit(log, each))
            wait_until_written(log, 1 + len(others))
        assert not first.done()
        assert not any(each.done() for each in others)
        assert log.ledger.batches == 0, "others see what is on disk"
        sync.go_on.set()
        assert first.result(PATIENCE) == Take()
        # Chunk 1 was followed by chunk 2 when it came again.
        assert [type(each.result(PATIENCE)) for each in others] == [Take, Known, Refuse]
    log.close()
    assert numbers(tmp_path) == [1, 2]


def test_a_write_that_fails_takes_nothing_from_what_was_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    real = os.pwritev

    def fail(descriptor: int, pieces: list[bytes], offset: int) -> int:
        real(descriptor, [b"".join(pieces)[:10]], offset)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with held(log, monkeypatch) as (group, sync):
        first = group.submit(log, chunk(1))
        assert sync.begun.wait(PATIENCE)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", fail)
            assert isinstance(group.submit(log, chunk(2)).result(PATIENCE), Failed)
        after = group.submit(log, chunk(2))
        sync.go_on.set()
        assert first.result(PATIENCE) == Take()
        assert after.result(PATIENCE) == Take()
    log.close()
    assert numbers(tmp_path) == [1, 2]
    assert verify_log(str(tmp_path)).faults == ()


def test_a_new_segment_waits_for_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path, LogOptions(segment_bytes=1000))
    with held(log, monkeypatch) as (group, sync):
        answers = [group.submit(log, chunk(1, body=bytes(600)))]
        assert sync.begun.wait(PATIENCE)
        answers.append(group.submit(log, chunk(2, body=bytes(600))))
        wait_until_written(log, 2)
        answers.append(group.submit(log, chunk(3, body=bytes(600))))
        # So that the third finds the segment full while the second is not synced.
        threading.Event().wait(0.2)
        assert not any(each.done() for each in answers)
        sync.go_on.set()
        assert [each.result(PATIENCE) for each in answers] == [Take()] * 3
    log.close()
    assert numbers(tmp_path) == [1, 2, 3]
    assert list_numbers(str(tmp_path)) == [1, 2]


def test_a_client_that_gives_up_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    with held(log, monkeypatch) as (group, sync):
        gone = group.submit(log, chunk(1))
        assert not gone.cancel(), "it is being written"
        assert sync.begun.wait(PATIENCE)
        sync.go_on.set()
        assert group.submit(log, chunk(2)).result(PATIENCE) == Take()
    log.close()
    assert numbers(tmp_path) == [1, 2]


def test_a_defect_is_answered_as_one_and_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)

    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    with GroupCommit() as group:
        for name in ("penstock.wal.log.encode_batch", "penstock.wal.log.os.fsync"):
            with monkeypatch.context() as patch:
                patch.setattr(name, fail)
                with pytest.raises(RuntimeError, match="a defect"):
                    group.submit(log, chunk(1)).result(PATIENCE)
        assert group.submit(log, chunk(1)).result(PATIENCE) == Take()
        assert group.submit(log, Withdrawal("shop", "s2")).result(PATIENCE) == Take()
    log.close()
    assert numbers(tmp_path) == [1]
