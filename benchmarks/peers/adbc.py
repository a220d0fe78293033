"""The bare script that many would write: ADBC's batches into one Parquet file, in one process.

    adbc.py TABLE FILE [MARK]

The address is `$DATABASE_URL`. With MARK, a file that holds the last (updated_at, id), only what comes after it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COLUMNS = "id, customer_id, status, amount, note, payload, created_at, updated_at"
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer_id", pa.int32()),
        ("status", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("note", pa.string()),
        ("payload", pa.string()),
        ("created_at", TIME),
        ("updated_at", TIME),
    ]
)


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """ADBC sends numeric and jsonb as texts with a name around them."""
    arrays = [array.storage if isinstance(array, pa.ExtensionArray) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, SCHEMA, strict=True)], schema=SCHEMA
    )


def main() -> None:
    table, file, mark = sys.argv[1], sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None
    query = f"SELECT {COLUMNS} FROM {table}"
    if mark is not None:
        moment, key = json.loads(mark.read_text())
        query += f" WHERE (updated_at, id) > ('{moment}', {key}) ORDER BY updated_at, id"
    last = None
    with (
        adbc.connect(os.environ["DATABASE_URL"]) as connection,
        connection.cursor() as cursor,
        pq.ParquetWriter(file, SCHEMA) as out,
    ):
        cursor.execute(query)
        for batch in map(plain, cursor.fetch_record_batch()):
            out.write_batch(batch)
            last = batch.slice(batch.num_rows - 1)
    if mark is not None and last is not None:
        moment = pc.strftime(last["updated_at"], "%Y-%m-%d %H:%M:%S%Ez")[0].as_py()
        mark.write_text(json.dumps([moment, last["id"][0].as_py()]))


if __name__ == "__main__":
    main()
