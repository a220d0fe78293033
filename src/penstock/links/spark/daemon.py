"""The process from which Spark forks its Python workers: it has done their imports, and all workers share them.

Spark runs it as `spark.python.daemon.module`, where the workers run this process's own Python.
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import zipimport
from collections.abc import Iterator
from importlib import import_module
from typing import Any

#: names further modules to import, separated by commas
VARIABLE = "PENSTOCK_WORKER_IMPORTS"
#: modules that every part imports in a Python worker
IMPORTED_BY_PARTS = (
    "adbc_driver_postgresql.dbapi",
    "penstock.links.pipe",
    "penstock.shaping.reader",
    "penstock.sinks.files.writer",
    "penstock.sources.postgres.reader",
    "pyarrow.compute",
    "pyarrow.parquet",
)
#: modules that a part imports where there is a lake
IMPORTED_WITH_LAKE = ("penstock.lake.writing",)


def remove_zips_from_path() -> None:
    """Take zip files out of this worker's path: each import would look into them, 130 ms a task before our first line.

    Only where pyspark is installed in the worker's own environment too.
    """
    if not os.path.isdir(os.path.join(sysconfig.get_path("purelib"), "pyspark")):
        return
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            sys.path_importer_cache.pop(path)


def import_for_parts() -> None:
    """Import what parts need. Nothing here starts a thread: a fork would have the thread's locks and not the thread."""
    more = os.environ.get(VARIABLE, "")
    for name in (*IMPORTED_BY_PARTS, *filter(None, more.split(","))):
        import_module(name)


def import_in_worker(numbers: Iterator[int]) -> Iterator[bytes]:
    """A part that moves nothing: it only makes a worker start and do its imports."""
    remove_zips_from_path()
    import_for_parts()
    for _ in numbers:
        yield b""


def start_workers(session: Any, count: int) -> None:
    """Have a session start that many Python workers, as moving parts does."""
    session.sparkContext.parallelize(range(count), count).mapPartitions(import_in_worker).collect()


def main() -> None:
    remove_zips_from_path()
    import_for_parts()
    from pyspark.daemon import manager

    # Without this, the first garbage collection in a worker would copy the pages of all objects that exist now.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]  # pyspark's own


if __name__ == "__main__":
    main()
