"""Spark's own way: its Parquet reader, its JDBC writer into a table aside, and a merge by hand.

A process that is kept warm: it is told `TABLE FOLDER`, one a line, and answers each with one line of JSON. The address
is `$DATABASE_URL`.
"""

from __future__ import annotations

import json
import os
import sys
import time

import psycopg
from benchmarks.peers import by_hand
from benchmarks.peers.spark_jdbc import address, login, started

#: rows of a batch, which the driver is told to send as one statement
BATCH = 10_000


def main() -> None:
    url = os.environ["DATABASE_URL"]
    session = started()
    more = {"driver": "org.postgresql.Driver", "batchsize": str(BATCH), "reWriteBatchedInserts": "true"}
    with psycopg.connect(url, autocommit=True) as connection:
        for line in sys.stdin:
            table, folder = line.split()
            begun = time.perf_counter()
            connection.execute(by_hand.aside(table).encode())
            session.read.parquet(folder).write.jdbc(
                address(url), f"{table}_aside", mode="append", properties={**login(url), **more}
            )
            copied = time.perf_counter() - begun
            with connection.transaction():
                connection.execute(by_hand.merge(table).encode())
                connection.execute(by_hand.gone(table).encode())
            merged = time.perf_counter() - begun
            print(json.dumps({"status": "complete", "steps": [["copy", copied], ["merge", merged]]}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
