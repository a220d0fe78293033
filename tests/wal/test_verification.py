"""Whatever is missing or damaged in a log is found and named by its file and offset; what is whole is called so."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.documents import canonical
from penstock.errors import ConnectionFailed
from penstock.wal import readers
from penstock.wal.batches import Batch, Withdrawal
from penstock.wal.durable_end import EndFile, read_end
from penstock.wal.following import read_log_id
from penstock.wal.frames import HEADER_BYTES, RECORD_BYTES
from penstock.wal.inspection import inspect_log
from penstock.wal.ledger import Bare
from penstock.wal.meta import Meta
from penstock.wal.opening import open_log
from penstock.wal.segments import list_numbers, path_of, read_segment
from penstock.wal.verification import Fault, verify_log
from tests.wal.test_log import SMALL, Clock, chunk, opened


def small_log(folder: Path) -> str:
    """Two segments with all that a log can hold, and a reader."""
    log = opened(folder, replace(SMALL, segment_bytes=700))
    log.append([chunk(1, 1, 2, body=b"a" * 20), chunk(1, 2, 2, body=b"b" * 20)])
    log.append([Batch(Bare("token", "key", "d", 3), 3, b"c" * 20, kind="ops", meta=Meta("shop", 5, 9, 0, 10))])
    log.append([chunk(2, 1, 2), Withdrawal("shop", "s2")])
    log.append([chunk(2, body=b"d" * 20), Batch(None, 1, b"e")])
    log.close()
    readers.register(str(folder), "lake/orders", 1)
    assert len(list_numbers(str(folder))) == 2
    return str(folder)


def records_of(folder: str, number: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of the header and of each record of a segment."""
    yield 0, HEADER_BYTES
    for record in read_segment(folder, number).records:
        yield record.offset, record.end


def test_a_whole_log_has_no_fault(tmp_path: Path) -> None:
    folder = small_log(tmp_path)
    found = verify_log(folder)
    assert found.faults == ()
    assert (found.segments, found.records) == (2, sum(len(read_segment(folder, n).records) for n in (1, 2)))
    assert found.bytes == sum(os.path.getsize(path_of(folder, n)) for n in (1, 2))


def test_a_folder_without_a_log_has_no_fault(tmp_path: Path) -> None:
    assert verify_log(str(tmp_path)).faults == ()


@pytest.mark.parametrize("number", [1, 2])
def test_every_flipped_bit_of_a_segment_is_named_by_its_record(tmp_path: Path, number: int) -> None:
    folder = small_log(tmp_path)
    path = Path(path_of(folder, number))
    whole, places = path.read_bytes(), [*records_of(folder, number)]
    assert places[-1][1] == len(whole)
    for begin, end in places:
        for at in range(begin, end):
            bits = range(8) if at - begin < RECORD_BYTES + 8 else (at % 8,)
            for bit in bits:
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
                faults = verify_log(folder).faults
                named = [(each.file, each.segment, each.offset) for each in faults]
                assert named == [(path.name, number, begin)], (at, bit)
                assert faults[0].end == (end if end < len(whole) else None), (at, bit)


def test_every_flipped_bit_of_the_last_segment_is_found_when_the_log_is_opened(tmp_path: Path) -> None:
    """It is refused, or the damage is kept, named, and not taken for the end of the log."""
    folder = small_log(tmp_path)
    path = Path(path_of(folder, 2))
    whole, places = path.read_bytes(), [*records_of(folder, 2)]
    before = {each: (tmp_path / each).read_bytes() for each in os.listdir(folder)}
    for begin, end in places:
        for at in range(begin, end):
            for name in set(os.listdir(folder)) - set(before):
                os.remove(tmp_path / name)
            for name, content in before.items():
                (tmp_path / name).write_bytes(content)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            if begin == 0:
                with pytest.raises(ConnectionFailed, match=re.escape(str(path))):
                    open_log(folder, SMALL, Clock())
                continue
            log = open_log(folder, SMALL, Clock())
            named = [(segment, damage.offset) for segment, damage in log.damages]
            assert named == [(2, begin)], at
            assert log.end[1] == len(whole), at
            log.close()
            assert (tmp_path / f"000000000002.damaged-{begin}").stat().st_size == end - begin


def test_every_flipped_bit_of_the_durable_end_is_named(tmp_path: Path) -> None:
    folder = small_log(tmp_path)
    path = tmp_path / "end"
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            assert [each.file for each in verify_log(folder).faults] == ["end"], (at, bit)
    path.unlink()
    assert [each.file for each in verify_log(folder).faults] == ["end"]


def test_a_damaged_durable_end_is_said_when_the_log_is_opened_and_written_again(tmp_path: Path) -> None:
    folder = small_log(tmp_path)
    end = read_end(folder)
    (tmp_path / "end").write_bytes(b"\0" * 44)
    log = open_log(folder, SMALL, Clock())
    assert log.lost_end
    log.close()
    assert end is not None
    again = read_end(folder)
    assert again is not None
    assert again.place == end.place
    log = open_log(folder, SMALL, Clock())
    assert not log.lost_end
    log.close()


