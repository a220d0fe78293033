"""A source's stream as a DataFrame for the user's own job. No mark moves; neither store nor sink is touched."""

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
from penstock.api.files import described, loaded
from penstock.config import File
from penstock.config.choosing import only
from penstock.config.mistakes import suggest
from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Slice, following
from penstock.errors import UNTOUCHED, PenstockError, StreamRefused
from penstock.ports import Budget, Context, Mover, NoProbe, Reading, Source

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
    """A stream's rows up to this moment, as a DataFrame on the session that is given.

    `source`: a pipeline file (its sink is not touched), or what stands under `source` in one, with `streams` beside
    it. `after`: only what comes after a mark, as `penstock state show --json` prints it. `changes`: keep deletes, and
    a column `_change` that says of each row whether it is an `upsert` or a `delete`.

    How far it goes is fixed by this call; rows are read when an action asks for them, in parts, by Spark's workers. A
    stream without a cursor, and any stream if `spool` names a folder, is first copied there as Parquet, in one
    snapshot of the database, and removed at the end of the process.
    """
    file = described(source, overrides) if isinstance(source, Mapping) else loaded(source, overrides)
    first = next(iter(file.pipelines))
    name = only(file, pipeline, f"penstock.read(spark, file, stream, pipeline={first!r})")
    chosen = _Stream(spark, file, name, stream, changes)
    try:
        return chosen.frame(Mark.of(dict(after)) if after is not None else None, spool)
    except PenstockError as error:
        raise error.at(pipeline=name, stream=stream) from None


class _Stream:
    """One stream, read once."""

    def __init__(self, spark: SparkSession, file: File, pipeline: str, stream: str, changes: bool) -> None:
        self._spark = spark
        self._file, self._pipeline, self._stream = file, pipeline, stream
        self._changes = changes

    def frame(self, after: Mark | None, spool: str | os.PathLike[str] | None) -> DataFrame:
        context = Context(self._pipeline, self._file.folder, NoProbe(), mover=_no_rewriting)
        with closing(wiring.build_source(self._file, self._pipeline, context)) as source:
            source.connect()
            self._must_be_known(source)
            content = source.content(self._stream)
            if after is not None:
                source.accept(self._stream, Position(0, "", after, content.text), content)
            slices = list(self._slices(source, content, after))
            if any(slice_.kind is Kind.REFRESH for slice_ in slices):
                return self._spooled(source, content, slices, spool)
            frame = self._of(content, [self._reading(source, slice_) for slice_ in slices])
            return self._copied(frame, spool) if spool is not None else frame

    def _must_be_known(self, source: Source) -> None:
        known = [info.name for info in source.catalog()]
        if self._stream not in known:
            raise StreamRefused(
                f"there is no stream '{self._stream}'; {suggest(self._stream, known, 'streams')}",
                safe=UNTOUCHED,
                next_step="name one of the streams, or add it to the pipeline file",
            )

    def _slices(self, source: Source, content: Content, after: Mark | None) -> Iterator[Slice]:
        """Everything up to now, cut as a run would cut it."""
        ceiling = source.ceiling(self._stream, content, uuid.uuid4().hex, after)
        budget = Budget(self._file.pipelines[self._pipeline].slice_bytes, workers=self._workers())
        last = Position(0, "", after, content.text) if after is not None else None
        while ceiling is not None:
            mark = last.mark if last else None
            planned = source.plan(self._stream, content, mark, ceiling, budget)
            if planned is None:
                return
            slice_ = following(
                last,
                pipeline=self._pipeline,
                stream=self._stream,
                upto=planned.upto,
                content=content,
                kind=planned.kind,
                plan=planned.plan,
            )
            if slice_.kind.moves:
                yield slice_
            last = slice_.position

    def _reading(self, source: Source, slice_: Slice) -> Reading:
        # A reader that needs nothing to be held open: see Kind.REFRESH for the one that does.
        with source.reading(slice_) as reading:
            return Reading(reading.reader, list(reading.parts))

    def _of(self, content: Content, readings: list[Reading]) -> DataFrame:
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_type
        from penstock.links.spark.frame import frame, frame_schema, job

        schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in content.columns])
        wanted = frame_schema(schema, changes=self._changes)
        return frame(self._spark, job(readings, wanted, changes=self._changes))

    def _spooled(
        self, source: Source, content: Content, slices: list[Slice], spool: str | os.PathLike[str] | None
    ) -> DataFrame:
        """Read now, while the source holds its snapshot open."""
        (slice_,) = slices
        with source.reading(slice_) as reading:
            return self._copied(self._of(content, [reading]), spool)

    def _copied(self, frame: DataFrame, spool: str | os.PathLike[str] | None) -> DataFrame:
        """The rows as they are now, as Parquet that goes away with the process."""
        where = os.fspath(spool) if spool is not None else None
        if where is not None and "://" in where:
            # Not a folder of this machine: whoever named it removes it.
            path = f"{where.rstrip('/')}/penstock-{uuid.uuid4().hex}"
        else:
            # Absolute: the JVM may have been started in another folder than this process is in now.
            where = os.path.abspath(where or tempfile.gettempdir())
            os.makedirs(where, exist_ok=True)
            path = tempfile.mkdtemp(prefix="penstock-", dir=where)
            atexit.register(shutil.rmtree, path, ignore_errors=True)
        frame.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def _workers(self) -> int:
        return int(self._spark.conf.get("spark.default.parallelism", None) or os.cpu_count() or 1)


def _no_rewriting() -> Mover:
    raise StreamRefused(
        "the table has rows that others have put in and that have no place in the order yet",
        safe=UNTOUCHED,
        next_step="let a run that reads the table, or `penstock upkeep FILE`, give them their place; then read again",
    )
