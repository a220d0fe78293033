"""What the benchmarks share: the `orders` table, a pipeline from it into files, and how a command is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg import sql

#: the command, and the Python that it runs on
COMMAND = str(Path(sys.executable).with_name("penstock"))
PYTHON = sys.executable

TABLE = """
CREATE TABLE orders AS SELECT
    g AS id,
    (g * 7919 % 400000)::int AS customer_id,
    (array['new', 'paid', 'shipped', 'delivered', 'cancelled'])[1 + (g % 5)] AS status,
    ((g * 104729 % 10000000) / 100.0)::numeric(12, 2) AS amount,
    'order note ' || left(md5(g::text), 29) AS note,
    jsonb_build_object(
        'sku', 'SKU-' || (g % 9973), 'qty', g % 10, 'channel', (array['web', 'app', 'store'])[1 + (g % 3)],
        'ref', left(md5((g + 1)::text), 16)
    ) AS payload,
    timestamptz '2024-01-01 00:00+00' + g * interval '10 seconds' AS created_at,
    timestamptz '2024-01-01 00:00+00' + g * interval '10 seconds' + (g * 7919 % 1000003) * interval '37 milliseconds'
        AS updated_at
FROM generate_series(1::bigint, {rows}) g
"""
AFTERWARDS = (
    "ALTER TABLE orders ADD PRIMARY KEY (id)",
    "ALTER TABLE orders ALTER updated_at SET NOT NULL",
    "CREATE INDEX ON orders (updated_at, id)",
    "VACUUM ANALYZE orders",
)

PIPELINE = """\
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out}
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""


def make_orders(url: str, rows: int) -> None:
    """Make the table and its index."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(TABLE).format(rows=sql.Literal(rows)))
        for statement in AFTERWARDS:
            connection.execute(statement)


def write_pipeline(folder: Path) -> Path:
    """A pipeline of `orders` into Parquet files; its database is `${DATABASE_URL}`."""
    path = folder / "shop.yaml"
    path.write_text(PIPELINE)
    return path


def environment(url: str) -> dict[str, str]:
    """This environment with the database's address; byte code may be written, as when a package is installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"DATABASE_URL": url}


def rows_in(folder: Path) -> int:
    """Rows of the Parquet files below a folder, by their footers."""
    import pyarrow.parquet as pq

    return sum(pq.ParquetFile(path).metadata.num_rows for path in folder.rglob("*.parquet"))


def run_once(command: list[str], env: dict[str, str], folder: Path) -> str:
    """Run a command to its end; its output. SystemExit with what it said if it fails."""
    done = subprocess.run(
        command, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
