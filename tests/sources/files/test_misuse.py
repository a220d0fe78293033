"""Files that are not as they should be, and what was there before: refused with a message, right, or said."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from tests.sources.files.folders import Inbox, table, write

from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused
from penstock.ports import explain_source
from penstock.sources import files

CSV = {"path": "*.csv", "columns": {"id": "int64", "note": "string"}}
LINES = {"path": "*.ndjson", "columns": {"id": "int64", "note": "string"}}


def refused(inbox: Inbox, kind: type[PenstockError] = StreamRefused) -> str:
    """What the next run says; nothing of it was delivered."""
    before = inbox.last
    with pytest.raises(kind) as error:
        inbox.run()
    assert inbox.last == before
    assert error.value.next_step
    return error.value.what.replace(str(inbox.place), "IN")


def test_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    assert inbox.run() == []
    assert inbox.told() == ["warning: no file in IN matches *.csv"]
    inbox = Inbox(tmp_path, path="*.parquet", include=["old/*.parquet"])
    assert refused(inbox) == "no file in IN matches *.parquet or old/*.parquet, so its columns are not known"


def test_a_folder_that_is_missing_or_a_file(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.place.rmdir()
    assert refused(inbox, ConnectionFailed) == "there is no folder IN"
    inbox.place.write_text("")
    assert refused(inbox, ConnectionFailed) == "IN is a file, not a folder"


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = Inbox(tmp_path, path="**/*.csv", columns=CSV["columns"])
    closed = inbox.place / "closed"
    closed.mkdir()
    scandir = os.scandir

    def deny(path: str) -> Any:
        if path == str(closed):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    # The tests may run as root, whom nothing is denied.
    monkeypatch.setattr(os, "scandir", deny)
    assert refused(inbox) == "IN/closed cannot be listed: Permission denied"


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id,note\n1,a\n")
    open_file = os.open

    def deny(path: str, *arguments: Any) -> int:
        if path == str(inbox.place / "a.csv"):
            raise PermissionError(13, "Permission denied")
        return open_file(path, *arguments)

    monkeypatch.setattr(os, "open", deny)
    assert refused(inbox, StreamFailed) == "IN/a.csv cannot be opened: Permission denied"


PARQUET = {"path": "*.parquet", "columns": {"id": "int64", "note": "string"}}


def _truncate(path: Path) -> None:
    write(path, table([1, 2]))
    path.write_bytes(path.read_bytes()[:-20])


DAMAGED: dict[str, tuple[dict[str, Any], Callable[[Path], object], str]] = {
    "truncated.parquet": (PARQUET, _truncate, "cannot be read as parquet: Parquet magic bytes not found in footer"),
    "empty.parquet": (PARQUET, lambda path: path.touch(), "cannot be read as parquet: Parquet file size is 0 bytes"),
    "lacks.parquet": (
        PARQUET,
        lambda path: write(path, pa.table({"id": [1], "text": ["a"]})),
        "has no column 'note': it has id",
    ),
    "other.parquet": (
        PARQUET,
        lambda path: write(path, pa.table({"id": [[1]], "note": ["a"]})),
        "has the column 'id' as list<int64>, and it is declared as int64",
    ),
    "a.csv.gz": (
        {**CSV, "path": "*.csv.gz"},
        lambda path: path.write_text("id,note\n1,a\n"),
        "cannot be read as csv: zlib inflate failed: incorrect header check",
    ),
    "b.csv.gz": (
        {**CSV, "path": "*.csv.gz"},
        lambda path: path.write_bytes(gzip.compress(b"id,note\n" + os.urandom(100).hex().encode() + b",a\n")[:-30]),
        "cannot be read as csv: Truncated compressed stream",
    ),
    "lacks.csv": (CSV, lambda path: path.write_text("id,text\n1,a\n"), "has no column 'note': it has id, text"),
    "twice.csv": (CSV, lambda path: path.write_text("id,id,note\n1,2,a\n"), "has the column 'id' twice"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_file_that_is_refused_before_it_is_read(name: str, tmp_path: Path) -> None:
    options, make, message = DAMAGED[name]
    inbox = Inbox(tmp_path, **options)
    make(inbox.place / name)
    assert refused(inbox).startswith(f"{name} in IN {message}")


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "ragged.csv": (CSV, "id,note\n1,a\n2\n", "row 3: it has 1 fields instead of 2: '2'"),
    "value.csv": (CSV, "id,note\n1,a\nx,b\n", "row 3: 'x' has no exact form as int64 (column id)"),
    "value.ndjson": (LINES, '{"id":1}\n\n{"id":"x"}\n', 'line 3: "x" has no exact form as int64 (column id)'),
    "broken.ndjson": (LINES, '{"id":1}\n{"id":\n', "line 2: it is no JSON object"),
    "list.ndjson": (LINES, '{"id":1}\n[1]\n', "line 2: it is no JSON object: [1]"),
    "object.json": ({**LINES, "path": "*.json"}, '{"id":1}', "after element 0: it is no array of objects"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_row_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    options, text, message = BAD[name]
    inbox = Inbox(tmp_path, **options)
    inbox.put(name, text)
    assert refused(inbox, StreamFailed).startswith(f"{name} in IN, {message}")


def test_a_bad_row_far_down_in_a_file_that_is_cut(tmp_path: Path) -> None:
    for name, options, head, row, bad in (
        ("a.csv", CSV, "id,note\n", "1,some text of a row\n", "x,bad\n"),
        ("a.ndjson", LINES, "", '{"id": 1, "note": "some text of a row"}\n', '{"id": "x"}\n'),
    ):
        inbox = Inbox(tmp_path / name, **options)
        inbox.put(name, head + row * 40_000 + bad + row)
        inbox.many_parts = True
        kind = "row" if name == "a.csv" else "line"
        number = 40_002 if head else 40_001
        assert refused(inbox, StreamFailed).startswith(f"{name} in IN, {kind} {number:,}: ")


def test_values_without_an_exact_form_become_null_where_the_stream_says_so(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV, bad_values="null")
    inbox.put("a.csv", "id,note\n1,a\nx,b\n")
    assert inbox.run() == [{"id": 1, "note": "a"}, {"id": None, "note": "b"}]
    inbox = Inbox(tmp_path / "lines", **LINES, bad_values="null")
    inbox.put("a.ndjson", '{"id":1,"note":"a"}\n{"id":1.5,"note":"b"}\n')
    assert inbox.run() == [{"id": 1, "note": "a"}, {"id": None, "note": "b"}]


def test_bytes_that_are_not_of_the_encoding(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", b"id,note\n1,\xe9\n")
    assert "invalid UTF8 data" in refused(inbox, StreamFailed)
    inbox = Inbox(tmp_path / "latin", **CSV, csv={"encoding": "latin-1"})
    inbox.put("a.csv", b"id,note\n1,\xe9\n")
    assert inbox.run() == [{"id": 1, "note": "é"}]


def test_empty_files_have_no_rows(tmp_path: Path) -> None:
    for name, options in (("a.csv", CSV), ("a.ndjson", LINES), ("a.json", {**LINES, "path": "*.json"})):
        inbox = Inbox(tmp_path / name, **options)
        inbox.put(name, "")
        assert inbox.run() == []
        assert inbox.last is not None, "it is seen"
        inbox.put(f"b{name}", "id,note\n" if name.endswith("csv") else "\n")
        assert inbox.run() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "a.avro", "format": "avro"}, "avro is not supported: convert the files to parquet first"),
        ({"path": "a.txt"}, "`format` is missing, and the end of `path` does not tell it"),
        ({"path": "../a.csv"}, "must not contain . or .."),
        ({"path": "[z-a].csv"}, "'[z-a].csv' is no pattern: bad character range z-a"),
        ({"path": "[!].csv"}, "'[!].csv' is no pattern"),
        ({"path": "/a.csv"}, "must be a path below `directory`"),
        ({"path": "a.csv", "csv": {"encoding": "utf-9"}}, "there is no encoding 'utf-9'; use a name such as utf-8"),
        ({"path": "a.csv", "on_change": "reload"}, "reload is not supported yet"),
        ({"path": "a.csv", "bad_values": "quarantine"}, "quarantine is not supported yet by the files source"),
        ({"path": "a.csv", "csv": {"header": False}}, "`csv: {header: false}` requires `columns`"),
        ({"path": "a.csv", "since": "soon"}, "'soon' is no time; write it like 2026-01-31"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        files.StreamOptions.model_validate(options)
    assert message in str(error.value)


def test_an_address_of_a_bucket_is_refused() -> None:
    with pytest.raises(ValidationError, match="s3:// is not supported: the files source reads local folders only"):
        files.Options(directory="s3://bucket/incoming")


# ---------------------------------------------------------------- what was there before, and what changes


def test_a_file_that_was_delivered_changes(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id,note\n1,a\n")
    assert len(inbox.run()) == 1
    inbox.put("a.csv", "id,note\n1,a\n2,b\n")
    inbox.put("b.csv", "id,note\n3,c\n")
    what = "1 file that was delivered is not as before, such as a.csv: it had 12 bytes and has 16"
    assert refused(inbox) == f"in IN, {what}"
    inbox.options["on_change"] = "ignore"
    assert inbox.run() == [{"id": 3, "note": "c"}]
    assert inbox.told() == [f"warning: not read: {what}"]


def test_the_same_content_again_is_another_file_and_said(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id,note\n1,a\n", time=1)
    inbox.run()
    (inbox.place / "b").write_text("id,note\n1,a\n")
    os.utime(inbox.place / "b", ns=(0, (inbox.place / "a.csv").stat().st_mtime_ns))
    (inbox.place / "b").rename(inbox.place / "a.csv")
    assert (
        refused(inbox) == "in IN, 1 file that was delivered is not as before, such as a.csv: another file has its name"
    )
    assert inbox.rewind("now")
    assert inbox.run() == []


def test_a_file_that_was_delivered_gets_another_name(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id,note\n1,a\n")
    inbox.run()
    (inbox.place / "a.csv").rename(inbox.place / "z.csv")
    assert (
        refused(inbox)
        == "in IN, 1 file that was delivered is there under another name, such as a.csv, which is z.csv now"
    )
    (inbox.place / "z.csv").rename(inbox.place / "a.csv")
    assert inbox.run() == []


def test_a_file_that_was_delivered_is_gone_and_comes_back(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id,note\n1,a\n")
    inbox.put("b.csv", "id,note\n2,b\n")
    inbox.run()
    away = tmp_path / "away"
    (inbox.place / "a.csv").rename(away)
    assert inbox.run() == []
    inbox.options["on_vanish"] = "refuse"
    assert refused(inbox) == "1 file that was delivered is no longer in IN, such as a.csv"
    away.rename(inbox.place / "a.csv")
    assert inbox.run() == [], "it is not read again"


def test_an_older_copy_of_the_folder(tmp_path: Path) -> None:
    """Copies have other inodes, and the newer files are missing: nothing is delivered again."""
    inbox = Inbox(tmp_path, **CSV)
    for name in ("a", "b", "c"):
        inbox.put(f"{name}.csv", f"id,note\n1,{name}\n", time=1)
    inbox.run()
    older = tmp_path / "older"
    shutil.copytree(inbox.place, older, ignore=lambda _folder, _names: ["c.csv"])
    shutil.rmtree(inbox.place)
    older.rename(inbox.place)
    assert (
        refused(inbox)
        == "in IN, 2 files that were delivered are not as before, such as a.csv: another file has its name"
    )
    assert inbox.rewind("now")
    assert inbox.run() == []


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("b.csv", "id,note\n1,a\n", time=2000)
    inbox.run()
    inbox.put("a.csv", "id,note\n2,b\n", time=-5000)
    assert inbox.run() == [{"id": 2, "note": "b"}]


def test_names_with_any_characters(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    names = [b"line\nbreak.csv", b"\xff\xfe.csv", "ü ñ.csv".encode(), b"a'b\"c\\d.csv", b"A.csv", b"a.csv", b"%41.csv"]
    for number, name in enumerate(names):
        inbox.put(os.fsdecode(name), f"id,note\n{number},a\n", time=number)
    assert [row["id"] for row in inbox.run()] == list(range(len(names)))
    assert inbox.run() == []
    inbox.put(os.fsdecode(names[1]), "id,note\n9,a\n10,a\n")
    assert "\\xff\\xfe.csv: it had" in refused(inbox)
    inbox.options["on_change"] = "ignore"
    inbox.put(os.fsdecode(b"broken\n.csv"), "id,note\n9\n")
    message = refused(inbox, StreamFailed)
    assert message.startswith("broken\\n.csv in IN, row 2: ")


def test_links_and_hidden_names_are_left_out(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, path="**/*.csv", columns=CSV["columns"])
    inbox.put("day/a.csv", "id,note\n1,a\n")
    for hidden in (".b.csv", "_c.csv", "_penstock/d.csv"):
        inbox.put(hidden, "id,note\n2,a\n")
    (inbox.place / "e.csv").symlink_to(inbox.place / "day" / "a.csv")
    (inbox.place / "loop").symlink_to(inbox.place)
    assert inbox.run() == [{"id": 1, "note": "a"}]
    assert inbox.told() == ["warning: left out: 1 symbolic link, such as e.csv"]


def test_another_folder_under_the_same_name_of_a_stream(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id,note\n1,a\n")
    inbox.run()
    inbox.directory = "other"
    (tmp_path / "other").mkdir()
    assert refused(inbox).startswith("the stream was read from in, and `directory` is other now")


def test_two_streams_that_match_one_file(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id,note\n1,a\n")
    inbox.others = {"all": {"path": "**", "format": "csv", "columns": CSV["columns"]}}
    source = inbox.open()
    said = [remark.text for remark in explain_source(source, "orders", source.content("orders"))]
    assert "the stream 'all' reads the same 1 file, such as a.csv" in said


def test_an_open_slice_whose_file_has_changed_is_found_without_reading(tmp_path: Path) -> None:
    """Also if the file had no rows, so that no part reads it."""
    for text in ("id,note\n1,a\n", ""):
        inbox = Inbox(tmp_path / str(len(text)), **CSV)
        inbox.put("a.csv", text)
        inbox.before_reading = lambda inbox=inbox: inbox.put("a.csv", "id,note\n1,a\n2,b\n")
        inbox.checks_open_slices = True
        assert refused(inbox, StreamFailed).startswith("a.csv in IN has changed: it had")


def test_a_file_that_changes_between_plan_and_read_or_while_it_is_read(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id,note\n1,a\n")
    path = inbox.place / "a.csv"
    for change, what in (
        (lambda: path.write_text("id,note\n1,a\n2,b\n"), "has changed: it had 12 bytes and has 16"),
        (path.unlink, "is gone"),
    ):
        inbox.before_reading = change
        assert refused(inbox, StreamFailed) == f"a.csv in IN {what}, and an open slice reads it as it was"
        inbox.before_reading = None
        inbox.while_reading = change
        inbox.put("a.csv", "id,note\n1,a\n")
        if what != "is gone":  # a file that is open is read to its end, whatever becomes of its name
            assert refused(inbox, StreamFailed) == f"a.csv in IN {what}, and an open slice reads it as it was"
        inbox.while_reading = None
        inbox.put("a.csv", "id,note\n1,a\n")
    assert inbox.run() == [{"id": 1, "note": "a"}]
