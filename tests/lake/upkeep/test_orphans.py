"""Orphan files: leftovers of slices that the table holds go at once, files of coming ones never, the rest with age."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.lake.upkeep.upkeep_tables import UpkeepTable

from penstock.errors import StreamFailed
from penstock.lake import names
from penstock.lake.upkeep import orphans
from penstock.lake.upkeep.orphans import remove_orphans
from penstock.sinks.lake import LakeSink

Make = Callable[..., UpkeepTable]


def data(lake: UpkeepTable) -> Path:
    return next(path for path in lake.paths() if path.suffix == ".parquet").parent


def put(folder: Path, name: str, *, days: float = 0) -> Path:
    path = folder / name
    path.write_bytes(b"x" * 10)
    at = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    os.utime(path, (at, at))
    return path


def aside(lake: UpkeepTable, number: int, pipeline: str | None = None) -> str:
    return names.file_stem(pipeline or lake.name, "s", number, "a1") + "-0-0-x.parquet"


def test_what_goes_and_what_stays(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2, 3, 4)
    rows, folder = lake.rows_in(), data(lake)
    named = set(lake.paths())
    left = put(folder, aside(lake, 2))
    coming = put(folder, aside(lake, 3), days=30)
    unknown = put(folder, aside(lake, 1, "elsewhere"), days=30)
    young = put(folder, "00000-1-someone.parquet", days=2)
    old = put(folder, "00000-2-someone.parquet", days=4)
    metadata = put(folder.parent / "metadata", "old-m0.avro", days=4)

    (told,) = remove_orphans(lake.work(dry_run=True))
    assert told.text.startswith("would remove 3 files (30 B)")
    assert left.exists()
    (done,) = remove_orphans(lake.work())

    assert not any(path.exists() for path in (left, old, metadata))
    assert all(path.exists() for path in (coming, unknown, young))
    assert done.facts == {"files": 3, "bytes": 30, "waiting": 2, "young": 1}
    assert "kept 2 files of slices that have not landed and 1 file too young to tell" in done.text
    assert named <= set(lake.paths())
    assert lake.rows_in() == rows


def test_a_day_is_the_least_unless_forced(kept: Make) -> None:
    lake = kept()
    lake.land(1)
    young = put(data(lake), "00000-1-someone.parquet", days=0.5)
    remove_orphans(lake.work(orphans={"older_than": "0s"}))
    assert young.exists()
    remove_orphans(lake.work(orphans={"older_than": "0s"}, force=True))
    assert not young.exists()


def test_a_landing_in_progress_keeps_its_files(kept: Make) -> None:
    """Swept at every point of a landing, with no patience at all."""
    lake = kept()
    lake.land(1, 2)
    swept = []

    class Meanwhile:
        def at(self, point: str, **about: object) -> None:
            swept.append(point)
            remove_orphans(lake.work(orphans={"older_than": "0s"}))

    assert lake.land(3, 4, probe=Meanwhile()).exit_code == 0
    assert "lake.prepared" in swept
    assert [row[1] for row in lake.rows_in()] == [1, 2, 3, 4]


def test_leftovers_of_a_lost_attempt_go_once_its_slice_is_held(kept: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sink does not see them itself, as on S3."""
    monkeypatch.setattr(LakeSink, "sweep", lambda *_: None)
    lake = kept()
    lake.land(1)

    class Killed(BaseException):
        pass

    class Kill:
        def at(self, point: str, **about: object) -> None:
            if point == "lake.prepared":
                raise Killed

    before = set(lake.paths())
    with pytest.raises(Killed):
        lake.land(2, probe=Kill())
    left = [path for path in set(lake.paths()) - before if path.suffix == ".parquet"]
    assert left
    remove_orphans(lake.work(orphans={"older_than": "0s"}))
    assert all(path.exists() for path in left)
    lake.land()
    (done,) = remove_orphans(lake.work())
    assert not any(path.exists() for path in left)
    assert done.facts["files"] >= 1
    assert [row[1] for row in lake.rows_in()] == [1, 2]


@pytest.mark.filterwarnings("ignore:Merge on read:UserWarning")
def test_files_of_earlier_states_stay(kept: Make) -> None:
    lake = kept()
    lake.land(1)
    first = lake.table.metadata.current_snapshot_id
    assert first is not None
    lake.table.delete("key = 1")
    remove_orphans(lake.work(orphans={"older_than": "0s"}, force=True))
    assert lake.table.scan(snapshot_id=first).to_arrow().num_rows == 1


def test_a_folder_where_nothing_is_the_tables_is_left_alone(kept: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = kept()
    lake.land(1)
    moved = [orphans.ListedFile(f"/elsewhere{path}", 1, datetime(2020, 1, 1, tzinfo=UTC)) for path in lake.paths()]
    monkeypatch.setattr(orphans, "_list_files", lambda *_: iter(moved))
    with pytest.raises(StreamFailed, match="the table names none"):
        remove_orphans(lake.work())
