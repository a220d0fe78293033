"""Segments are kept until every reader is past them, and a floor says what is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.wal import readers
from penstock.wal.batches import Batch
from penstock.wal.segments import list_numbers
from tests.wal.test_log import SMALL, chunk, opened


@pytest.fixture
def folder(tmp_path: Path) -> str:
    log = opened(tmp_path, SMALL)
    for number in range(1, 6):
        log.append([chunk(number, body=bytes(500))])
    log.close()
    assert list_numbers(str(tmp_path)) == [1, 2, 3, 4, 5]
    return str(tmp_path)


def test_without_a_reader_everything_stays(folder: str) -> None:
    assert readers.delete_read(folder) == []


def test_the_slowest_reader_decides(folder: str) -> None:
    assert readers.register(folder, "lake", 1).segment == 1
    readers.register(folder, "shop", 1)
    readers.raise_mark(folder, "lake", readers.Reader(4, 1, 2))
    assert readers.delete_read(folder) == []
    readers.raise_mark(folder, "shop", readers.Reader(3, 1, 2))
    assert readers.delete_read(folder) == [1, 2]
    assert (list_numbers(folder), readers.read_registry(folder).floor) == ([3, 4, 5], 3)
    assert readers.drop(folder, "shop")
    assert not readers.drop(folder, "shop")
    assert readers.delete_read(folder) == [3]
    assert readers.register(folder, "late", 5).segment == 4


def test_the_last_segment_stays(folder: str) -> None:
    readers.register(folder, "lake", 1)
    readers.raise_mark(folder, "lake", readers.Reader(9, 1, 2))
    assert readers.delete_read(folder) == [1, 2, 3, 4]


def test_a_late_call_of_a_replaced_run_lowers_nothing(folder: str) -> None:
    readers.register(folder, "lake", 1)
    readers.raise_mark(folder, "lake", readers.Reader(4, 7, 2))
    readers.raise_mark(folder, "lake", readers.Reader(2, 6, 3))
    assert readers.read_registry(folder).readers["lake"] == readers.Reader(4, 7, 2)


def test_a_rewind_lowers_a_mark(folder: str) -> None:
    readers.register(folder, "lake", 1)
    readers.raise_mark(folder, "lake", readers.Reader(4, 7, 2))
    readers.raise_mark(folder, "lake", readers.Reader(2, 8, 4))
    assert readers.delete_read(folder) == [1]


def test_a_reader_that_was_dropped_is_told(folder: str) -> None:
    with pytest.raises(InputError, match="shop is no reader"):
        readers.raise_mark(folder, "shop", readers.Reader(2, 1, 1))


def test_the_floor_is_on_disk_before_a_segment_is_gone(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readers.register(folder, "lake", 1)
    readers.raise_mark(folder, "lake", readers.Reader(4, 1, 2))
    floors = []
    real = os.remove

    def look(path: str) -> None:
        floors.append(readers.read_registry(folder).floor)
        real(path)

    monkeypatch.setattr(os, "remove", look)
    readers.delete_read(folder)
    assert floors == [4, 4, 4]


def test_the_chunks_of_a_slice_stay_until_it_can_be_read(tmp_path: Path) -> None:
    folder = str(tmp_path)
    log = opened(tmp_path, SMALL)
    log.append([chunk(1, 1, 3, body=bytes(500))])
    log.append([chunk(1, 2, 3, body=bytes(500))])
    for _ in range(3):
        log.append([Batch(None, 1, bytes(500))])
    readers.register(folder, "lake", 1)
    readers.raise_mark(folder, "lake", readers.Reader(4, 1, 2))
    assert readers.delete_read(folder) == []
    log.append([chunk(1, 3, 3, body=bytes(500))])
    log.append([Batch(None, 1, bytes(500))])
    log.append([Batch(None, 1, bytes(500))])
    log.close()
    readers.raise_mark(folder, "lake", readers.Reader(list_numbers(folder)[-1], 2, 3))
    assert readers.delete_read(folder) == list(range(1, list_numbers(folder)[-1]))
