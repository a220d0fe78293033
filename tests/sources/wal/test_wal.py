"""What a wal stream does when its log is not what it was, and what is sent again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sources.wal.logs import Orders

from penstock.core.documents import canonical
from penstock.core.slices import Slice
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused
from penstock.ports import Rewinding, Source
from penstock.testing.contracts.source import drain, prepare
from penstock.wal import readers
from penstock.wal.folders import folder_of
from penstock.wal.following import read_log_id
from penstock.wal.frames import HEADER_BYTES, Kind, decode_header, encode_record
from penstock.wal.ledger import Chunk, Ledger, to_document
from penstock.wal.segments import create_segment, list_numbers, path_of, read_segment


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def folder(orders: Orders) -> str:
    return folder_of(str(orders.directory), orders.stream)


def ids(moved: Sequence[object]) -> list[int]:
    return [row[0] for one in moved for row in one.rows]  # type: ignore[attr-defined]


def read_all(source: Source, orders: Orders) -> Slice:
    return drain(source, orders)[-1].slice


def flip(path: str, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def refused(orders: Orders, last: Slice) -> PenstockError:
    source = orders.open()
    with pytest.raises(StreamRefused) as error:
        source.accept(orders.stream, last.position, source.content(orders.stream))
    assert error.value.next_step
    return error.value


def test_nobody_has_sent_anything(orders: Orders) -> None:
    source = orders.open()
    content = source.content(orders.stream)
    assert list(prepare(source, orders.stream, content, None)) == []
    assert source.ceiling(orders.stream, content, "run") is None


def test_there_is_no_receiver(tmp_path: Path) -> None:
    orders = Orders(tmp_path)
    shutil.rmtree(orders.directory)
    with pytest.raises(ConnectionFailed, match=r"there is no folder .*wal"):
        orders.open().connect()


def test_a_log_from_an_older_copy_is_refused(orders: Orders) -> None:
    orders.arrive(4)
    shutil.copytree(orders.directory, orders.folder / "copy")
    orders.arrive(12)
    last = read_all(orders.open(), orders)
    shutil.rmtree(orders.directory)
    shutil.copytree(orders.folder / "copy", orders.directory)
    assert "older copy" in refused(orders, last).what or "lacks segment" in refused(orders, last).what


def test_another_log_is_refused(orders: Orders) -> None:
    orders.arrive(4)
    last = read_all(orders.open(), orders)
    shutil.rmtree(folder(orders))
    orders.arrive(4)
    assert "is another one" in refused(orders, last).what


def test_a_mark_below_the_floor_is_refused(orders: Orders) -> None:
    orders.arrive(4)
    first = read_all(orders.open(), orders)
    orders.arrive(400)
    readers.register(folder(orders), "contract/shop/orders", 1)
    readers.raise_mark(folder(orders), "contract/shop/orders", readers.Reader(list_numbers(folder(orders))[-1], 9, 2))
    assert readers.delete_read(folder(orders))
    assert "were deleted" in refused(orders, first).what


def test_segments_go_as_the_stream_advances(orders: Orders) -> None:
    source = orders.open()
    orders.arrive(400)
    prepare(source, orders.stream, source.content(orders.stream), None)
    before = list_numbers(folder(orders))
    last = read_all(source, orders)
    source.advanced(orders.stream, last.position)  # type: ignore[attr-defined]  # a capability
    assert list_numbers(folder(orders)) == before[-1:]
    source.accept(orders.stream, last.position, source.content(orders.stream))


def test_what_a_producer_sends_again_is_left_out(orders: Orders) -> None:
    """A receiver that has lost its ledger takes a slice a second time; the mark knows that it was delivered."""
    orders.arrive(12)
    last = read_all(orders.open(), orders)
    log = folder(orders)
    number = list_numbers(log)[-1] + 1
    header = replace(read_log_id(log, number - 1), number=number)
    create_segment(log, header, encode_record(Kind.LEDGER, canonical(to_document(Ledger())).encode()))
    again, new = Chunk("shop", "s1", 1, "", 1, 1, "d", 2), Chunk("shop", "s2", 2, "s1", 1, 1, "e", 2)
    orders.send(orders.batch([5, 6], again), orders.batch([13, 14], new))
    assert ids(drain(orders.open(), orders, last.position)) == [13, 14]


def test_a_damaged_record_stops_the_stream_or_is_left_out(orders: Orders) -> None:
    orders.arrive(4)
    orders.arrive(4)
    records = read_segment(folder(orders), 1).records
    flip(path_of(folder(orders), 1), records[1].end - 1)
    with pytest.raises(StreamFailed, match=r"offset \d+ of .*000000000001.wal is damaged: its checksum is wrong"):
        drain(orders.open(), orders)
    orders.options["damaged"] = "skip"
    assert ids(drain(orders.open(), orders)) == [5, 6, 7, 8]


def test_bytes_that_are_no_record_stop_the_stream_or_are_left_out(orders: Orders) -> None:
    orders.arrive(4)
    orders.arrive(4)
    flip(path_of(folder(orders), 1), read_segment(folder(orders), 1).records[1].offset)
    with pytest.raises(StreamRefused, match=r"offset \d+ of .*000000000001.wal is damaged: no whole record"):
        drain(orders.open(), orders)
    orders.options["damaged"] = "skip"
    assert ids(drain(orders.open(), orders)) == [5, 6, 7, 8]


HEADERS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "another version": (lambda raw: raw[:8] + b"\0\x09" + raw[10:], "it has format 9, and this version"),
    "a flipped bit": (lambda raw: raw[:30] + bytes([raw[30] ^ 1]) + raw[31:], "the checksum of its header is wrong"),
    "another log": (
        lambda raw: replace(decode_header(raw), log=b"another log's id").encode(),
        "it is a segment of another log than the one before it",
    ),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_segment_with_another_header_stops_the_stream(orders: Orders, case: str) -> None:
    """Its records may be whole: what they mean is not known."""
    orders.arrive(400)
    change, said = HEADERS[case]
    number = list_numbers(folder(orders))[2]
    path = Path(path_of(folder(orders), number))
    raw = path.read_bytes()
    path.write_bytes(change(raw[:HEADER_BYTES]) + raw[HEADER_BYTES:])
    with pytest.raises(StreamRefused, match=f"{number:012}.wal: {said}"):
        drain(orders.open(), orders)


def test_a_log_of_another_version_stops_the_stream_before_and_after_its_first_slice(orders: Orders) -> None:
    orders.arrive(4)
    last = read_all(orders.open(), orders)
    path = Path(path_of(folder(orders), 1))
    path.write_bytes(path.read_bytes()[:8] + b"\0\x09" + path.read_bytes()[10:])
    with pytest.raises(StreamRefused, match=r"000000000001.wal: it has format 9, and this version") as raised:
        drain(orders.open(), orders)
    assert "use the version of penstock that wrote it" in raised.value.next_step
    assert "it has format 9" in refused(orders, last).what


@pytest.mark.parametrize("damaged", ["stop", "skip"])
def test_an_earlier_segment_that_ends_too_early_stops_the_stream(orders: Orders, damaged: str) -> None:
    """Cut off between two records, no checksum is wrong; but each batch says how many there were before it."""
    orders.options["damaged"] = damaged
    orders.arrive(400)
    numbers = list_numbers(folder(orders))
    last = read_all(orders.open(), orders)
    begin = drain(orders.open(), orders)
    records = read_segment(folder(orders), numbers[1]).records
    os.truncate(path_of(folder(orders), numbers[1]), records[-2].offset)
    first = read_segment(folder(orders), numbers[2]).records[1]
    with pytest.raises(StreamRefused, match=f"2 batches .* missing before {numbers[2]}:{first.offset}") as raised:
        drain(orders.open(), orders)
    assert f"penstock rewind FILE --to {numbers[2]}:{first.offset} --stream {orders.stream}" in raised.value.next_step
    source = orders.open()
    assert isinstance(source, Rewinding)
    mark = source.mark_at(orders.stream, source.content(orders.stream), None, f"{numbers[2]}:{first.offset}")
    behind = ids(drain(source, orders, replace(last.position, mark=mark)))
    assert behind == ids(begin)[-len(behind) :]
    assert len(behind) > 100
    assert ids(drain(orders.open(), orders, last.position)) == []


def test_a_value_that_does_not_fit_names_column_and_place(orders: Orders) -> None:
    orders.arrive(4)
    orders.options["columns"] = {"note": "int64"}
    orders.options["primary_key"] = ()
    with pytest.raises(StreamFailed, match=r"a value that does not fit note, which is int64"):
        drain(orders.open(), orders)


def test_nothing_beyond_the_durable_end_is_read(orders: Orders) -> None:
    orders.arrive(4)
    path = path_of(folder(orders), 1)
    size = os.path.getsize(path)
    end = Path(folder(orders)) / "end"
    known = end.read_bytes()
    orders.arrive(4)
    end.write_bytes(known)
    assert os.path.getsize(path) > size > HEADER_BYTES
    assert ids(drain(orders.open(), orders)) == [1, 2, 3, 4]
