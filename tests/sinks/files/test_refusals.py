"""What the files sink refuses, what a broken folder says, and what the operating system's refusals become."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pydantic import ValidationError
from tests.alone import run_alone
from tests.harness.contents import content as content_of
from tests.sinks.files.folder import data_files, open_sink, tree, write

from penstock.core.slices import Kind, Part
from penstock.errors import CommitUnclear, InputError, SliceRefused, StreamFailed, StreamRefused, StreamStopped
from penstock.ports import StreamInfo
from penstock.sinks.files.options import StreamOptions
from penstock.testing.contracts.delivery import STREAM, after, deliver, position, stage_parts, table

SAFE = "Nothing was lost: the mark has not moved."
MANIFESTS = f"out/_penstock/contract/{STREAM}/manifests"
RECOVER = (
    "Nothing was changed: the mark stays, and no file was removed.\n"
    "Next: restore the folder, or run `penstock state recover FILE --stream orders`: it withdraws "
    "the incomplete slices, and the next run delivers them again"
)


# ---------------------------------------------------------------- before anything is written


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious")
    for directory in ("out", "out/deeper"):
        with pytest.raises(InputError) as refused:
            open_sink(tmp_path, directory=directory).connect()
        assert str(refused.value) == (
            f"contract: the output folder {tmp_path}/{directory} cannot be written: {tmp_path}/out is not a folder\n"
            f"{SAFE}\n"
            "Next: choose another sink.directory, or give this user the right to write there"
        )
    assert (tmp_path / "out").read_text() == "precious"


def test_a_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match="out is not a folder"):
        open_sink(tmp_path).connect()


def test_a_directory_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Asked of the system by name, because root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError) as refused:
        open_sink(tmp_path, directory="new/out").connect()
    assert f"new/out cannot be written: no permission to write in {tmp_path}\n" in str(refused.value)


@pytest.mark.parametrize("format_", ["csv", "ndjson"])
@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([b"x"]), "binary"),
        (pa.array([b"x"], pa.large_binary()), "binary"),
        (pa.array([[b"x"]]), "list<binary>"),
        (pa.array([{"a": 1}]), "struct<a: int64>"),
    ],
)
def test_a_column_that_text_cannot_hold(tmp_path: Path, format_: str, column: pa.Array, kind: str) -> None:
    sink = open_sink(tmp_path, format=format_)
    said = (
        f"column 'payload' is {kind}, which {format_} cannot hold exactly\n"
        f"{SAFE}\n"
        "Next: use format: parquet, or leave the column out with `columns`"
    )
    content = content_of(id="int64", payload=kind)
    with pytest.raises(StreamRefused) as checked:
        sink.check(StreamInfo(STREAM, Kind.ROWS), content)
    assert str(checked.value) == f"contract/orders: {said}"
    with pytest.raises(StreamRefused) as refused:
        write(sink, after(None), [pa.record_batch({"payload": column})])
    assert str(refused.value) == said
    assert tree(tmp_path) == []
    open_sink(tmp_path).check(StreamInfo(STREAM, Kind.ROWS), content)


def test_a_list_into_csv_has_other_ways_out(tmp_path: Path) -> None:
    content = content_of(ids="list<int64>")
    with pytest.raises(StreamRefused) as refused:
        open_sink(tmp_path, format="csv").check(StreamInfo(STREAM, Kind.ROWS), content)
    assert str(refused.value) == (
        "contract/orders: column 'ids' is list<int64>, which csv cannot hold exactly\n"
        f"{SAFE}\n"
        "Next: use format: parquet or ndjson, let the source send it as text (`arrays: text` of a postgres stream), "
        "or leave the column out with `columns`"
    )
    open_sink(tmp_path, format="ndjson").check(StreamInfo(STREAM, Kind.ROWS), content)


def test_a_partition_column_is_checked_by_name_and_type(tmp_path: Path) -> None:
    content = content_of(id="int64", at="timestamptz")

    def check(column: str) -> None:
        sink = open_sink(tmp_path, streams={STREAM: {"partition_by": [f"day({column})"]}})
        sink.check(StreamInfo(STREAM, Kind.ROWS), content)

    check("at")
    with pytest.raises(StreamRefused) as missing:
        check("created_at")
    assert missing.value.what == "partition 'day(created_at)': the table has no column 'created_at'"
    assert missing.value.next_step == "choose among: id, at"
    with pytest.raises(StreamRefused) as dateless:
        check("id")
    assert dateless.value.what == "partition 'day(id)': column 'id' is long, which day cannot take"


@pytest.mark.parametrize(("by", "transform"), [("date", "day"), ("month", "month"), ("year", "year")])
def test_the_mapping_of_partitions_is_refused_with_the_list_to_write(by: str, transform: str) -> None:
    with pytest.raises(ValidationError, match=rf"write `partition_by: \[{transform}\(at\)\]`"):
        StreamOptions.model_validate({"partition_by": {"column": "at", "by": by}})


# ---------------------------------------------------------------- a folder that is not whole


def two_slices(folder: Path) -> None:
    sink = open_sink(folder)
    deliver(sink, after(deliver(sink, after(None), table(1))), table(2), table(3))


def edit(path: Path, **new: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | new))


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (lambda f: data_files(f)[-1].unlink(), "of slice 2 is missing or has changed size"),
        (lambda f: os.truncate(max(data_files(f)), 10), "of slice 2 is missing or has changed size"),
        (lambda f: (f / MANIFESTS / "000000000001.json").unlink(), "manifest 1 is missing below manifest 2"),
        (lambda f: (f / MANIFESTS / "000000000002.json").write_text(""), "000000000002.json cannot be read"),
        (lambda f: (f / MANIFESTS / "000000000002.json").write_text("[]"), "000000000002.json cannot be read"),
        (lambda f: edit(f / MANIFESTS / "000000000002.json", upto="7"), "its contents do not give its id"),
        (lambda f: edit(f / MANIFESTS / "000000000002.json", files=[{}]), "000000000002.json cannot be read"),
        (
            lambda f: (f / MANIFESTS / "000000000001.json").rename(f / MANIFESTS / "000000000003.json"),
            "manifest 1 is missing below manifest 3",
        ),
        (
            lambda f: (f / MANIFESTS / "000000000003.json").write_bytes(
                (f / MANIFESTS / "000000000001.json").read_bytes()
            ),
            "it belongs to contract/orders slice 1",
        ),
    ],
)
def test_a_folder_that_is_not_whole_stops_and_recovers(tmp_path: Path, break_it: Any, what: str) -> None:
    two_slices(tmp_path)
    break_it(tmp_path)
    before = tree(tmp_path)
    sink = open_sink(tmp_path)
    with pytest.raises(StreamStopped) as stopped:
        sink.held(STREAM)
    assert what in stopped.value.what
    assert str(stopped.value).startswith("contract/orders: the output folder is incomplete and cannot be repaired: ")
    assert str(stopped.value).endswith(RECOVER)
    assert tree(tmp_path) == before
    said = sink.recover(STREAM)
    assert said[0].startswith(("slice 2 was withdrawn to ", "slice 3 was withdrawn to "))
    last = position(sink)
    for slice_, rows in ((after(None), [1]), (after(after(None).position), [2, 3])):
        if (last.id if last else "") == slice_.previous:
            last = deliver(sink, slice_, table(*rows), attempt=f"again{slice_.number}")
    assert last is not None
    assert last.number == 2
    seen = ds.dataset(tmp_path / "out" / STREAM).to_table().column("id").to_pylist()
    assert sorted(seen) == [1, 2, 3]


def test_recovering_leaves_the_files_of_another_pipeline_alone(tmp_path: Path) -> None:
    two_slices(tmp_path)
    other = open_sink(tmp_path, pipeline="other")
    deliver(other, after(deliver(other, after(None, pipeline="other"), table(7)), pipeline="other"), table(8))
    (tmp_path / MANIFESTS / "000000000001.json").unlink()
    said = open_sink(tmp_path).recover(STREAM)
    assert len(said) == 2
    assert said[1].startswith("files that no slice names were withdrawn to ")
    assert ds.dataset(tmp_path / "out" / STREAM).to_table().column("id").to_pylist() == [7, 8]
    assert list(other.recover(STREAM)) == []


def test_recovering_leaves_alone_what_is_not_ours(tmp_path: Path) -> None:
    two_slices(tmp_path)
    for name in ("README.md", "00000009-notes.txt", "_SUCCESS"):
        (tmp_path / "out" / STREAM / name).write_text("mine")
    assert list(open_sink(tmp_path).recover(STREAM)) == []
    (tmp_path / MANIFESTS / "000000000002.json").write_text("")
    assert len(open_sink(tmp_path).recover(STREAM)) == 2
    left = sorted(path.name for path in (tmp_path / "out" / STREAM).iterdir())
    assert [name for name in left if not name.startswith("00000001")] == ["00000009-notes.txt", "README.md", "_SUCCESS"]


def test_a_chain_of_another_store_in_between_stops(tmp_path: Path) -> None:
    two_slices(tmp_path)
    two_slices(tmp_path / "elsewhere")
    other = open_sink(tmp_path / "elsewhere" / "b")
    from penstock.core.marks import Mark

    deliver(other, after(None, upto=Mark.of({"key": ["other"]})), table(5))
    foreign = tmp_path / "elsewhere" / "b" / MANIFESTS / "000000000001.json"
    (tmp_path / MANIFESTS / "000000000001.json").write_bytes(foreign.read_bytes())
    with pytest.raises(StreamStopped, match="manifest 2 does not follow manifest 1"):
        open_sink(tmp_path).held(STREAM)


@pytest.mark.parametrize(("slice_number", "stops"), [(1, False), (2, True), (3, True)])
def test_the_files_of_the_last_two_slices_must_be_there_older_ones_may_go(
    tmp_path: Path, slice_number: int, stops: bool
) -> None:
    sink = open_sink(tmp_path)
    last = None
    for number in range(1, 4):
        last = deliver(sink, after(last), table(number))
    data_files(tmp_path)[slice_number - 1].unlink()
    if stops:
        with pytest.raises(StreamStopped, match=f"of slice {slice_number} is missing"):
            sink.held(STREAM)
    else:
        assert position(sink) == last


def test_withdrawn_slices_are_kept_aside(tmp_path: Path) -> None:
    two_slices(tmp_path)
    gone, kept = sorted(path for path in data_files(tmp_path) if path.name.startswith("00000002"))
    gone.unlink()
    (said,) = open_sink(tmp_path).recover(STREAM)
    assert f"({gone} of slice 2 is missing" not in said
    withdrawn = next((tmp_path / f"out/_penstock/contract/{STREAM}/withdrawn").iterdir())
    assert sorted(os.listdir(withdrawn)) == sorted([kept.name, "000000000002.json"])
    assert said.startswith(
        f"slice 2 was withdrawn to {withdrawn} (the output folder is incomplete and cannot be repaired: {gone} "
    )
    assert [path.name[:8] for path in data_files(tmp_path)] == ["00000001"]


# ---------------------------------------------------------------- staged files have changed


def test_a_file_that_changed_since_its_receipt_is_refused(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    slice_ = after(None)
    receipts = stage_parts(sink, slice_, table(1))
    (staged,) = (path for path in tmp_path.rglob("*.parquet"))
    staged.write_bytes(staged.read_bytes() + b"more")
    with pytest.raises(SliceRefused, match=r"bytes, its receipt says \d+"):
        sink.commit(slice_, "a1", receipts)
    staged.unlink()
    with pytest.raises(CommitUnclear, match="does not exist any more"):
        sink.commit(slice_, "a1", receipts)
    assert sink.held(STREAM) is None


# ---------------------------------------------------------------- the operating system refuses


def failing(number: int) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def environment() -> dict[str, str]:
    """For a process that finds the tests' own modules."""
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


