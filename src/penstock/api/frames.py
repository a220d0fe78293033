"""Reads a source's stream as a DataFrame. Moves no mark, and touches neither store nor sink."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from penstock import wiring
from penstock.api.files import load_file, load_mapping
from penstock.config import File
from penstock.config.pipeline_choice import choose_pipeline
from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.names import suggest
from penstock.core.slices import Kind, Slice, following
from penstock.engine.look import Look
from penstock.errors import UNTOUCHED, PenstockError, StreamRefused
from penstock.links.spools import FolderSpools
from penstock.ports import (
    Budget,
    Context,
    Gathering,
    Mover,
    NoProbe,
    Reading,
    Source,
    Spools,
    StreamInfo,
    StreamState,
    capability,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession,
    source: str | os.PathLike[str] | Mapping[str, Any],
    stream: str,
    *,
    pipeline: str | None = None,
    after: Mapping[str, Any] | None = None,
    changes: bool = False,
    spool: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read a stream's rows up to now as a DataFrame on a given session.

    `source` is a pipeline file (its sink is not touched), or a mapping with the keys of `source` in such a file, plus
    `streams`. `after` is a mark, as `penstock state show --json` prints it: only later rows are read. `changes` keeps
    deletes and adds a column `_change` with `upsert` or `delete`.

    This call fixes the range of rows. Spark's workers read them in parts when an action needs them. A stream without a
    cursor, and any stream if `spool` names a folder, is first copied there as Parquet from one database snapshot. The
    pages of an API are fetched by this call, into files. Copies and files are deleted at the end of the process.
    """
    file = load_mapping(source, overrides) if isinstance(source, Mapping) else load_file(source, overrides)
    first = next(iter(file.pipelines))
    name = choose_pipeline(file, pipeline, f"penstock.read(spark, file, stream, pipeline={first!r})")
    reading = _Stream(spark, file, name, stream, changes)
    try:
        return reading.frame(Mark.of(dict(after)) if after is not None else None, spool)
    except PenstockError as error:
        raise error.at(pipeline=name, stream=stream) from None


