"""A log that is not what its pipeline read: what `check` says, what `run` does, and the way out."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from penstock.wal import readers
from penstock.wal.segments import list_numbers, path_of, read_segment
from tests.acceptance.inbox import Inbox, said_by

READER = "inbox/orders"


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """Forty orders, all delivered."""
    made = Inbox.open(tmp_path)
    made.arrive(40)
    made.goes()
    assert made.differences() == {}
    return made


def follow(inbox: Inbox, said: str, command: str) -> str:
    """Run a command that the message names; what it said."""
    found = re.search(rf"`penstock ({command} [^`]*)`", said)
    assert found, said
    done = inbox.command.run(*found[1].replace("FILE", "inbox.yaml").split(), "--yes")
    assert done.code == 0, done.err
    return said_by(done)


def test_the_folder_is_not_there(inbox: Inbox) -> None:
    os.rename(inbox.folder / "wal", inbox.folder / "elsewhere")
    inbox.refused("there is no folder", "penstock serve", code=3)
    os.rename(inbox.folder / "elsewhere", inbox.folder / "wal")
    inbox.arrive(8)
    inbox.goes()
    assert inbox.differences() == {}


def test_the_log_is_gone(inbox: Inbox) -> None:
    shutil.rmtree(inbox.log)
    inbox.refused("is another one than the stream was read from, or lacks segment", code=2)


def test_the_log_began_again(inbox: Inbox) -> None:
    """The receiver's folder was lost; producers begin again. The way out delivers what is there, and says so."""
    shutil.rmtree(inbox.log)
    inbox.arrive(8)
    said = inbox.refused("is another one than the stream was read from", code=2)
    follow(inbox, said, "rewind")
    inbox.goes()
    assert inbox.differences() == {}


@pytest.mark.parametrize("later", [4, 24], ids=["within a segment", "over several"])
def test_the_log_was_put_back_from_an_older_copy(later: int, inbox: Inbox) -> None:
    """What was delivered after the copy is in the sink; of what is there, no slice of a producer comes again."""
    inbox.keep("older")
    inbox.arrive(later)
    inbox.goes()
    inbox.put_back("older")
    said = inbox.refused("older copy" if later == 4 else "lacks segment", "without slices are delivered again", code=2)
    follow(inbox, said, "rewind")
    inbox.goes()
    found = inbox.differences()
    assert set(found.values()) <= {1}
    alone = [id_ for first in range(1, 41, 12) for id_ in range(first, first + 4)]
    assert set(found) <= set(alone), "batches without a producer's number cannot be recognised"


def test_a_segment_is_missing(inbox: Inbox) -> None:
    inbox.arrive(400)
    number = list_numbers(str(inbox.log))[1]
    os.rename(path_of(str(inbox.log), number), inbox.folder / "kept")
    said = inbox.run("run")
    assert said.code == 2, said_by(said)
    assert f"{number:012}.wal is missing: batches that were acknowledged are gone" in said_by(said)
    os.rename(inbox.folder / "kept", path_of(str(inbox.log), number))
    inbox.goes()
    assert inbox.differences() == {}


def test_a_reader_that_was_dropped(inbox: Inbox) -> None:
    """Nothing was deleted meanwhile: it registers itself again. Otherwise it stops and names the way out."""
    assert readers.drop(str(inbox.log), READER)
    inbox.arrive(8)
    inbox.goes()
    assert inbox.differences() == {}
    assert readers.drop(str(inbox.log), READER)
    inbox.arrive(400)
    last = list_numbers(str(inbox.log))[-1]
    readers.register_at(str(inbox.log), "other/orders", readers.Reader(last))
    assert readers.delete_read(str(inbox.log))
    said = inbox.refused("segments before", "were deleted", code=2)
    follow(inbox, said, "state reset")
    assert "batches in between are gone" in said
    inbox.goes()
    kept = [id_ for id_ in inbox.ids() if id_ > 48]
    assert kept == list(range(kept[0], 449)), "what is there is delivered"


def test_a_reset_says_that_rows_come_again(inbox: Inbox) -> None:
    done = inbox.run("state reset", "--stream", "orders", "--yes")
    assert done.code == 0, done.err
    assert "duplicated" in said_by(done) or "again" in said_by(done)
    kept = [row for number in list_numbers(str(inbox.log)) for row in read_segment(str(inbox.log), number).records]
    assert kept
    inbox.goes()
    assert min(inbox.differences().values(), default=0) >= 0


def test_a_damaged_record(inbox: Inbox) -> None:
    inbox.arrive(12)
    number = list_numbers(str(inbox.log))[-1]
    path = path_of(str(inbox.log), number)
    record = read_segment(str(inbox.log), number).records[-1]
    content = bytearray(Path(path).read_bytes())
    content[record.end - 1] ^= 1
    Path(path).write_bytes(bytes(content))
    done = inbox.run("run")
    assert done.code == 1, said_by(done)
    assert "is damaged: its checksum is wrong" in said_by(done)
    before = inbox.ids()
    inbox.write(", damaged: skip")
    said = inbox.goes()
    assert f"the damaged record at {number}:{record.offset} is left out" in said
    assert (inbox.log / f"{number:012}.damaged-{record.offset}").exists()
    assert set(before) <= set(inbox.ids())


def test_columns_change_while_batches_wait(inbox: Inbox) -> None:
    """A new column is read from batches that were sent before it was declared: they have the field."""
    inbox.arrive(8)
    text = (inbox.folder / "inbox.yaml").read_text()
    (inbox.folder / "inbox.yaml").write_text(text.replace("note: string", "note: string, x: int64"))
    inbox.goes()
    assert inbox.differences() == {}
    paths = sorted((inbox.folder / "out" / "orders").glob("*.ndjson"))
    assert '"x":1' in paths[-1].read_text()


def test_a_stream_under_another_name(inbox: Inbox) -> None:
    """A stream of that name has nothing yet: both say so, and `check` names the one that nobody reads."""
    inbox.arrive(8)
    text = (inbox.folder / "inbox.yaml").read_text()
    (inbox.folder / "inbox.yaml").write_text(text.replace("orders: {columns", "purchases: {columns"))
    done = inbox.run("check", "--verbose")
    assert done.code == 0, said_by(done)
    assert "nothing was sent to this stream yet" in said_by(done) + inbox.goes()
    assert inbox.run("run").code == 0
    # The old name's reader keeps its segments until it is dropped.
    assert READER in readers.read_registry(str(inbox.log)).readers


def test_two_pipelines_read_one_stream(inbox: Inbox) -> None:
    """Each has a mark of its own, and no segment goes before both have read it."""
    text = (inbox.folder / "inbox.yaml").read_text()
    second = text.replace("  inbox:", "  second:").replace("directory: out", "directory: out2")
    (inbox.folder / "second.yaml").write_text(second)
    inbox.arrive(400)
    first = list_numbers(str(inbox.log))[0]
    done = inbox.command.run("run", "second.yaml")
    assert done.code == 0, done.err
    inbox.arrive(8)
    assert list_numbers(str(inbox.log))[0] == first, "the first pipeline has not read it"
    inbox.goes()
    assert inbox.differences() == {}


def test_the_end_of_the_log_is_not_known(inbox: Inbox) -> None:
    inbox.arrive(8)
    os.remove(inbox.log / "end")
    inbox.refused("start `penstock serve` once", code=2)
    inbox.orders.send()
    inbox.goes()
    assert inbox.differences() == {}
