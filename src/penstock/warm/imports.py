"""Imports that the warm worker does before it forks, so that no run has to."""

from __future__ import annotations

import gc
import warnings
from importlib import import_module

#: what `penstock run` imports later than at its start, whatever its source and sink, unless there is a lake
IMPORTED_BY_RUNS = (
    "adbc_driver_postgresql.dbapi",
    "penstock.engine",
    "penstock.engine.undoing",
    "penstock.links.postgres.arrow",
    "penstock.links.postgres.conversion",
    "penstock.shaping.source",
    "penstock.sinks.files.formats",
    "penstock.sinks.postgres",
    "penstock.sources.postgres",
    "penstock.store.postgres",
    "penstock.store.sqlite",
    "pyarrow.parquet",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
)
#: what it imports where there is a lake: some 30 MiB
IMPORTED_WITH_LAKE = (
    "penstock.lake.adoption",
    "penstock.lake.landing",
    "penstock.lake.merging",
    "penstock.lake.planning",
    "penstock.lake.reading",
    "penstock.lake.stamping",
    "penstock.lake.writing",
    "penstock.sinks.lake.table_setup",
    "penstock.sources.lake",
    "pyiceberg.avro.decoder_fast",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
)
#: what Spark's side of a run imports
IMPORTED_WITH_SPARK = (
    "pandas",
    "penstock.links.spark",
    "penstock.links.spark.attach",
    "pyspark.sql.functions",
    "pyspark.sql.pandas.map_ops",
    "pyspark.sql.pandas.types",
)


def import_for_runs(*, lake: bool) -> None:
    """Import what runs of a file need; `lake`: one of its pipelines reads or writes a lake."""
    for name in (*IMPORTED_BY_RUNS, *(IMPORTED_WITH_LAKE if lake else ()), *IMPORTED_WITH_SPARK):
        import_module(name)


def freeze_for_forks() -> None:
    """Keep the garbage collector from touching what all forked processes share from now on."""
    # OpenBLAS and jemalloc have started threads by now. Both make sure that their process can be forked.
    warnings.filterwarnings("ignore", ".* multi-threaded, use of fork", DeprecationWarning)
    gc.collect()
    gc.freeze()
