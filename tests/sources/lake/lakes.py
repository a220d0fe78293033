"""A real lake in a folder: tables landed by the sink or written by others, and readers of them."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from tests.harness.contents import columns_of as columns_in
from tests.harness.doubles import LoopMover

from penstock.core.content import Column, Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Part, Slice, following
from penstock.lake.lake import Lake
from penstock.lake.landing import list_current_files
from penstock.lake.metadata import read_state
from penstock.lake.options import CatalogOptions, LakeOptions
from penstock.lake.table_state import TableState
from penstock.lake.tables import commit_snapshot, load_table
from penstock.ports import Budget, Context, NoProbe, NoSpark, Probe, Source, Spark
from penstock.sinks import lake as lake_sink
from penstock.sources import lake as lake_source
from penstock.testing.contracts.source import prepare

NAMESPACE = "shop"
#: larger than anything here
WIDE = Budget(bytes=1 << 30, workers=1)


def orders(first: int, last: int, **more: Sequence[Any]) -> pa.Table:
    """Orders whose note follows from their id."""
    ids = range(first, last + 1)
    plain = {"id": pa.array(ids, pa.int64()), "note": pa.array([f"note {n}" for n in ids], pa.string())}
    return pa.table({**plain, **more})


@dataclass
class LakeWorld:
    """One warehouse with its catalog, in a folder of its own."""

    folder: Path
    namespace: str = NAMESPACE
    #: for keyed tables
    spark: Spark = field(default_factory=NoSpark)
    _last: dict[str, Position] = field(default_factory=dict)
    #: what sources and sinks said at once
    said: list[str] = field(default_factory=list)

    @property
    def lake(self) -> Lake:
        return Lake.from_options(LakeOptions(namespace=self.namespace), folder=str(self.folder), pipeline="in")

    def context(self, pipeline: str, probe: Probe | None = None) -> Context:
        def say(stream: str, text: str) -> None:
            self.said.append(f"{stream}: {text}")

        return Context(pipeline, str(self.folder), probe or NoProbe(), spark=self.spark, mover=LoopMover, say=say)

    # ------------------------------------------------------------ rows come in

    def land(
        self,
        *parts: pa.Table,
        table: str = "orders",
        changes: bool = False,
        key: Sequence[str] = (),
        columns: tuple[Column, ...] | None = None,
        probe: Probe | None = None,
        **options: Any,
    ) -> None:
        """One slice, as the sink lands it; each table is one part."""
        rows = parts[0].drop_columns(["_change"]) if changes else parts[0]
        content = Content(columns or columns_in(rows.schema), changes=changes)
        keyed = {"mode": "merge", "key": tuple(key)} if key else {}
        streams = {table: lake_sink.StreamOptions.model_validate({**keyed, **options})}
        sink = lake_sink.build(lake_sink.Options(namespace=self.namespace), streams, self.context("in", probe))
        last = self._last.get(table)
        number = last.number + 1 if last else 1
        slice_ = following(last, pipeline="in", stream=table, upto=Mark.of({"n": number}), content=content)
        writer = pickle.loads(pickle.dumps(sink.writer(slice_, f"a{number}")))
        receipts = [writer.write(part.to_reader(), Part(index, "{}")) for index, part in enumerate(parts)]
        sink.commit(slice_, f"a{number}", receipts)
        self._last[table] = slice_.position

    def catalog(self) -> SqlCatalog:
        """As others open it: PyIceberg, with nothing of ours."""
        made = SqlCatalog("lake", uri=f"sqlite:///{self.lake.uri}?timeout=60", warehouse=self.lake.warehouse)
        made.create_namespace_if_not_exists(self.namespace)
        return made

    def table(self, name: str = "orders") -> Table:
        return self.catalog().load_table((self.namespace, name))

    def make(self, rows: pa.Table, name: str = "orders") -> Table:
        """A table that penstock did not make."""
        (self.folder / "lake").mkdir(exist_ok=True)
        return self.catalog().create_table((self.namespace, name), rows.schema, properties={"format-version": "2"})

    def append(self, rows: pa.Table, name: str = "orders") -> None:
        """By someone else: no numbers, no head."""
        table = self.table(name)
        missing = [f for f in table.schema().as_arrow() if f.name not in rows.schema.names]
        for each in missing:
            rows = rows.append_column(pa.field(each.name, each.type), pa.nulls(rows.num_rows, each.type))
        with warnings.catch_warnings(action="ignore"):
            # PyIceberg says that it does not keep to the size of row groups that our tables ask for.
            table.append(rows.select(table.schema().column_names).cast(table.schema().as_arrow()))

    def delete(self, rows: str, name: str = "orders") -> None:
        """By someone else."""
        with warnings.catch_warnings(action="ignore"):
            # PyIceberg says that it cannot merge on read.
            self.table(name).delete(rows)

    def overwrite(self, change: Callable[[pa.Table], pa.Table], name: str = "orders") -> None:
        """By someone else, in one snapshot: every file is replaced, as a copying UPDATE or INSERT OVERWRITE does."""
        table = self.table(name)
        rows = change(table.scan().to_arrow()).cast(table.schema().as_arrow())
        transaction = table.transaction()
        producer = transaction.update_snapshot().overwrite()
        for file in list_current_files(table):
            producer.delete_data_file(file)
        with warnings.catch_warnings(action="ignore"):
            for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                producer.append_data_file(file)
        producer.commit()
        transaction.commit_transaction()

    def shuffle(self, files: int, name: str = "orders") -> None:
        """As a bin-packing compaction leaves a table: every file has numbers from all over it."""
        table = load_table(self.lake, name)
        assert table
        rows = table.scan().to_arrow().sort_by("_ingest_seq")
        places = pa.array(range(rows.num_rows))
        parts = [
            rows.filter(pc.equal(pc.subtract(places, pc.multiply(pc.divide(places, files), files)), n))
            for n in range(files)
        ]
        with warnings.catch_warnings(action="ignore"):
            made = [file for part in parts for file in _dataframe_to_data_files(table.metadata, part, table.io)]
        assert len(made) == files
        commit_snapshot(
            table, kind="compaction", head=self.state(name).head, added=made, removed=list_current_files(table)
        )

    def state(self, name: str = "orders") -> TableState:
        found = read_state(self.lake, name)
        assert found is not None
        return found

    def numbers(self, name: str = "orders") -> list[int | None]:
        found: list[int | None] = self.table(name).scan().to_arrow().column("_ingest_seq").to_pylist()
        return sorted(found, key=lambda n: (n is not None, n))

    # ------------------------------------------------------------ rows go out

    def source(
        self,
        pipeline: str = "out",
        *,
        stream: str = "orders",
        probe: Probe | None = None,
        catalog: Mapping[str, str] | None = None,
        **options: Any,
    ) -> lake_source.LakeSource:
        streams = {stream: lake_source.StreamOptions.model_validate(options)}
        chosen = lake_source.Options(namespace=self.namespace, catalog=CatalogOptions(properties=dict(catalog or {})))
        made = lake_source.build(chosen, streams, self.context(pipeline, probe))
        made.connect()
        return made

    def reader(self, pipeline: str = "out", *, start: int | str | None = None, **options: Any) -> Reader:
        return Reader(self, pipeline, options if start is None else {**options, "from": start})


@dataclass
class Reader:
    """One pipeline that reads a table: what it stands at, and what it has been given, slice by slice."""

    lake: LakeWorld
    pipeline: str = "out"
    options: dict[str, Any] = field(default_factory=dict)
    last: Position | None = None
    said: list[str] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)

    @property
    def stream(self) -> str:
        return str(self.options.get("stream", "orders"))

    def source(self) -> lake_source.LakeSource:
        return self.lake.source(self.pipeline, **self.options)

    def begin(self, source: Source) -> tuple[Content, Document | None]:
        """What the engine asks before the first plan."""
        content = source.content(self.stream)
        if self.last and self.last.mark:
            source.accept(self.stream, self.last, content)
        self.said += prepare(source, self.stream, content, self.last)
        content = source.content(self.stream)
        return content, source.ceiling(self.stream, content, "run")

    def intend(self, budget: Budget = WIDE) -> Slice | None:
        """The next slice of a run; nothing of it is read yet."""
        source = self.source()
        content, ceiling = self.begin(source)
        assert ceiling is not None
        return self._next(source, content, ceiling, budget)

    def _next(self, source: Source, content: Content, ceiling: Document, budget: Budget) -> Slice | None:
        planned = source.plan(self.stream, content, self.last.mark if self.last else None, ceiling, budget)
        if planned is None:
            return None
        return following(
            self.last,
            pipeline=self.pipeline,
            stream=self.stream,
            upto=planned.upto,
            content=content,
            kind=planned.kind,
            plan=planned.plan,
        )

    def read(self, slice_: Slice, source: Source | None = None) -> pa.Table:
        """A slice's rows, part by part, through a pickled reader."""
        with (source or self.source()).reading(slice_) as reading:
            reader = pickle.loads(pickle.dumps(reading.reader))
            return pa.concat_tables([reader.open(part).read_all() for part in reading.parts])

    def run(self, budget: Budget = WIDE, between: Callable[[], None] = lambda: None) -> list[pa.Table]:
        """All slices of a run, one table each."""
        source = self.source()
        content, ceiling = self.begin(source)
        assert ceiling is not None
        found = []
        while slice_ := self._next(source, content, ceiling, budget):
            if slice_.kind is Kind.ROWS:
                found.append(self.read(slice_, source))
            self.slices.append(slice_)
            self.last = slice_.position
            between()
        return found

    def ids(self, budget: Budget = WIDE) -> list[int]:
        """The ids that a run gives, in its order."""
        return [id_ for rows in self.run(budget) for id_ in rows.column("id").to_pylist()]

    @property
    def seq(self) -> int:
        assert self.last
        assert self.last.mark
        found: Any = int(self.last.mark.document["key"][0])
        return int(found)


