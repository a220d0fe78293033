"""Every Sink keeps the contract; a new one joins here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pyarrow.dataset as ds
import pytest
from pyiceberg.table import Table

from penstock.lake import tables
from penstock.lake.names import of_file
from penstock.lake.options import LakeOptions
from penstock.lake.place import Place
from penstock.ports import Context, Probe, Quiet
from penstock.sinks import lake
from penstock.sinks.files import FilesSink, Options, build
from penstock.sinks.files.layout import safe
from penstock.testing.contracts.delivery import PIPELINE, Crash, Crashing, position
from penstock.testing.contracts.sink import SinkContract


class Folder:
    """Files in a folder, read by Arrow's own listing of it."""

    def __init__(self, folder: Path, format_: Literal["parquet", "csv", "ndjson"]) -> None:
        self.folder, self.format = folder, format_

    def open(self, probe: Probe, pipeline: str = PIPELINE) -> FilesSink:
        options = Options(directory="out", format=self.format)
        return build(options, {}, Context(pipeline=pipeline, folder=str(self.folder), probe=probe))

    def rows(self, stream: str) -> list[int]:
        data = self.folder / "out" / safe(stream)
        if (data / "current").is_symlink():
            data = data / "current"
        if not data.exists():
            return []
        files = ds.dataset(data, format="json" if self.format == "ndjson" else self.format)
        ids: list[int] = files.to_table(columns=["id"]).column("id").to_pylist() if files.files else []
        return ids

    def aside(self) -> int:
        meta = self.folder / "out" / "_penstock"
        return sum(path.parent.parent.name == "staged" for path in meta.rglob("*") if path.is_file())

    def damage(self, stream: str) -> None:
        newest = max((self.folder / "out" / safe(stream)).iterdir())
        os.unlink(newest)


class TestParquetFiles(SinkContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path, "parquet")


class TestCsvFiles(SinkContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path, "csv")


class TestNdjsonFiles(SinkContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path, "ndjson")


#: names of streams that would give the same table, or one that Spark takes for the same
TABLES = {
    name: lake.StreamOptions(table=f"t{number}")
    for number, name in enumerate(["orders.items", "orders items", "Orders", "a/b", "a%2Fb", ".orders", "_orders"])
}


class Lake:
    """Iceberg tables in a folder, read by PyIceberg's own scan of main."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = Place.of(LakeOptions(namespace="shop"), folder=str(folder), pipeline=PIPELINE)

    def open(self, probe: Probe, pipeline: str = PIPELINE) -> lake.LakeSink:
        context = Context(pipeline=pipeline, folder=str(self.folder), probe=probe)
        return lake.build(lake.Options(namespace="shop"), TABLES, context)

    def table(self, stream: str) -> Table | None:
        return tables.load(self.place, self.open(Quiet()).table(stream))

    def rows(self, stream: str) -> list[int]:
        table = self.table(stream)
        if table is None:
            return []
        seen = table.scan().to_arrow()
        numbers = seen.column("_ingest_seq").to_pylist()
        assert len(numbers) == len(set(numbers))
        ids: list[int] = seen.sort_by("_ingest_seq").column("id").to_pylist()
        return ids

    def aside(self) -> int:
        """Data files that main does not name."""
        found = {path.name for path in self.folder.rglob("*.parquet") if of_file(path.name)}
        for name in tables.names_in(self.place):
            table = tables.load(self.place, name)
            assert table is not None
            found -= {os.path.basename(task.file.file_path) for task in table.scan().plan_files()}
        return len(found)

    def damage(self, stream: str) -> None:
        """Roll main back by one slice."""
        table = self.table(stream)
        assert table is not None
        last = table.metadata.current_snapshot()
        assert last is not None
        assert last.parent_snapshot_id is not None
        table.manage_snapshots().rollback_to_snapshot(last.parent_snapshot_id).commit()


class TestLakeLog(SinkContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Lake:
        return Lake(tmp_path)

    def test_whoever_finishes_may_crash_too(self, destination: Lake) -> None:  # type: ignore[override]
        """One commit of the catalog: nothing is left to be finished, and whoever asks writes nothing."""
        dry = Crashing()
        destination.open(dry).commit(*self.two_parts(destination, "dry"))
        for call in range(len(dry.points)):
            stream = f"finish {call}"
            slice_, attempt, receipts = self.two_parts(destination, stream)
            with pytest.raises(Crash):
                destination.open(Crashing(at_call=call)).commit(slice_, attempt, receipts)
            asking = Crashing()
            position(destination.open(asking), stream)
            assert asking.points == []
            self.finish(destination, slice_, receipts, [1, 2, 3])
