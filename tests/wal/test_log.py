"""The log on disk: what was acknowledged is there once, whatever is killed, full or damaged."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ConnectionFailed
from penstock.wal import readers
from penstock.wal.batches import Batch, Stored, Withdrawal, decode_batch
from penstock.wal.following import read_log_id
from penstock.wal.frames import Kind, Record
from penstock.wal.group_commit import GroupCommit
from penstock.wal.ledger import Bare, Chunk, Known, Place, Refuse, Take
from penstock.wal.log import Failed, Full, Log, LogOptions
from penstock.wal.opening import open_log
from penstock.wal.segments import list_numbers, path_of, read_segment

SMALL = LogOptions(segment_bytes=100)


class Clock:
    """Moves by a second with every look."""

    def __init__(self) -> None:
        self.at = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.at += 1_000_000
        return self.at


def opened(folder: Path, options: LogOptions = LogOptions()) -> Log:  # noqa: B008 (frozen)
    return open_log(str(folder), options, Clock())


def chunk(number: int, k: int = 1, of: int = 1, *, body: bytes = b"rows", digest: str = "") -> Batch:
    before = f"s{number - 1}" if number > 1 else ""
    return Batch(Chunk("shop", f"s{number}", number, before, k, of, digest or f"{number}.{k}", 2), 2, body)


def stored(folder: Path) -> list[Stored]:
    """All batches of a log, in order."""
    found = []
    for number in list_numbers(str(folder)):
        for record in read_segment(str(folder), number).records:
            if record.kind == Kind.BATCH:
                place = Place(number, record.offset, record.end - record.offset)
                found.append(decode_batch(record.payload, place))
    return found


def delete_before(folder: Path, number: int) -> None:
    readers.register(str(folder), "lake", 1)
    readers.raise_mark(str(folder), "lake", readers.Reader(number, 1, 2))
    readers.delete_read(str(folder))


def read(folder: Path, place: Place) -> Record:
    records = read_segment(str(folder), place.segment).records
    return next(each for each in records if each.offset == place.offset)


def test_batches_come_back_after_a_restart(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.append([chunk(1, 1, 2, body=b"a"), chunk(1, 2, 2, body=b"b")]) == [Take(), Take()]
    log.close()
    first, second = stored(tmp_path)
    assert (first.batch.body, first.readable) == (b"a", ())
    assert [decode_batch(read(tmp_path, p).payload, p).batch.body for p in second.readable] == [b"a", b"b"]
    again = opened(tmp_path)
    assert again.append([chunk(1, 2, 2, body=b"b"), chunk(2)]) == [Known(2), Take()]
    last = again.ledger.producers["shop"].last
    assert last is not None
    assert last.slice == "s2"
    again.close()


def test_segments_begin_with_the_ledger_so_that_older_ones_may_go(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    for number in range(1, 9):
        assert log.append([chunk(number, body=bytes(200))]) == [Take()]
    log.append([Batch(Bare("token", "key", "d", 3), 3, b"x")])
    log.append([chunk(9, 1, 2, body=bytes(400))])
    log.append([chunk(9, 2, 2, body=bytes(400)), chunk(10, 1, 2, body=bytes(500))])
    log.append([Batch(None, 1, b"no key")])
    log.close()
    numbers = list_numbers(str(tmp_path))
    assert len(numbers) > 3
    delete_before(tmp_path, numbers[-1])
    assert list_numbers(str(tmp_path)) == numbers[-2:], "with the chunk of an open slice"
    again = opened(tmp_path, SMALL)
    assert again.append([chunk(9, 2, 2), Batch(Bare("token", "key", "d", 3), 3, b"x")]) == [Known(2), Known(3)]
    assert again.append([chunk(10, 2, 2)]) == [Take()]
    again.close()


def test_an_old_segment_is_closed(tmp_path: Path) -> None:
    log = opened(tmp_path, LogOptions(segment_seconds=3))
    for number in range(1, 6):
        log.append([chunk(number)])
    assert len(list_numbers(str(tmp_path))) > 1
    log.close()


def test_a_repetition_in_the_same_group_is_written_once(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.append([chunk(1), chunk(1), chunk(1, digest="other")])[:2] == [Take(), Known(2)]
    assert len(stored(tmp_path)) == 1
    log.close()


def test_a_withdrawn_slice_is_never_read(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([chunk(1, 1, 2)])
    assert log.append([Withdrawal("shop", "s1"), chunk(1, 1, 1, digest="another")]) == [Take(), Take()]
    log.close()
    log = opened(tmp_path)
    assert isinstance(log.append([Withdrawal("shop", "s1")])[0], Refuse)
    log.close()
    assert [len(each.readable) for each in stored(tmp_path)] == [0, 1]


def test_another_process_has_it_open(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with pytest.raises(ConnectionFailed, match=r"another process has the log in .* open"):
        opened(tmp_path)
    log.close()
    opened(tmp_path).close()


def test_a_torn_tail_is_cut_and_kept(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([chunk(1), chunk(2)])
    log.close()
    path = path_of(str(tmp_path), 1)
    os.truncate(path, os.path.getsize(path) - 3)
    again = opened(tmp_path)
    [torn] = again.torn
    assert torn.path == str(tmp_path / f"000000000001.torn-{again.end[1]}")
    assert Path(torn.path).stat().st_size == torn.bytes > 0
    assert torn.was_acknowledged
    assert again.append([chunk(2)]) == [Take()]
    again.close()
    assert len(stored(tmp_path)) == 2


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    for number in range(1, 7):
        log.append([chunk(number, body=bytes(400))])
    log.close()
    os.remove(path_of(str(tmp_path), 2))
    with pytest.raises(ConnectionFailed, match=r"segment 2 of the log in .* is missing"):
        opened(tmp_path, SMALL)


def test_a_segment_of_another_version_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with open(path_of(str(tmp_path), 1), "r+b") as file:
        file.seek(8)
        file.write(b"\0\x09")
    with pytest.raises(ConnectionFailed, match="it has format 9, and this version of penstock reads format 1"):
        opened(tmp_path)


def test_a_damaged_batch_in_the_middle_is_named_and_its_slice_never_taken_twice(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([chunk(1), chunk(2, 1, 2), chunk(2, 2, 2), chunk(3)])
    log.close()
    place = stored(tmp_path)[1]
    offset = read_segment(str(tmp_path), 1).records[2].offset
    with open(path_of(str(tmp_path), 1), "r+b") as file:
        file.seek(offset + 20)
        file.write(b"\xff")
    assert place.readable == ()
    again = opened(tmp_path)
    assert [damage.offset for _, damage in again.damages] == [offset]
    verdicts = again.append([chunk(2, 1, 2), chunk(2, 2, 2), chunk(3), chunk(4)])
    assert [type(each) for each in verdicts] == [Refuse, Refuse, Known, Take]
    again.close()


def test_a_damaged_copy_of_the_ledger_is_made_good_by_the_segment_before(tmp_path: Path) -> None:
    log = opened(tmp_path, SMALL)
    for number in range(1, 6):
        log.append([chunk(number, body=bytes(400))])
    log.close()
    last = list_numbers(str(tmp_path))[-1]
    with open(path_of(str(tmp_path), last), "r+b") as file:
        file.seek(read_segment(str(tmp_path), last).records[0].offset + 20)
        file.write(b"\xff")
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(path_of(str(tmp_path), last), path_of(str(alone), 1))
    with open(path_of(str(alone), 1), "r+b") as file:
        file.write(replace(read_log_id(str(alone), 1), number=1).encode())
    again = opened(tmp_path, SMALL)
    assert again.append([chunk(5, body=b""), chunk(6)]) == [Known(2), Take()]
    again.close()
    assert list_numbers(str(tmp_path))[-1] == last + 1, "a segment with a whole copy was begun"
    with pytest.raises(ConnectionFailed, match="no whole copy of its ledger"):
        opened(alone, SMALL)


# ---------------------------------------------------------------- no room, failing disks


def test_the_budget_is_kept(tmp_path: Path) -> None:
    log = opened(tmp_path, LogOptions(budget_bytes=1700))
    assert log.append([chunk(1, body=bytes(900))]) == [Take()]
    outcome = log.append([chunk(2, body=bytes(900))])[0]
    assert isinstance(outcome, Full)
    assert log.append([chunk(2)]) == [Take()]
    log.close()
    assert len(stored(tmp_path)) == 2


@pytest.mark.parametrize(("number", "expected"), [(errno.EIO, Failed), (errno.ENOSPC, Full)])
@pytest.mark.parametrize("call", ["fsync", "pwritev"])
def test_what_could_not_be_synced_is_not_acknowledged_and_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, expected: type
) -> None:
    log = opened(tmp_path)
    log.append([chunk(1)])
    real = getattr(os, call)

    def fail(*given: object) -> object:
        if call == "pwritev":
            descriptor, pieces, offset = given
            real(descriptor, [b"".join(pieces)[:10]], offset)  # type: ignore[arg-type]
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        assert isinstance(log.append([chunk(2), chunk(1)])[0], expected)
    assert log.append([chunk(2), chunk(3)]) == [Take(), Take()]
    log.close()
    assert list_numbers(str(tmp_path)) == [1, 2], "the segment in doubt was closed"
    assert [each.batch.sender.number for each in stored(tmp_path) if isinstance(each.batch.sender, Chunk)] == [1, 2, 3]


# ---------------------------------------------------------------- many clients, and a process that is killed


def test_many_clients_share_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = []
    real = os.fsync

    def count(descriptor: int) -> None:
        syncs.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", count)
    logs = [opened(tmp_path / name) for name in "ab"]
    syncs.clear()

    def send(client: int) -> list[object]:
        batches = [Batch(Bare(f"c{client}", f"k{number}", "d", 1), 1, bytes(100)) for number in range(50)]
        return [group.submit(logs[client % 2], each).result(30) for each in batches]

    with GroupCommit() as group, ThreadPoolExecutor(8) as clients:
        assert all(each == Take() for done in clients.map(send, range(8)) for each in done)
    for log in logs:
        log.close()
    assert len(stored(tmp_path / "a")) + len(stored(tmp_path / "b")) == 400
    assert len(syncs) < 400, "each batch had a sync of its own"


WRITER = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from penstock.wal.batches import Batch
from penstock.wal.group_commit import GroupCommit
from penstock.wal.ledger import Chunk
from penstock.wal.log import LogOptions
from penstock.wal.opening import open_log

folder, begin = sys.argv[1], int(sys.argv[2])
log = open_log(folder, LogOptions(segment_bytes=20_000), lambda: time.time_ns() // 1000)
print("open", flush=True)

def send(client):
    held = log.ledger.producers.get(f"c{client}")
    number = held.last.number if held and held.last else 0
    last = held.last.slice if held and held.last else ""
    while True:
        number += 1
        for k in (1, 2):
            if held and held.open and held.open.number == number and k <= len(held.open.digests):
                continue
            chunk = Chunk(f"c{client}", f"s{number}", number, last, k, 2, f"{number}.{k}", 1)
            group.submit(log, Batch(chunk, 1, f"{client}/{number}/{k}/".encode() * 20)).result()
            os.write(1, f"{client} {number} {k}\\n".encode())
        last, held = f"s{number}", None

with GroupCommit() as group, ThreadPoolExecutor(8) as clients:
    list(clients.map(send, range(8)))
"""


