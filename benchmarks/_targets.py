"""The orders that are brought into Postgres, as a lake and as Parquet files, and the tables that they are brought into.

What a table must hold in the end was loaded apart from all contenders, by a plain COPY of CSV: rows are counted, and a
checksum over all their values is compared.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
from benchmarks import _lake as lake
from psycopg import sql

#: files of the lake and of the Parquet folders
FILES = 8
#: rows to warm up with: enough for a part for each worker
FEW_ROWS = 200_000
#: what is there before: every second order in an older version, the same for one who cannot write a numeric, nothing
HALF, FLOATS, EMPTY = "half", "half_float", "empty"
EXPECTED = "expected"

TABLE = """
CREATE TABLE {table} (
    id bigint PRIMARY KEY, customer_id integer, status text, amount numeric(12, 2), note text, payload jsonb,
    created_at timestamptz, updated_at timestamptz NOT NULL
)
"""
OLDER = """
INSERT INTO {half}
SELECT id, customer_id + 1, 'draft', amount + 1, upper(note), payload || '{{"qty": 0}}', created_at,
    updated_at - interval '1 day'
FROM {expected} WHERE id % 2 = 0
"""
FLOATING = (
    "CREATE TABLE {floats} (LIKE {half} INCLUDING ALL)",
    "ALTER TABLE {floats} ALTER amount TYPE double precision, ALTER payload TYPE text",
    "INSERT INTO {floats} SELECT * FROM {half}",
)
DIGEST = """
SELECT count(*), sum(hashtextextended(ROW(
    id, customer_id, status, amount::numeric(12, 2), note, payload::jsonb, created_at, updated_at
)::text, 0))::text
FROM {table}
"""
COUNTED = """
SELECT
    coalesce(sum((outcome ->> 'created')::bigint), 0)::bigint,
    coalesce(sum((outcome ->> 'updated')::bigint), 0)::bigint
FROM {schema}.slices
"""


@dataclass(frozen=True)
class Stock:
    """The rows, all and a few: in the lake of a folder by namespace, and as Parquet files below folders."""

    folder: Path
    url: str
    rows: int

    def make(self) -> None:
        """Lake, files, and the tables from which targets are made."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for table in (EXPECTED, HALF, EMPTY):
                connection.execute(sql.SQL(TABLE).format(table=sql.Identifier(table)))
            self._put("few", FEW_ROWS, None)
            self._put("all", self.rows, connection)
            names = {name: sql.Identifier(name) for name in (EXPECTED, HALF)}
            for statement in (OLDER, *FLOATING):
                connection.execute(sql.SQL(statement).format(**names, floats=sql.Identifier(FLOATS)))

    def files(self, which: str, *, floats: bool = False) -> Path:
        """The folder of Parquet files of `all` rows, or of a `few`; amounts as they are, or as floats."""
        return self.folder / ("floats" if floats else "files") / which

    @property
    def warehouse(self) -> Path:
        return self.folder / "lake"

    def _put(self, which: str, rows: int, connection: psycopg.Connection[tuple[object, ...]] | None) -> None:
        lander = lake.Lander(self.folder, which)
        for folder in (self.files(which), self.files(which, floats=True)):
            folder.mkdir(parents=True)
        for number, batch in enumerate(batches(rows)):
            lander.land(batch)
            table = pa.table(batch)
            amount = pc.cast(table["amount"], pa.float64())
            floats = table.set_column(table.schema.get_field_index("amount"), "amount", amount)
            pq.write_table(table, self.files(which) / f"{number}.parquet")
            pq.write_table(floats, self.files(which, floats=True) / f"{number}.parquet")
            if connection is not None:
                _copy(connection, batch)

    # ------------------------------------------------------------ targets

    def fresh(self, table: str, like: str) -> None:
        """A table as another one is, with its rows; nothing of earlier ones is left to be written."""
        names = {"table": sql.Identifier(table), "like": sql.Identifier(like)}
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in (
                "CREATE TABLE {table} (LIKE {like} INCLUDING ALL)",
                "INSERT INTO {table} SELECT * FROM {like} ORDER BY id",
                "VACUUM ANALYZE {table}",
                "CHECKPOINT",
            ):
                connection.execute(sql.SQL(statement).format(**names))

    def checked(self, table: str, name: str) -> None:
        """SystemExit unless a table holds what it must; then it goes."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            wanted, found = (
                connection.execute(sql.SQL(DIGEST).format(table=sql.Identifier(each))).fetchone()
                for each in (EXPECTED, table)
            )
            if found != wanted:
                raise SystemExit(f"{name} was to leave (rows, checksum) {wanted} in its table, and left {found}")
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(table)))

    def counted(self, schema: str, created: int, updated: int) -> None:
        """SystemExit unless the ledger in a schema says that so many rows were created and updated."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(sql.SQL(COUNTED).format(schema=sql.Identifier(schema))).fetchone()
            if found != (created, updated):
                raise SystemExit(f"penstock was to count {created} created and {updated} updated rows, not {found}")
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Orders by their ids, from 0 on; a batch for each file."""
    orders = lake.Orders()
    for number in range(FILES):
        yield orders.rows(np.arange(rows * number // FILES, rows * (number + 1) // FILES))


def _copy(connection: psycopg.Connection[tuple[object, ...]], batch: pa.RecordBatch) -> None:
    text = io.BytesIO()
    csv.write_csv(batch, text, csv.WriteOptions(include_header=False))
    statement = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(sql.Identifier(EXPECTED))
    with connection.cursor().copy(statement) as copy:
        copy.write(text.getvalue())
