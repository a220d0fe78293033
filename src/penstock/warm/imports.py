"""What the worker imports before it forks, so that no run has to."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: what `penstock run` imports later than at its start, whatever its source and sink
IMPORTED_BY_RUNS = (
    "adbc_driver_postgresql.dbapi",
    "penstock.engine",
    "penstock.engine.undoing",
    "penstock.lake.adoption",
    "penstock.lake.landing",
    "penstock.lake.merging",
    "penstock.lake.planning",
    "penstock.lake.reading",
    "penstock.lake.restamping",
    "penstock.lake.writing",
    "penstock.links.postgres.arrow",
    "penstock.links.postgres.conversion",
    "penstock.shaping.around",
    "penstock.shaping.source",
    "penstock.sinks.files.formats",
    "penstock.sinks.lake.making",
    "penstock.sinks.postgres",
    "penstock.sources.lake",
    "penstock.sources.postgres",
    "penstock.store.opening",
    "penstock.store.postgres",
    "penstock.store.sqlite",
    "pyarrow.parquet",
    "pyiceberg.avro.decoder_fast",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
)
#: what Spark's side of a run imports
IMPORTED_WITH_SPARK = (
    "pandas",
    "penstock.links.spark",
    "penstock.links.spark.lent",
    "pyspark.sql.functions",
    "pyspark.sql.pandas.map_ops",
    "pyspark.sql.pandas.types",
)
#: what a part imports in a Python worker
IMPORTED_BY_PARTS = (
    "adbc_driver_postgresql.dbapi",
    "penstock.lake.writing",
    "penstock.links.pipe",
    "penstock.shaping.reader",
    "penstock.sinks.files.writer",
    "penstock.sinks.postgres.writer",
    "penstock.sources.postgres.reader",
    "pyarrow.parquet",
)


def import_for_runs() -> None:
    for name in IMPORTED_BY_RUNS + IMPORTED_WITH_SPARK:
        import_module(name)


def import_for_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run once in each Python worker of a Spark that is to be warm."""
    from penstock.links.spark.mover import shed_zips

    shed_zips()
    import pyarrow as pa

    for name in IMPORTED_BY_PARTS:
        import_module(name)
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([b""] * batch.num_rows, pa.binary())], names=["outcome"])
