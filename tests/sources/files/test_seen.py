"""The set of seen files: exact, small in the mark, and never without what a mark names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.files.folders import Inbox

from penstock.core.marks import Mark
from penstock.errors import StreamRefused
from penstock.sources.files import seen as seen_module
from penstock.sources.files.marks import describe, make_mark, read_mark
from penstock.sources.files.places import File, Version
from penstock.sources.files.seen import RECENT_FILES, Seen, SeenStore, compare

NAMES = st.lists(st.sampled_from(["a", "b", "a/b", "ü", "\udcff", "line\n", "a" * 40, "%", "é/1", "é/2"]), min_size=1)
FILES = st.builds(
    File,
    NAMES.map("/".join),
    st.builds(Version, st.integers(0, 3), st.integers(-2, 2), st.sampled_from([1, 2, 2**64 - 1])),
)


@settings(max_examples=60, deadline=None)
@given(
    slices=st.lists(st.lists(FILES, max_size=8, unique_by=lambda file: file.path), max_size=8), listed=st.lists(FILES)
)
def test_it_is_the_set_whatever_was_added_in_which_slices(
    slices: list[list[File]], listed: list[File], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, patch = str(tmp_path_factory.mktemp("seen")), pytest.MonkeyPatch()
    patch.setattr(seen_module, "RECENT_FILES", 3)
    reference: dict[str, Version] = {}
    seen = Seen()
    for files in slices:
        store = SeenStore(folder, "s/ü")  # another process each time: nothing is remembered
        seen = store.add(seen, files)
        store.write(seen)
        seen = read_mark(Mark.read(make_mark(seen).text))
        reference |= dict(files)
    patch.undo()
    listed = list({file.path: file for file in listed}.values())
    store = SeenStore(folder, "s/ü")
    store.require(seen)
    found = compare(store.table(seen), listed)
    assert {file.path for file, _ in found.changed} == {
        path for path, version in listed if path in reference and reference[path] != version
    }
    assert all(reference[file.path] == was for file, was in found.changed)
    unknown = {path for path, _ in listed if path not in reference}
    assert {file.path for file in found.new} | {file.path for file, _ in found.renamed} == unknown
    assert found.vanished == len(set(reference) - {path for path, _ in listed})
    assert seen.files == sum(map(len, slices))


def files(first: int, count: int) -> list[File]:
    return [File(f"day={n // 100}/{n:07}.parquet", Version(n, n, n)) for n in range(first, first + count)]


def test_a_mark_stays_small(tmp_path: Path) -> None:
    store, seen = SeenStore(str(tmp_path), "s"), Seen()
    for first in range(0, 40_000, 1000):
        seen = store.add(seen, files(first, 1000))
        store.write(seen)
        assert [a.files >= 4 * b.files for a, b in zip(seen.segments, seen.segments[1:], strict=False)].count(
            False
        ) == 0
    assert len(make_mark(seen).text) < 1000
    assert store.table(seen).num_rows == seen.files == 40_000
    written = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert written < 40_000 * 120
    most = store.add(Seen(), files(0, RECENT_FILES))
    assert len(make_mark(most).text) < 8192
    assert describe(make_mark(seen)) == "40,000 files seen, last day=399/0039999.parquet"


def test_a_segment_that_is_gone_or_damaged_stops_the_stream(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, path="*.csv", columns={"id": "int64"})
    for number in range(RECENT_FILES + 1):
        inbox.put(f"{number}.csv", f"id\n{number}\n")
    assert len(inbox.run()) == RECENT_FILES + 1
    (segment,) = (tmp_path / "spools").rglob("files-seen/*/*.parquet")
    whole = segment.read_bytes()
    for damage in (b"", whole[:-9], None):
        segment.unlink()
        if damage is not None:
            segment.write_bytes(damage)
        with pytest.raises(StreamRefused, match="it lists 65 files that were delivered") as refused:
            inbox.run()
        assert "rewind FILE --to now" in refused.value.next_step
        segment.write_bytes(whole)
    other = SeenStore(str(tmp_path / "other"), "s")
    seen = other.add(Seen(), files(0, 65))
    other.write(seen)
    segment.write_bytes(Path(other.path(seen.segments[0])).read_bytes())
    with pytest.raises(StreamRefused, match="is damaged: its digest is another one"):
        inbox.run()
    segment.unlink()
    assert inbox.rewind("now"), "the operator's way out"
    assert inbox.run() == []


def test_what_was_left_by_a_process_that_was_killed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SeenStore(str(tmp_path), "s")
    seen = store.add(Seen(), files(0, 100))

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", kill)
    with pytest.raises(KeyboardInterrupt):
        store.write(seen)
    monkeypatch.undo()
    with pytest.raises(StreamRefused):
        SeenStore(str(tmp_path), "s").require(seen)
    again = SeenStore(str(tmp_path), "s")
    assert again.add(Seen(), files(0, 100)) == seen, "the same digest, whoever computes it"
    again.write(seen)
    again.require(seen)
    assert SeenStore(str(tmp_path), "s").table(seen).num_rows == 100


def test_a_slice_that_is_planned_again_has_the_same_mark(tmp_path: Path) -> None:
    """Two processes gather the same files, also where segments are merged."""
    one, two = (SeenStore(str(tmp_path / name), "s") for name in ("one", "two"))
    marks = []
    for store in (one, two):
        seen = Seen()
        for first in (0, 100, 130, 1000):
            seen = store.add(seen, files(first, 100))
            store.write(seen)
        marks.append(make_mark(seen).text)
    assert marks[0] == marks[1]


def test_the_newest_version_of_a_path_counts_whatever_segment_has_it(tmp_path: Path) -> None:
    store = SeenStore(str(tmp_path), "s")
    seen = store.add(Seen(), files(0, 400))
    newer = [File(file.path, Version(-1, -1, 0)) for file in files(0, 70)]
    seen = store.add(seen, newer)
    assert [segment.files for segment in seen.segments] == [400, 70]
    found = compare(store.table(seen), [*newer, *files(70, 330)])
    assert (found.new, found.changed, found.vanished) == ([], [], 0)
    assert [was for _, was in compare(store.table(seen), files(0, 70)).changed] == [Version(-1, -1, 0)] * 70
