"""Names of folders: one for each stream, inside the directory, on every file system."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamRefused
from penstock.wal.folders import folder_of, list_streams, stream_of

#: also what a user would hardly type, and a request may well carry
NAMES = st.text(min_size=1, max_size=21) | st.text("./%aA\\\0ä\u0308", min_size=1, max_size=12)


@given(NAMES)
def test_a_folder_lies_in_the_directory_and_names_its_stream(stream: str) -> None:
    folder = folder_of("/logs", stream)
    assert os.path.dirname(os.path.normpath(folder)) == "/logs"
    assert os.path.normpath(folder) == folder
    assert stream_of(folder) == stream
    assert len(os.path.basename(folder).encode()) <= 255


@given(NAMES, NAMES)
def test_two_streams_have_two_folders_on_a_disk_that_ignores_case_or_normalises(one: str, other: str) -> None:
    def on_such_a_disk(stream: str) -> str:
        return unicodedata.normalize("NFC", folder_of("/logs", stream)).casefold()

    assert (on_such_a_disk(one) == on_such_a_disk(other)) == (one == other)


@given(st.text("abAB%.0123456789ef-_ ~", min_size=1, max_size=12))
def test_a_folder_of_another_name_is_no_streams(name: str) -> None:
    stream = stream_of(f"/logs/{name}")
    assert stream is None or folder_of("/logs", stream) == f"/logs/{name}"


@pytest.mark.parametrize(
    ("stream", "name"),
    [
        ("orders", "orders"),
        ("Orders", "%4frders"),
        ("shop/orders", "shop%2forders"),
        ("..", "%2e."),
        ("../etc", "%2e.%2fetc"),
        (".hidden", "%2ehidden"),
        ("v1.2", "v1.2"),
        ("50%", "50%25"),
        ("größe", "gr%c3%b6%c3%9fe"),
        ("a\0b", "a%00b"),
    ],
)
def test_names(stream: str, name: str) -> None:
    assert folder_of("/logs", stream) == f"/logs/{name}"


@pytest.mark.parametrize("stream", ["", "a" * 256, "A" * 86, "\ud800"])
def test_names_that_no_folder_can_have(stream: str) -> None:
    with pytest.raises(StreamRefused, match=r"its name '.*'…? (is empty|takes|has half)"):
        folder_of("/logs", stream)


def test_the_longest_name_is_taken_by_the_file_system(tmp_path: Path) -> None:
    os.mkdir(folder_of(str(tmp_path), "A" * 85))
    assert list_streams(str(tmp_path)) == ["A" * 85]


def test_streams_of_a_directory(tmp_path: Path) -> None:
    for stream in ("b/2", "a", "Ä"):
        os.mkdir(folder_of(str(tmp_path), stream))
    (tmp_path / ".receiver").mkdir()
    (tmp_path / "Foreign").mkdir()
    (tmp_path / "file").write_text("")
    assert list_streams(str(tmp_path)) == ["a", "b/2", "Ä"]
    assert list_streams(str(tmp_path / "none")) == []
