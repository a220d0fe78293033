"""`${file:PATH}`: the text of a file, or a mistake that names the line, the key and the path, and never the text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.config.fakes import PostgresOptions, PostgresStream, load
from tests.config.test_load import small
from tests.config.test_mistakes import mistake

HIDDEN = "hunter2"


def cursor(folder: Path, written: str, **environment: str) -> str | None:
    file = load(small(f"streams: {{a: {{cursor: '{written}'}}}}"), folder, **environment)
    stream = file.pipelines["shop"].source_streams["a"]
    assert isinstance(stream, PostgresStream)
    return stream.cursor


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"abc", "abc"),
        (b"abc\n", "abc"),
        (b"abc\r\n", "abc"),
        (b"abc\n\n", "abc\n"),
        (b" a b ", " a b "),
        (b"\xef\xbb\xbfabc", "abc"),
        ("é€".encode(), "é€"),
        (b"line\nline\n", "line\nline"),
        (b"${NAME}", "${NAME}"),
        (b"x" * 64 * 1024, "x" * 64 * 1024),
    ],
)
def test_what_a_file_holds_without_the_newline_at_its_end(tmp_path: Path, content: bytes, value: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    assert cursor(tmp_path, "${file:secret}") == value


def test_paths_start_at_the_pipeline_file_and_variables_stand_beside_each_other(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "pg password").write_text(f"{HIDDEN}\n")
    url = "postgresql://${USER_NAME}:${file:secrets/pg password}@${HOST:-db}/shop"
    file = load(small(url=url), tmp_path, USER_NAME="ann")
    options = file.pipelines["shop"].source
    assert isinstance(options, PostgresOptions)
    assert options.url.get_secret_value() == f"postgresql://ann:{HIDDEN}@db/shop"
    assert HIDDEN not in repr(file)
    assert cursor(tmp_path, f"${{file:{tmp_path}/secrets/pg password}}") == HIDDEN


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${file:none:-b}", "b"),
        ("${file:empty:-b}", "b"),
        ("${file:newline:-b}", "b"),
        ("${file:full:-b}", "a"),
        ("${file:none:-}", ""),
        ("${file:none:-a:-b}", "a:-b"),
        ("${file}", "of the environment"),
        ("${file:-x}", "of the environment"),
        ("$${file:none}", "${file:none}"),
    ],
)
def test_defaults_and_what_is_no_file(tmp_path: Path, written: str, value: str) -> None:
    (tmp_path / "full").write_text("a")
    (tmp_path / "empty").touch()
    (tmp_path / "newline").write_text("\n")
    assert cursor(tmp_path, written, file="of the environment") == value


def test_a_secret_takes_the_type_of_its_field(tmp_path: Path) -> None:
    (tmp_path / "seconds").write_text("2.5\n")
    assert load(small("lease_seconds: '${file:seconds}'"), tmp_path).pipelines["shop"].lease_seconds == 2.5


def wrong(folder: Path, path: str, default: str = "") -> str:
    text = small(f"streams: {{a: {{cursor: '${{file:{path}{default}}}'}}}}")
    told = mistake(text, folder)
    assert HIDDEN not in told
    assert told.startswith("6: pipelines.shop.streams.a.cursor: ")
    return told.removeprefix("6: pipelines.shop.streams.a.cursor: ").replace(str(folder), "FOLDER")


def test_files_that_hold_no_secret(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"hunter2" * 10_000)
    (tmp_path / "binary").write_bytes(b"hunter2\xff")
    (tmp_path / "zero").write_bytes(b"hunter2\0")
    (tmp_path / "loop").symlink_to("loop")
    how = "put a value into the file, or write ${file:"
    assert wrong(tmp_path, "none") == f"file FOLDER/none does not exist; {how}none:-default}}"
    assert wrong(tmp_path, "empty") == f"file FOLDER/empty is empty; {how}empty:-default}}"
    assert wrong(tmp_path, "folder") == "FOLDER/folder is a folder, not a file"
    assert wrong(tmp_path, "large") == "file FOLDER/large is larger than 64 KiB, too large for a value"
    assert wrong(tmp_path, "binary") == "file FOLDER/binary is not UTF-8 text"
    assert wrong(tmp_path, "zero") == "file FOLDER/zero is not text: it contains a zero byte"
    assert wrong(tmp_path, "empty/x", ":-y") == "file FOLDER/empty/x cannot be read: Not a directory"
    assert wrong(tmp_path, "loop").startswith("file FOLDER/loop cannot be read: ")
    assert wrong(tmp_path, "${HOME}/x") == "variables cannot be nested"


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        (tmp_path / "closed").write_text(HIDDEN)
        (tmp_path / "closed").chmod(0)
        assert wrong(tmp_path, "closed", ":-x") == "file FOLDER/closed cannot be read: Permission denied"
    # root may read everything; the kernel's own files refuse even root
    assert "cannot be read" in wrong(tmp_path, "/proc/self/mem", ":-x")


def test_what_a_file_holds_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"mysql://ann:{HIDDEN}@db/x\n")
    text = small("slice_bytes: '${file:secret}'", url="${file:secret}")
    text = text.replace("directory: out", "directory: out, format: '${file:secret}'")
    with pytest.raises(Exception, match="3 mistakes") as caught:
        load(text, tmp_path)
    told = str(caught.value)
    assert not any(piece in told for piece in (HIDDEN, "ann", "mysql"))
    assert "expected 'parquet', 'csv' or 'ndjson', not the value of ${file:secret}" in told
