"""Every Sink keeps the contract; a new one joins here."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from tests.harness.versitygw import gateway
from tests.sinks.files.buckets import Bucket

from penstock.core.slices import Kind
from penstock.lake import tables
from penstock.lake.lake import Lake
from penstock.lake.names import DELETED, SEQ, parse_file_name
from penstock.lake.options import LakeOptions
from penstock.links.spark import SparkSessionProvider
from penstock.ports import Context, NoProbe, NoSpark, Probe, Spark
from penstock.sinks import lake
from penstock.sinks.files import FilesSink, Options, build
from penstock.sinks.files.layout import safe
from penstock.testing.contracts.delivery import (
    PIPELINE,
    table,
)
from penstock.testing.contracts.sink import SinkContract


class Folder:
    """Files in a folder, read by Arrow's own listing of it."""

    def __init__(self, folder: Path, format_: Literal["parquet", "csv", "ndjson"]) -> None:
        self.folder, self.format = folder, format_

    def open(self, probe: Probe, pipeline: str = PIPELINE) -> FilesSink:
        options = Options(directory="out", format=self.format)
        return build(options, {}, Context(pipeline=pipeline, folder=str(self.folder), probe=probe))

    def rows(self, stream: str, column: str = "id") -> list[int]:
        data = self.folder / "out" / safe(stream)
        if (data / "current").is_symlink():
            data = data / "current"
        if not data.exists():
            return []
        files = ds.dataset(data, format="json" if self.format == "ndjson" else self.format)
        ids: list[int] = files.to_table(columns=[column]).column(column).to_pylist() if files.files else []
        return ids

    def occupy(self, stream: str, *ids: int) -> None:
        data = self.folder / "out" / safe(stream)
        data.mkdir(parents=True)
        lines = {"csv": ["id,text", *(f"{id_},theirs" for id_ in ids)]}
        lines["ndjson"] = [json.dumps({"id": id_, "text": "theirs"}) for id_ in ids]
        if self.format == "parquet":
            pq.write_table(table(*ids), data / "theirs.parquet")
        else:
            (data / f"theirs.{self.format}").write_text("".join(f"{line}\n" for line in lines[self.format]))

    def count_leftovers(self) -> int:
        meta = self.folder / "out" / "_penstock"
        return sum(path.parent.parent.name == "staged" for path in meta.rglob("*") if path.is_file())

    def damage(self, stream: str) -> None:
        newest = max((self.folder / "out" / safe(stream)).iterdir())
        os.unlink(newest)


class Files(SinkContract):
    """A delete is a row of its own, told by `_change`."""

    AFTER_A_DELETE: ClassVar[list[int] | None] = [1, 1, 2]


class TestParquetFiles(Files):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path, "parquet")


class TestCsvFiles(Files):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path, "csv")


class TestNdjsonFiles(Files):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path, "ndjson")


class TestFilesOnS3(Files):
    """On a real server, versitygw."""

    @pytest.fixture
    def destination(self) -> Bucket:
        server = gateway()
        return Bucket(server, server.bucket())


#: names of streams that would give the same table, or one that Spark takes for the same
TABLES = {
    name: lake.StreamOptions(into=f"t{number}")
    for number, name in enumerate(["orders.items", "orders items", "Orders", "a/b", "a%2Fb", ".orders", "_orders"])
}


class Keyed(dict[str, lake.StreamOptions]):
    """Every stream, whatever its name, is merged by its id."""

    def get(self, name: str, default: Any = None) -> lake.StreamOptions:
        table = TABLES[name].into if name in TABLES else None
        return lake.StreamOptions(mode="merge", key=("id",), into=table)


class LakeWorld:
    """Iceberg tables in a folder, read by PyIceberg's own scan of main."""

    def __init__(self, folder: Path, namespace: str = "shop", spark: Spark | None = None) -> None:
        self.folder, self.namespace, self.spark = folder, namespace, spark
        self.lake = Lake.from_options(LakeOptions(namespace=namespace), folder=str(folder), pipeline=PIPELINE)

    def open(self, probe: Probe, pipeline: str = PIPELINE) -> lake.LakeSink:
        context = Context(pipeline=pipeline, folder=str(self.folder), probe=probe, spark=self.spark or NoSpark())
        return lake.build(lake.Options(namespace=self.namespace), Keyed() if self.spark else TABLES, context)

    def table(self, stream: str) -> Table | None:
        return tables.load_table(self.lake, self.open(NoProbe()).table(stream))

    def occupy(self, stream: str, *ids: int) -> None:
        name = self.open(NoProbe()).table(stream)
        theirs = table(*ids)
        self.lake.catalog().create_namespace_if_not_exists(self.namespace)
        made = self.lake.catalog().create_table((self.namespace, name), theirs.schema)
        made.append(theirs)

    def rows(self, stream: str, column: str = "id") -> list[int]:
        table = self.table(stream)
        if table is None:
            return []
        seen = table.scan().to_arrow()
        if SEQ not in seen.column_names:
            theirs: list[int] = seen.column(column).to_pylist()
            return theirs
        if DELETED in seen.column_names:
            seen = seen.filter(pc.fill_null(pc.invert(seen.column(DELETED)), True))
        numbers = seen.column("_ingest_seq").to_pylist()
        assert len(numbers) == len(set(numbers))
        ids: list[int] = seen.sort_by("_ingest_seq").column(column).to_pylist()
        return ids

    def count_leftovers(self) -> int:
        """Data files that main does not name."""
        found = {
            path.name for path in self.folder.rglob(f"{self.namespace}/*/data/*.parquet") if parse_file_name(path.name)
        }
        for name in tables.list_through_pyiceberg(self.lake):
            table = tables.load_table(self.lake, name)
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
    """A delete is a row that readers leave out; the version before it stays."""

    REFUSED_BESIDE_OTHERS: ClassVar[frozenset[Kind]] = frozenset({Kind.ROWS, Kind.REFRESH})
    COMMITS_AT_ONCE: ClassVar[bool] = True
    ORDERED: ClassVar[bool] = True
    AFTER_A_DELETE: ClassVar[list[int] | None] = [1, 2]

    @pytest.fixture
    def destination(self, tmp_path: Path) -> LakeWorld:
        return LakeWorld(tmp_path)


NAMESPACES = count(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keyed")


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
class TestLakeKeyed(TestLakeLog):
    """A keyed table shows each id once, and takes no refresh."""

    KEYED: ClassVar[bool] = True
    REFRESHES: ClassVar[bool] = False
    AFTER_A_DELETE: ClassVar[list[int] | None] = [2]

    @pytest.fixture
    def destination(self, folder: Path, spark_provider: SparkSessionProvider) -> LakeWorld:
        return LakeWorld(folder, f"n{next(NAMESPACES)}", spark_provider)