class _Stream:
    """One stream, read once."""

    def __init__(self, spark: SparkSession, file: File, pipeline: str, stream: str, changes: bool) -> None:
        self._spark = spark
        self._file, self._pipeline, self._stream = file, pipeline, stream
        self._changes = changes

    def frame(self, after: Mark | None, spool: str | os.PathLike[str] | None) -> DataFrame:
        gathered = _GatheringFolder(spool)
        spools = FolderSpools(gathered.path, self._pipeline)
        context = Context(self._pipeline, self._file.folder, NoProbe(), mover=_refuse_rewriting, spools=spools)
        with gathered, closing(wiring.build_source(self._file, self._pipeline, context)) as source:
            source.connect()
            look = Look(self._pipeline, self._find_stream(source), source, None, uuid.uuid4().hex)
            content = look.content = source.content(self._stream)
            last = Position(0, "", after, content.text) if after is not None else None
            look.validate(StreamState(last))
            slices = list(self._slices(look, content, last, spools))
            if any(slice_.kind is Kind.REFRESH and not slice_.spool for slice_ in slices):
                return self._spool(source, content, slices, spool)
            frame = self._frame_of(content, [self._reading(source, slice_) for slice_ in slices])
            if spool is not None:
                return self._copy(frame, spool)
            gathered.keep()
            return frame

    def _find_stream(self, source: Source) -> StreamInfo:
        known = {info.name: info for info in source.catalog()}
        if self._stream not in known:
            raise StreamRefused(
                f"there is no stream '{self._stream}'; {suggest(self._stream, list(known), 'streams')}",
                safe=UNTOUCHED,
                next_step="use one of these streams, or add the stream to the pipeline file",
            )
        return known[self._stream]

    def _slices(self, look: Look, content: Content, last: Position | None, spools: Spools) -> Iterator[Slice]:
        """All rows up to now, in the slices of a run; gathered, where the source gathers."""
        budget = Budget(self._file.pipelines[self._pipeline].slice_bytes, workers=self._workers())
        gathering = capability(look.source, Gathering)
        while planned := look.plan(last.mark if last else None, budget):
            digest = ""
            if gathering is not None and planned.kind.moves and look.ceiling is not None:
                number, after = (last.number + 1, last.mark) if last else (1, None)
                with spools.gather(self._stream, number, "read") as folder:
                    gathered = gathering.gather(self._stream, content, after, look.ceiling, budget, folder)
                    if gathered is None:
                        return
                    planned, digest = gathered, spools.close_gathered(folder)
            slice_ = following(
                last,
                pipeline=self._pipeline,
                stream=self._stream,
                upto=planned.upto,
                content=content,
                kind=planned.kind,
                plan=planned.plan,
                spool=digest,
            )
            if slice_.kind.moves:
                yield slice_
            last = slice_.position

    def _reading(self, source: Source, slice_: Slice) -> Reading:
        # This reader needs no open snapshot, unlike that of a full refresh.
        with source.reading(slice_) as reading:
            return Reading(reading.reader, list(reading.parts))

    def _frame_of(self, content: Content, readings: list[Reading]) -> DataFrame:
        from penstock.links.arrow_types import arrow_schema
        from penstock.links.spark.frame import frame, frame_schema, job

        wanted = frame_schema(arrow_schema(content.columns), changes=self._changes)
        return frame(self._spark, job(readings, wanted, changes=self._changes))

    def _spool(
        self, source: Source, content: Content, slices: list[Slice], spool: str | os.PathLike[str] | None
    ) -> DataFrame:
        """Copy the rows now, while the source keeps its snapshot open."""
        (slice_,) = slices
        with source.reading(slice_) as reading:
            return self._copy(self._frame_of(content, [reading]), spool)

    def _copy(self, frame: DataFrame, spool: str | os.PathLike[str] | None) -> DataFrame:
        """Copy the rows to Parquet files that are deleted at the end of the process."""
        where = _local_folder(spool)
        if where is None:
            # A remote folder: the caller deletes it.
            path = f"{os.fspath(spool or '').rstrip('/')}/penstock-{uuid.uuid4().hex}"
        else:
            os.makedirs(where, exist_ok=True)
            path = tempfile.mkdtemp(prefix="penstock-", dir=where)
            atexit.register(shutil.rmtree, path, ignore_errors=True)
        frame.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def _workers(self) -> int:
        return int(self._spark.conf.get("spark.default.parallelism", None) or os.cpu_count() or 1)


class _GatheringFolder:
    """A local folder for what a source gathers. Deleted at the end of the block, or of the process if it is kept."""

    def __init__(self, spool: str | os.PathLike[str] | None) -> None:
        # Made once something is gathered.
        self.path = os.path.join(_local_folder(spool) or tempfile.gettempdir(), f"penstock-{uuid.uuid4().hex}")
        self._is_kept = False

    def keep(self) -> None:
        self._is_kept = True
        atexit.register(shutil.rmtree, self.path, ignore_errors=True)

    def __enter__(self) -> _GatheringFolder:
        return self

    def __exit__(self, *failed: object) -> None:
        if not self._is_kept:
            shutil.rmtree(self.path, ignore_errors=True)


def _local_folder(spool: str | os.PathLike[str] | None) -> str | None:
    """The absolute path for copies, since the JVM may have another current folder; None: they are remote."""
    where = os.fspath(spool) if spool is not None else tempfile.gettempdir()
    return None if "://" in where else os.path.abspath(where)


def _refuse_rewriting() -> Mover:
    raise StreamRefused(
        "the table has rows from other programs that have no `_ingest_seq` yet",
        safe=UNTOUCHED,
        next_step="run a pipeline that reads the table, or `penstock upkeep FILE`, which numbers them; then read again",
    )
