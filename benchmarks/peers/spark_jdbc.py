"""Spark's own way: its JDBC reader in two partitions by id, its own Parquet writer. A process that is kept warm.

It is told `TABLE ROWS FOLDER`, one a line, and answers each with one line of JSON. The address is `$DATABASE_URL`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from penstock.links.spark import jars

PARTITIONS = 2
#: rows that the driver fetches at once; without, it would take the whole result into memory
FETCH = 10_000


def address(url: str) -> str:
    parts = urlsplit(url)
    return f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"


def login(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}


def started() -> SparkSession:
    """A session with the driver of the database."""
    return (
        SparkSession.builder.master(f"local[{PARTITIONS}]")
        .config("spark.driver.extraClassPath", str(jars.files([jars.POSTGRES])[0]))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def main() -> None:
    url = os.environ["DATABASE_URL"]
    session = started()
    for line in sys.stdin:
        table, rows, folder = line.split()
        begun = time.perf_counter()
        session.read.jdbc(
            address(url),
            table,
            column="id",
            lowerBound=1,
            upperBound=int(rows),
            numPartitions=PARTITIONS,
            properties={**login(url), "driver": "org.postgresql.Driver", "fetchsize": str(FETCH)},
        ).write.parquet(folder)
        print(json.dumps({"status": "complete", "seconds": time.perf_counter() - begun}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
