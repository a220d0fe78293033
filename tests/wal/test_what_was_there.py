"""A log that is not what it was: put back from an older copy, or with a clock that was set back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.wal import readers
from penstock.wal.batches import Batch
from penstock.wal.inspection import inspect_log
from penstock.wal.lag import measure_lag
from penstock.wal.ledger import Bare, Chunk, Known, Refuse, Take
from penstock.wal.log import LogOptions
from penstock.wal.opening import open_log
from penstock.wal.segments import list_numbers
from penstock.wal.verification import verify_log
from tests.wal.test_log import SMALL, Clock, chunk, stored

HOUR = 3_600_000_000


def bare(key: str) -> Batch:
    return Batch(Bare("token", key, "d", 3), 3, b"rows")


@pytest.mark.parametrize("options", [LogOptions(), SMALL], ids=["one segment", "many"])
def test_producers_that_are_ahead_of_an_older_copy_are_refused_and_told_what_is_held(
    tmp_path: Path, options: LogOptions
) -> None:
    folder, copy = tmp_path / "log", tmp_path / "copy"
    clock = Clock()
    log = open_log(str(folder), options, clock)
    for number in (1, 2):
        assert log.append([chunk(number, body=bytes(200))]) == [Take()]
    log.close()
    shutil.copytree(folder, copy)
    log = open_log(str(folder), options, clock)
    for number in (3, 4):
        assert log.append([chunk(number, body=bytes(200))]) == [Take()]
    log.close()
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)

    log = open_log(str(folder), options, clock)
    [refused] = log.append([chunk(5)])
    assert isinstance(refused, Refuse)
    assert refused.reason == "its predecessor is s4, and the last slice held is s2"
    assert "state recover" in refused.next_step
    assert log.append([chunk(2, body=bytes(200)), chunk(3, body=b"again")]) == [Known(2), Take()]
    log.close()
    numbers = [each.batch.sender.number for each in stored(folder) if isinstance(each.batch.sender, Chunk)]
    assert numbers == [1, 2, 3]
    assert verify_log(str(folder)).faults == ()


def test_a_log_that_began_again_tells_producers_that_nothing_is_held(tmp_path: Path) -> None:
    """A folder that was lost, or a stream under another name."""
    log = open_log(str(tmp_path), LogOptions(), Clock())
    [refused] = log.append([chunk(5)])
    assert isinstance(refused, Refuse)
    assert refused.reason == "its predecessor is s4, and the last slice held is none"
    assert log.append([chunk(1)]) == [Take()]
    log.close()


def test_a_clock_that_is_set_back_forgets_no_key_and_no_order(tmp_path: Path) -> None:
    clock = Clock()
    options = LogOptions(key_seconds=1800)
    log = open_log(str(tmp_path), options, clock)
    assert log.append([bare("a")]) == [Take()]
    clock.at -= 24 * HOUR
    assert log.append([bare("a"), bare("b")]) == [Known(3), Take()]
    log.close()
    log = open_log(str(tmp_path), options, clock)
    assert log.append([bare("a"), bare("b"), chunk(1)]) == [Known(3), Known(3), Take()]
    times = [each.head.at for each in stored(tmp_path)]
    assert times == sorted(times)
    assert times[0] == times[-1], "the log's clock stands until the machine's has caught up"
    readers.register(str(tmp_path), "lake/orders", clock.at)
    lag = measure_lag(str(tmp_path), clock.at)
    assert lag is not None
    assert lag.readers[0].seconds == 0.0
    clock.at += 25 * HOUR
    assert log.append([bare("a")]) == [Take()], "it has expired by the log's clock"
    log.close()
    assert verify_log(str(tmp_path)).faults == ()


def test_a_clock_that_jumps_ahead_and_back_closes_no_segment_without_end(tmp_path: Path) -> None:
    clock = Clock()
    options = LogOptions(segment_seconds=3600)
    log = open_log(str(tmp_path), options, clock)
    assert log.append([chunk(1)]) == [Take()]
    clock.at += 24 * HOUR
    assert log.append([chunk(2)]) == [Take()]
    clock.at -= 24 * HOUR
    for number in range(3, 7):
        assert log.append([chunk(number)]) == [Take()]
    log.close()
    assert list_numbers(str(tmp_path)) == [1, 2]
    assert all(each.created for each in inspect_log(str(tmp_path)).segments)


def test_other_sizes_and_times_than_before_apply_from_the_next_segment_on(tmp_path: Path) -> None:
    clock = Clock()
    log = open_log(str(tmp_path), LogOptions(), clock)
    log.append([chunk(1, body=bytes(500)), bare("a")])
    log.close()
    log = open_log(str(tmp_path), replace(SMALL, key_seconds=86_400), clock)
    assert log.append([bare("a"), chunk(2)]) == [Known(3), Take()]
    log.close()
    assert list_numbers(str(tmp_path)) == [1, 2]
    assert verify_log(str(tmp_path)).faults == ()