def test_killed_in_a_burst_every_acknowledged_batch_is_there_once(tmp_path: Path) -> None:
    """Eight clients; the process is killed again and again. `script/soak wal` does it 200 times."""
    kill_in_bursts(tmp_path, times=6, rng=random.Random(1))


def kill_in_bursts(folder: Path, times: int, rng: random.Random) -> int:
    """Returns how many batches were acknowledged."""
    acknowledged: set[str] = set()
    for _ in range(times):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder / "log"), "0"], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            for _ in range(rng.randrange(1, 150)):
                acknowledged.add(writer.stdout.readline().strip())
            writer.send_signal(signal.SIGKILL)
            acknowledged |= {line.strip() for line in writer.stdout.read().splitlines(keepends=True) if "\n" in line}
        found = [each.batch.sender for each in stored(folder / "log")]
        held = [f"{each.producer[1:]} {each.number} {each.chunk}" for each in found if isinstance(each, Chunk)]
        assert len(held) == len(set(held)), "a batch is there twice"
        assert acknowledged <= set(held), f"lost: {sorted(acknowledged - set(held))[:5]}"
        for client in range(8):
            own = [
                (each.number, each.chunk) for each in found if isinstance(each, Chunk) and each.producer == f"c{client}"
            ]
            assert own == [(1 + at // 2, 1 + at % 2) for at in range(len(own))], "not in order"
    return len(acknowledged)
