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
CREATE TABLE {table} AS SELECT
    g AS id,
    (g * 7919 % 400000)::int AS customer_id,
    (array['new', 'paid', 'shipped', 'delivered', 'cancelled'])[1 + (g % 5)] AS status,
    ((g * 104729 % 10000000) / 100.0)::numeric(12, 2) AS amount,
    'order note ' || left(md5(g::text), 29) AS note,
    jsonb_build_object(
        'sku', 'SKU-' || (g % 9973), 'qty', g % 10, 'channel', (array['web', 'app', 'store'])[1 + (g % 3)],
        'ref', left(md5((g + 1)::text), 16)
    ) AS payload,
    timestamptz '2024-01-01 00:00+00' + g * {apart} AS created_at,
    timestamptz '2024-01-01 00:00+00' + g * {apart} + (g * 7919 % 1000003) * interval '37 milliseconds' AS updated_at
FROM generate_series(1::bigint, {rows}) g
"""
AFTERWARDS = (
    "ALTER TABLE {table} ADD PRIMARY KEY (id)",
    "ALTER TABLE {table} ALTER updated_at SET NOT NULL",
    "CREATE INDEX ON {table} (updated_at, id)",
    "VACUUM ANALYZE {table}",
)
#: seconds between two orders, so that five million end in 2025; more of them come closer, and none is in the future
APART, MANY = 10.0, 5_000_000
#: the same rows for a reader that cannot read a numeric
FLOATS = """
CREATE TABLE {table} AS SELECT
    id, customer_id, status, amount::float8 AS amount, note, payload, created_at, updated_at
FROM orders
"""
#: what makes `updated_at` a time that can be trusted
TOUCHED = """
CREATE OR REPLACE FUNCTION touched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END
$$;
CREATE TRIGGER touched BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION touched();
"""

PIPELINE = """\
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out}
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""


def make_orders(url: str, rows: int, table: str = "orders") -> None:
    """Make the table and its index."""
    apart = sql.SQL("interval '{} seconds'").format(sql.SQL(f"{APART * min(1.0, MANY / max(1, rows)):.6f}"))
    _make(url, sql.SQL(TABLE).format(table=sql.Identifier(table), rows=sql.Literal(rows), apart=apart), table)


def make_floats(url: str, table: str) -> None:
    """Make a copy of `orders` whose amounts are double precision."""
    _make(url, sql.SQL(FLOATS).format(table=sql.Identifier(table)), table)


def touch(url: str, table: str) -> None:
    """Have a trigger set `updated_at` from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(TOUCHED).format(table=sql.Identifier(table)))


def _make(url: str, create: sql.Composed, table: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(create)
        for statement in AFTERWARDS:
            connection.execute(sql.SQL(statement).format(table=sql.Identifier(table)))


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
    return wait_for(started(command, env, folder))


def started(command: list[str], env: dict[str, str], folder: Path) -> subprocess.Popen[str]:
    """Start a command whose output is kept."""
    return subprocess.Popen(
        command,
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str]) -> str:
    """The output of a command at its end. SystemExit with what it said if it fails."""
    out, err = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"{process.args!r} ended with {process.returncode}:\n{out}{err}")
    return out
