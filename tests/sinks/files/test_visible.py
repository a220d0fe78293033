"""What readers see, when, and under which names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sinks.files.folder import data_files, open_sink, tree

from penstock.core.marks import Mark
from penstock.core.slices import Kind
from penstock.errors import StreamRefused, StreamStopped
from penstock.ports import StreamInfo
from penstock.sinks.files.layout import safe
from penstock.testing.contracts.delivery import CONTENT, STREAM, Crash, after, deliver, position, stage_parts, table


def seen(folder: Path, stream: str = STREAM) -> list[int]:
    ids: list[int] = ds.dataset(folder / "out" / stream).to_table().column("id").to_pylist()
    return sorted(ids)


class At:
    """A probe that does something once, at a named point."""

    def __init__(self, point: str, action: Any) -> None:
        self.point, self.action, self.reached = point, action, False

    def at(self, point: str, **about: Any) -> None:
        if point == self.point and not self.reached:
            self.reached = True
            self.action()


# ---------------------------------------------------------------- hidden and visible


def test_a_reader_of_the_whole_folder_sees_committed_rows_only(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    first = deliver(sink, after(None), table(1, 2), table(3))
    stage_parts(sink, after(first), table(99))
    (tmp_path / "out" / "_penstock" / "contract" / STREAM / "manifests" / ".2.tmp").write_text("{}")
    assert seen(tmp_path) == [1, 2, 3]
    assert sorted(ds.dataset(tmp_path / "out").to_table().column("id").to_pylist()) == [1, 2, 3]


def test_a_reader_between_manifest_and_rename_sees_whole_files(tmp_path: Path) -> None:
    looks: list[list[str]] = []
    probe = At("files.manifest_linked", lambda: looks.append([p.name for p in data_files(tmp_path)]))
    receipts = stage_parts(open_sink(tmp_path), after(None), table(1), table(2))
    open_sink(tmp_path, probe=probe).commit(after(None), "a1", receipts)
    assert looks == [[]]
    assert seen(tmp_path) == [1, 2]


def test_the_names_of_files(tmp_path: Path) -> None:
    """They say nothing of the marks, which only the source can read."""
    slice_ = after(None, upto=Mark.of({"key": ["2024-05-01 10:00:00.25+00", "42"]}))
    first = deliver(open_sink(tmp_path), slice_, table(1), table(2), attempt="att")
    deliver(open_sink(tmp_path, format="csv"), after(first, upto=Mark.of({"at": 7})), table(3), attempt="att")
    names = [path.name for path in sorted((tmp_path / "out" / STREAM).iterdir())]
    starts = ["00000001-att", "00000002-att"]
    assert [name.startswith(start) for name, start in zip(names, [starts[0], *starts], strict=True)] == [True] * 3
    assert {name[len(starts[0]) + 8 :] for name in names[:2]} == {"-000-0.parquet", "-001-0.parquet"}


def test_the_manifest_names_every_file_with_size_and_checksum(tmp_path: Path) -> None:
    import hashlib

    slice_ = after(None)
    deliver(open_sink(tmp_path), slice_, table(1), table(2, 3))
    path = tmp_path / "out" / "_penstock" / "contract" / STREAM / "manifests" / "000000000001.json"
    manifest = json.loads(path.read_text())
    assert (manifest["id"], manifest["number"], manifest["rows"]) == (slice_.id, 1, 3)
    for named in manifest["files"]:
        raw = (tmp_path / "out" / named["name"]).read_bytes()
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (named["bytes"], named["sha256"])
    assert sum(named["rows"] for named in manifest["files"]) == 3


def test_connecting_and_asking_writes_nothing(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, directory="deep/er/out")
    sink.connect()
    sink.check(StreamInfo(STREAM, Kind.REFRESH), CONTENT)
    assert sink.held(STREAM) is None
    sink.close()
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- names that need care


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders", "orders"),
        ("public.orders", "public.orders"),
        ("_x", "%5Fx"),
        (".hidden", "%2Ehidden"),
        ("..", "%2E."),
        ("a b", "a b"),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        ("größe", "gr%C3%B6%C3%9Fe"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("x\n\0", "x%0A%00"),
        ("A=b", "A=b"),
    ],
)
def test_names_become_folders(name: str, folder: str) -> None:
    assert safe(name) == folder


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=2, unique=True))
def test_no_two_names_share_a_folder_and_none_hides_or_climbs(names: list[str]) -> None:
    one, other = map(safe, names)
    assert one != other
    assert not {"/", "\0"} & set(one)
    assert one[0] not in "._"


@pytest.mark.parametrize("name", ["_x", "a b", "größe.x", ".dot", "a/b", "..", "current"])
def test_streams_of_any_name_are_seen(tmp_path: Path, name: str) -> None:
    sink = open_sink(tmp_path, pipeline=name)
    first = deliver(sink, after(None, stream=name, pipeline=name), table(1))
    deliver(sink, after(first, stream=name, pipeline=name), table(2))
    assert seen(tmp_path, safe(name)) == [1, 2]
    assert seen(tmp_path, ".") == [1, 2]
    assert os.listdir(tmp_path) == ["out"]


# ---------------------------------------------------------------- a refresh


def refresh(sink: Any, *rows: int, attempt: str = "a1") -> Any:
    last = position(sink)
    done = deliver(sink, after(last, kind=Kind.REFRESH), table(*rows), attempt=attempt)
    sink.sweep(STREAM, done)
    return done


def current(folder: Path) -> list[int]:
    return seen(folder, f"{STREAM}/current")


def generations(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "out" / "_penstock" / "contract" / STREAM / "refresh"))


def test_current_points_to_the_last_refresh_and_one_before_is_kept(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    refresh(sink, 1, 2, attempt="a")
    assert current(tmp_path) == [1, 2]
    assert generations(tmp_path) == ["1.a"]
    under_way = ds.dataset(tmp_path / "out" / STREAM / "current")
    old = (tmp_path / "out" / STREAM / "current").resolve()
    refresh(sink, 3, attempt="b")
    assert current(tmp_path) == [3]
    assert generations(tmp_path) == ["1.a", "2.b"]
    assert sorted(ds.dataset(old).to_table().column("id").to_pylist()) == [1, 2]
    refresh(sink, 4, attempt="c")
    assert generations(tmp_path) == ["2.b", "3.c"]
    assert not old.exists()
    assert os.readlink(tmp_path / "out" / STREAM / "current") == f"../_penstock/contract/{STREAM}/refresh/3.c"
    assert under_way


def test_current_is_there_at_every_moment(tmp_path: Path) -> None:
    first = refresh(open_sink(tmp_path), 1)
    second = after(first, kind=Kind.REFRESH)
    receipts = stage_parts(open_sink(tmp_path), second, table(2, 3))
    looks: dict[str, list[int]] = {}

    class Watching:
        def at(self, point: str, **about: Any) -> None:
            looks[point] = current(tmp_path)

    open_sink(tmp_path, probe=Watching()).commit(second, "a1", receipts)
    assert looks == {
        "files.manifest_written": [1],
        "files.manifest_linked": [1],
        "files.file_visible": [1],
        "files.link_swapped": [2, 3],
        "files.all_visible": [2, 3],
    }


def test_a_late_writer_cannot_swap_current_back(tmp_path: Path) -> None:
    """It has committed, freezes before it swaps, and wakes up after two more refreshes."""

    def others() -> None:
        sink = open_sink(tmp_path)
        assert position(sink) is not None  # finishes what the frozen one has left
        refresh(sink, 2, attempt="b")
        refresh(sink, 3, attempt="c")

    late = open_sink(tmp_path, probe=At("files.manifest_linked", others))
    slice_ = after(None, kind=Kind.REFRESH)
    receipts = stage_parts(open_sink(tmp_path), slice_, table(1))
    with pytest.raises(StreamStopped):
        late.commit(slice_, "a1", receipts)
    assert current(tmp_path) == [3]
    assert position(open_sink(tmp_path)) is not None
    assert current(tmp_path) == [3]


def test_a_crash_before_the_swap_is_finished_by_the_next_to_ask(tmp_path: Path) -> None:
    refresh(open_sink(tmp_path), 1)

    def die() -> None:
        raise Crash

    sink = open_sink(tmp_path, probe=At("files.file_visible", die))
    slice_ = after(position(sink), kind=Kind.REFRESH)
    receipts = stage_parts(open_sink(tmp_path), slice_, table(2), attempt="b")
    with pytest.raises(Crash):
        sink.commit(slice_, "b", receipts)
    assert current(tmp_path) == [1]
    assert position(open_sink(tmp_path)) == slice_.position
    assert current(tmp_path) == [2]


def test_an_empty_refresh_is_an_empty_folder(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    refresh(sink, 1)
    refresh(sink)
    assert list((tmp_path / "out" / STREAM / "current").iterdir()) == []


def test_a_link_that_someone_moved_stops(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    refresh(sink, 1, attempt="a")
    refresh(sink, 2, attempt="b")
    link = tmp_path / "out" / STREAM / "current"
    link.unlink()
    link.symlink_to(f"../_penstock/contract/{STREAM}/refresh/1.a")
    with pytest.raises(StreamStopped, match="does not point to the refresh of slice 2"):
        sink.held(STREAM)


def test_a_refresh_is_refused_where_another_pipeline_writes(tmp_path: Path) -> None:
    other = open_sink(tmp_path, pipeline="other shop")
    deliver(other, after(None, pipeline="other shop"), table(1))
    sink = open_sink(tmp_path)
    sink.check(StreamInfo(STREAM, Kind.ROWS), CONTENT)
    sink.check(StreamInfo("customers", Kind.REFRESH), CONTENT)
    with pytest.raises(StreamRefused) as refused:
        sink.check(StreamInfo(STREAM, Kind.REFRESH), CONTENT)
    assert str(refused.value) == (
        f"contract/orders: a full refresh would replace {tmp_path}/out/orders, which pipeline 'other shop' writes too\n"
        "Nothing was lost: the mark has not moved.\n"
        "Next: give this pipeline a directory of its own, or the stream a cursor"
    )


def test_a_sweep_leaves_no_empty_folders_behind(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    stage_parts(sink, after(None), table(9), attempt="z")
    sink.sweep(STREAM, deliver(sink, after(None), table(1)))
    meta = tmp_path / "out" / "_penstock" / "contract" / STREAM
    (meta / "newest.json.0123").touch()  # of one that was killed
    sink.sweep(STREAM, after(None).position)
    assert list((meta / "staged").iterdir()) == []
    assert tree(meta) == ["manifests/000000000001.json", "newest.json"]
