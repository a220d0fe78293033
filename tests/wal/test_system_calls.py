"""SIGKILL does not test fsync: what is on disk before what is said, and in which order, by the system calls."""

from __future__ import annotations

import codecs
import os
import re
import struct
import sys
from pathlib import Path

import pytest

from penstock.wal.durable_end import End
from penstock.wal.segments import list_numbers
from tests.harness.system_calls import Call, Trace, follows, parse, trace

#: eight clients, each with 12 batches; segments are small, and a reader lets the first ones go
DRIVER = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from penstock.wal import readers
from penstock.wal.batches import Batch
from penstock.wal.group_commit import GroupCommit
from penstock.wal.ledger import Bare, Take
from penstock.wal.log import LogOptions
from penstock.wal.opening import open_log

folder = sys.argv[1]
log = open_log(folder, LogOptions(segment_bytes=3000), lambda: time.time_ns() // 1000)

def send(client):
    for number in range(12):
        key = f"key-{client}-{number}."
        outcome = group.submit(log, Batch(Bare("token", key, "d", 1), 1, b"rows")).result()
        assert outcome == Take(), outcome
        os.write(1, f"{key}\\n".encode())

with GroupCommit() as group, ThreadPoolExecutor(8) as clients:
    list(clients.map(send, range(8)))
readers.register(folder, "lake/orders", 1)
readers.raise_mark(folder, "lake/orders", readers.Reader(log.end[0], 1, 2))
assert readers.delete_read(folder)
log.close()
"""
#: opens a log whose last segment has a torn end
REOPEN = """
import sys, time
from penstock.wal.log import LogOptions
from penstock.wal.opening import open_log

log = open_log(sys.argv[1], LogOptions(), lambda: time.time_ns() // 1000)
assert log.torn
print("open", flush=True)
log.close()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traced") / "received" / "orders"


@pytest.fixture(scope="module")
def traced(folder: Path) -> Trace:
    return trace([sys.executable, "-c", DRIVER, str(folder)], folder.parents[1] / "trace")


def writes(traced: Trace) -> list[Call]:
    """Of records, into segments."""
    return [each for each in traced.find("pwritev2") if each.path.endswith(".wal")]


def test_each_answer_comes_after_the_sync_of_its_record(traced: Trace) -> None:
    answers = [each for each in traced.find("write") if re.fullmatch(r"key-\d-\d+\.\\n", (each.strings or [""])[0])]
    assert len(answers) == 96
    for answer in answers:
        key = answer.strings[0].removesuffix("\\n")
        [written] = [each for each in writes(traced) if key in each.arguments]
        assert written.ended < answer.begun
        assert traced.is_synced(written, answer), key


def test_clients_share_syncs(traced: Trace) -> None:
    assert 8 < len([each for each in traced.find("fsync") if each.path.endswith(".wal")]) < 96


def test_a_segment_has_its_ledger_and_its_name_on_disk_before_anything_else_is_written_to_it(
    traced: Trace, folder: Path
) -> None:
    renames = [each for each in traced.find("rename") if each.strings[1].endswith(".wal")]
    assert len(renames) > 2
    for renamed in renames:
        new, path = renamed.strings
        assert (new, os.path.dirname(path)) == (f"{path}.new", str(folder))
        written, synced = traced.one("write", new, text="penstock"), traced.one("fsync", new)
        of_names = next(each for each in traced.find("fsync", folder) if each.begun > renamed.ended)
        assert follows(written, synced, renamed, of_names)
        first = next((each for each in writes(traced) if each.path == path), None)
        assert first is None or of_names.ended < first.begun


def test_new_folders_are_on_disk_before_the_first_segment(traced: Trace, folder: Path) -> None:
    first = traced.one("rename", text="000000000001.wal.new")
    for made in (folder, folder.parent):
        created = next(each for each in traced.calls if each.name in ("mkdir", "mkdirat") and each.path == str(made))
        assert any(follows(created, each, first) for each in traced.find("fsync", made.parent)), made


def test_readers_are_told_of_nothing_that_is_not_on_disk(traced: Trace, folder: Path) -> None:
    """The durable end is written after the sync of what lies before it."""
    told = traced.find("pwrite64", folder / "end")
    assert len(told) > 8
    before = 0
    for call in told:
        end = End(*struct.unpack_from(">QQQQQ", codecs.escape_decode(call.strings[0])[0]))
        for written in writes(traced):
            place = int(Path(written.path).stem), int(written.arguments.split(", ")[-2])
            if place < end.place:
                before += 1
                assert traced.is_synced(written, call), "the end was written before the records were synced"
    assert before > 96, "each record lies before some end"


def test_the_floor_is_on_disk_before_a_segment_is_deleted(traced: Trace, folder: Path) -> None:
    deleted = [each for each in traced.find("unlink") if each.path.endswith(".wal")]
    assert len(deleted) > 1
    renamed = traced.find("rename", folder / "readers.json.new")[-1]
    changes = traced.find("write", folder / "readers.json.new")
    assert '\\"floor\\":1,' not in changes[-1].arguments
    synced = traced.find("fsync", folder / "readers.json.new")[-1]
    of_names = next(each for each in traced.find("fsync", folder) if each.begun > renamed.ended)
    assert follows(changes[-1], synced, renamed, of_names, deleted[0])


def test_a_torn_end_is_kept_on_disk_before_it_is_cut_off(traced: Trace, folder: Path) -> None:
    last = folder / f"{list_numbers(str(folder))[-1]:012}.wal"
    size = last.stat().st_size
    with open(last, "ab") as file:
        file.write(b"half a record")
    again = trace([sys.executable, "-c", REOPEN, str(folder)], folder.parents[1] / "trace-again")
    kept = folder / f"{last.stem}.torn-{size}"
    assert kept.read_bytes() == b"half a record"
    written, synced = again.one("write", kept), again.one("fsync", kept)
    cut = again.one("truncate", last)
    of_names = next(each for each in again.find("fsync", folder) if each.begun > synced.ended)
    assert follows(written, synced, of_names, cut)
    of_segment = next(each for each in again.find("fsync", last) if each.begun > cut.ended)
    said = again.one("write", text='"open')
    assert follows(cut, of_segment, said)


def test_a_token_is_on_disk_before_its_secret_is_shown(tmp_path: Path) -> None:
    directory = tmp_path / "received"
    words = ["token", "create", "--directory", str(directory), "--name", "shop", "--scope", "ingest"]
    traced = trace([sys.executable, "-m", "penstock", *words], tmp_path / "trace")
    new = directory / ".tokens.json.new"
    written, synced, renamed = traced.one("write", new), traced.one("fsync", new), traced.one("rename", new)
    of_names = traced.one("fsync", directory)
    shown = traced.find("write", text='"penstock_')
    assert len(shown) == 1
    assert follows(written, synced, renamed, of_names, shown[0])


def test_an_interrupted_call_is_read_from_its_two_lines() -> None:
    found = parse(
        '7  pwrite64(5</log/1.wal>, "a \\"key\\", ", 9, 46 <unfinished ...>\n'
        "8  fsync(6</log>)   = 0\n"
        "7  <... pwrite64 resumed>)   = 9\n"
        "7  fsync(5</log/1.wal>) = -1 EIO (Input/output error)\n"
        '8  write(1<pipe:[9]>, "k\\n", 2) = 2\n'
    )
    of_folder, written, failed, answer = found.calls
    assert (written.path, written.strings, written.offset) == ("/log/1.wal", ['a \\"key\\", '], 46)
    assert (written.begun, written.ended, of_folder.begun) == (0, 2, 1)
    assert not follows(of_folder, written)
    assert follows(written, failed, answer)
    assert not found.is_synced(written, answer), "a sync that failed is none"
