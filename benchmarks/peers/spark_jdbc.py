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


def main() -> None:
    url = urlsplit(os.environ["DATABASE_URL"])
    address = f"jdbc:postgresql://{url.hostname}:{url.port}{url.path}"
    login = {"user": unquote(url.username or ""), "password": unquote(url.password or "")}
    session = (
        SparkSession.builder.master(f"local[{PARTITIONS}]")
        .config("spark.driver.extraClassPath", str(jars.files([jars.POSTGRES])[0]))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    for line in sys.stdin:
        table, rows, folder = line.split()
        begun = time.perf_counter()
        session.read.jdbc(
            address,
            table,
            column="id",
            lowerBound=1,
            upperBound=int(rows),
            numPartitions=PARTITIONS,
            properties={**login, "driver": "org.postgresql.Driver", "fetchsize": str(FETCH)},
        ).write.parquet(folder)
        print(json.dumps({"status": "complete", "seconds": time.perf_counter() - begun}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