def test_every_flipped_bit_of_the_readers_is_named(tmp_path: Path) -> None:
    folder = small_log(tmp_path)
    path = tmp_path / "readers.json"
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            faults = verify_log(folder).faults
            assert [each.file for each in faults] == ["readers.json"], (at, bit)
            assert str(path) in faults[0].reason


def test_what_lies_behind_the_durable_end_is_no_damage(tmp_path: Path) -> None:
    """Another process is writing it, or was killed while it did."""
    folder = small_log(tmp_path)
    with open(path_of(folder, 2), "ab") as file:
        file.write(b"half a record")
    assert verify_log(folder).faults == ()


def test_bytes_that_were_acknowledged_and_are_gone_are_named(tmp_path: Path) -> None:
    folder = small_log(tmp_path)
    path = path_of(folder, 2)
    last = read_segment(folder, 2).records[-1]
    os.truncate(path, last.offset)
    [fault] = verify_log(folder).faults
    assert (fault.segment, fault.offset) == (2, last.offset)
    assert fault.reason == f"it ends here, and {last.end - last.offset} bytes more were acknowledged"
    os.remove(path)
    assert verify_log(folder).faults == (Fault("000000000002.wal", "the segment is missing", 2),)


def test_an_earlier_segment_cut_off_between_two_records_is_named(tmp_path: Path) -> None:
    """No checksum is wrong; but the next segment says what was held."""
    folder = small_log(tmp_path)
    for record in reversed(read_segment(folder, 1).records[1:]):
        os.truncate(path_of(folder, 1), record.offset)
        [fault] = verify_log(folder).faults
        assert (fault.segment, fault.offset) == (2, HEADER_BYTES)
        assert "records are missing at the end of segment 1" in fault.reason


def test_segments_of_other_logs_and_missing_ones_are_named(tmp_path: Path) -> None:
    folder = small_log(tmp_path / "a")
    header = read_log_id(folder, 2)
    with open(path_of(folder, 2), "r+b") as file:
        file.write(replace(header, log=b"another log's id").encode())
    [fault] = verify_log(folder).faults
    assert (fault.file, fault.reason) == ("000000000002.wal", "it is a segment of another log than the one before it")
    with open(path_of(folder, 2), "r+b") as file:
        file.write(replace(header, number=7).encode())
    assert verify_log(folder).faults[0].reason == "it is segment 7 of its log"
    with open(path_of(folder, 2), "r+b") as file:
        file.write(header.encode())
    os.remove(path_of(folder, 1))
    assert verify_log(folder).faults == (Fault("000000000001.wal", "the segment is missing", 1),)


def test_keys_that_expired_are_no_fault(tmp_path: Path) -> None:
    log = opened(tmp_path, replace(SMALL, key_seconds=3))
    for number in range(6):
        log.append([Batch(Bare("token", f"k{number}", "d", 1), 1, bytes(200))])
    log.close()
    assert len(list_numbers(str(tmp_path))) > 3
    assert verify_log(str(tmp_path)).faults == ()


def test_a_registry_that_was_altered_by_hand_is_named(tmp_path: Path) -> None:
    folder = small_log(tmp_path)
    document = json.loads((tmp_path / "readers.json").read_text())
    document["floor"] = 2
    (tmp_path / "readers.json").write_text(canonical(document))
    [fault] = verify_log(folder).faults
    assert "its checksum is wrong" in fault.reason


def test_a_durable_end_beyond_all_segments_is_named(tmp_path: Path) -> None:
    folder = small_log(tmp_path)
    end = read_end(folder)
    assert end is not None
    file = EndFile(folder)
    file.write(replace(end, segment=4))
    file.close()
    assert [(each.segment, each.reason) for each in verify_log(folder).faults] == [
        (3, "the segment is missing"),
        (4, "the segment is missing"),
    ]


def test_a_log_that_is_written_and_read_meanwhile_has_no_fault(tmp_path: Path) -> None:
    """Looks at it take no lock: segments are begun, written and deleted while they are read."""
    folder = str(tmp_path)
    stop, problems = threading.Event(), list[object]()
    log = opened(tmp_path, replace(SMALL, segment_bytes=400))
    readers.register(folder, "lake/orders", 1)

    def look() -> None:
        while not stop.is_set():
            try:
                problems.extend(verify_log(folder).faults)
                state = inspect_log(folder)
                problems.extend([*state.missing, *(each for one in state.segments for each in one.damages)])
                problems.extend([] if state.ledger is not None else ["no ledger"])
            except Exception as error:  # noqa: BLE001 (asserted below, in the test's own thread)
                problems.append(error)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for each in lookers:
        each.start()
    for number in range(1, 400):
        log.append([chunk(number, body=os.urandom(150))])
        if number % 20 == 0:
            readers.raise_mark(folder, "lake/orders", readers.Reader(log.end[0], number, 2))
            readers.delete_read(folder)
    stop.set()
    for each in lookers:
        each.join(60)
    log.close()
    assert problems == []
    assert list_numbers(folder)[0] > 100