class Origin:
    """A lake table as the origin of a contract: every arrival is one landing."""

    stream = "orders"

    def __init__(self, folder: Path, **options: Any) -> None:
        self.lake = LakeWorld(folder)
        self.options = options
        self.count = 0
        self.prepare()

    def prepare(self) -> None:
        self.lake.land(orders(1, 0))

    def open(self) -> Source:
        return self.lake.source("contract", **self.options)

    def open_with(self, stream: str, options: Mapping[str, Any]) -> Source:
        return self.lake.source("contract", stream=stream, **options)

    def traces(self) -> Hashable:
        """Every file of the warehouse with its size and time, the catalog's too."""
        found = ((path, path.stat()) for path in sorted(self.lake.folder.rglob("*")))
        return tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in found)

    def arrive(self, count: int) -> None:
        if count:
            self.lake.land(orders(self.count + 1, self.count + count))
            self.count += count

    def rows(self) -> Sequence[Hashable]:
        found: list[Hashable] = self.lake.table().scan(selected_fields=("id",)).to_arrow().column("id").to_pylist()
        return found

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        ids: list[Hashable] = batch.column("id").to_pylist()
        return ids


class Foreign(Origin):
    """A table that penstock did not make, and whose rows others append."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, adopt=True)

    def prepare(self) -> None:
        self.lake.make(orders(1, 1))

    def arrive(self, count: int) -> None:
        if count:
            self.lake.append(orders(self.count + 1, self.count + count))
            self.count += count
