"""The limit: ADBC's COPY of Parquet files into a table aside, and a merge by hand, on one connection.

All of it is one transaction. A process that is kept warm, in the peers' environment: it is told `TABLE FOLDER`, one a
line, and answers each with one line of JSON. The address is `$DATABASE_URL`.
"""

from __future__ import annotations

import json
import os
import sys
import time

import adbc_driver_postgresql.dbapi as adbc
import pyarrow.dataset as ds
from benchmarks.peers import by_hand


def main() -> None:
    with adbc.connect(os.environ["DATABASE_URL"]) as connection:
        for line in sys.stdin:
            table, folder = line.split()
            begun = time.perf_counter()
            with connection.cursor() as cursor:
                cursor.execute(by_hand.aside(table))
                # Files are read ahead, by threads, while rows are sent.
                rows = ds.dataset(folder).scanner().to_reader()
                cursor.adbc_ingest(f"{table}_aside", rows, mode="append")
                copied = time.perf_counter() - begun
                cursor.execute(by_hand.merge(table))
                cursor.execute(by_hand.gone(table))
            connection.commit()
            merged = time.perf_counter() - begun
            print(json.dumps({"status": "complete", "steps": [["copy", copied], ["merge", merged]]}), flush=True)


if __name__ == "__main__":
    main()