FULL = (
    "Nothing was lost: the mark has not moved, and incomplete files are not visible.\n"
    "Next: free some space and run again; the slice is moved again from its start"
)


@pytest.mark.parametrize("call", ["link", "replace", "fsync", "makedirs"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES])
def test_every_refusal_while_committing_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    sink = open_sink(tmp_path)
    slice_ = after(None)
    receipts = stage_parts(sink, slice_, table(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number))
        with pytest.raises(StreamFailed) as failed:
            sink.commit(slice_, "a1", receipts)
    said = str(failed.value)
    if number in (errno.ENOSPC, errno.EDQUOT):
        assert said == f"contract/orders: no space left for {tmp_path}/out\n{FULL}"
    else:
        assert said.startswith(f"contract/orders: cannot write to {tmp_path}/out: {os.strerror(number)}\n{SAFE}\n")
    # The trouble has passed: whatever the commit had done by then, the slice comes in whole and once.
    if sink.held(STREAM) is None:
        sink.commit(slice_, "a1", receipts)
    assert position(open_sink(tmp_path)) == slice_.position
    assert len(data_files(tmp_path)) == 1


@pytest.mark.parametrize("call", ["listdir", "replace"])
def test_a_refusal_while_asking_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    sink = open_sink(tmp_path)
    slice_ = after(None)
    receipts = stage_parts(sink, slice_, table(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(errno.EIO))
        with pytest.raises(StreamFailed):
            sink.commit(slice_, "a1", receipts)
        patch.setattr(os, call, failing(errno.EIO))
        with pytest.raises(StreamFailed, match=r"cannot write to .*: Input/output error"):
            sink.held(STREAM)
    assert position(sink) == slice_.position


def test_a_stream_whose_folder_is_a_file(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / STREAM).write_text("precious")
    with pytest.raises(StreamFailed, match=r"cannot write to .*: File exists"):
        deliver(sink, after(None), table(1))
    with pytest.raises(StreamFailed):
        sink.held(STREAM)
    assert (tmp_path / "out" / STREAM).read_text() == "precious"
    (tmp_path / "out" / STREAM).unlink()
    assert position(sink) == after(None).position
    assert len(data_files(tmp_path)) == 1


@pytest.mark.parametrize("format_", ["parquet", "csv", "ndjson"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_part_that_breaks_off_leaves_nothing(tmp_path: Path, format_: str, compression: str | None) -> None:
    """Not a file, and not a word on standard error when Arrow lets go of it."""
    script = f"""
import gc, sys
from pathlib import Path
import pyarrow as pa
from penstock.core.slices import Part
from penstock.sinks.files import writer
from penstock.testing.contracts.delivery import after, table
from tests.sinks.files.folder import open_sink
writer.GATHER = 1
def breaking():
    yield table(1, 2).to_batches()[0]
    yield table(3).to_batches()[0]
    raise KeyError("gone")
sink = open_sink(Path(sys.argv[1]), format={format_!r}, compression={compression!r})
try:
    sink.writer(after(None), "a1").write(pa.RecordBatchReader.from_batches(table().schema, breaking()), Part(0, "{{}}"))
except KeyError:
    gc.collect()
    print("broke off")
"""
    command = [sys.executable, "-W", "error", "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert (done.stdout, done.stderr) == ("broke off\n", "")
    assert tree(tmp_path) == []


def test_what_the_source_cannot_give_is_not_called_a_refusal_of_the_disk(tmp_path: Path) -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield table(1).to_batches()[0]
        raise ConnectionResetError("the server hung up")

    reader = pa.RecordBatchReader.from_batches(table().schema, breaking())
    with pytest.raises(ConnectionResetError, match="the server hung up"):
        open_sink(tmp_path).writer(after(None), "a1").write(reader, Part(0, "{}"))
    assert tree(tmp_path) == []


#: runs in a mount namespace of its own, so that its disk ends with it
FILL = """
import itertools, json, os, subprocess, sys
from pathlib import Path
import pyarrow as pa
from penstock.errors import PenstockError
from penstock.sinks.files import writer
from penstock.testing.contracts.delivery import after, deliver, position, table
from tests.sinks.files.folder import open_sink, tree, write

folder = Path(sys.argv[1])
rows = pa.table({"id": list(range(40000)), "text": [os.urandom(20).hex() for _ in range(40000)]})
found = []
formats = (("parquet", None), ("csv", None), ("csv", "gzip"), ("ndjson", "zstd"))
for gather, (format_, compression) in itertools.product((32 << 20, 1 << 16), formats):
    writer.GATHER = gather
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=True)
    sink = open_sink(folder, format=format_, compression=compression)
    first = deliver(sink, after(None), table(1))
    try:
        write(sink, after(first), rows.to_batches(max_chunksize=1000), attempt="b1")
        message = "no refusal"
    except PenstockError as refused:
        message = f"{type(refused).__name__} {refused}"
    left = [name for name in tree(folder) if "2.b1" in name]
    kept = position(open_sink(folder)) == first
    found.append({"message": message, "left": left, "kept": kept})
    subprocess.run(["umount", str(folder)], check=True)
print(json.dumps(found))
"""


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    wanted = {
        "message": f"StreamFailed no space left for {tmp_path}/out\n{FULL}",
        "left": [],
        "kept": True,
    }
    assert json.loads(run_alone(FILL, str(tmp_path))) == [wanted] * 8


@pytest.mark.parametrize("format_", [2, 4])
def test_a_folder_of_another_version_is_refused_and_nothing_in_it_is_changed(tmp_path: Path, format_: int) -> None:
    two_slices(tmp_path)
    edit(tmp_path / MANIFESTS / "000000000002.json", penstock_manifest=format_)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    sink = open_sink(tmp_path)
    for ask in (sink.held, sink.recover):
        with pytest.raises(StreamRefused) as refused:
            ask(STREAM)
        what, safe, step = str(refused.value).split("\n")
        assert what.startswith("contract/orders: the output folder was written by another version of penstock: ")
        assert what.endswith(f"its format is {format_}, this penstock reads 3")
        assert safe == "Nothing was changed: the mark stays, and no file was removed."
        assert "or name another `directory` of the sink, and the stream begins again" in step
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
