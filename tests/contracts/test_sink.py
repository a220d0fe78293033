"""Every Sink keeps the contract; a new one joins here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pyarrow.dataset as ds
import pytest

from penstock.ports import Context, Probe
from penstock.sinks.files import FilesSink, Options, build
from penstock.sinks.files.layout import safe
from penstock.testing.contracts.delivery import PIPELINE
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
