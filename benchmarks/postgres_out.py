"""The whole `orders` table out of Postgres into Parquet, by penstock and by all that it is compared with, in turns.

A bare COPY (what the server can send to one client), a bare ADBC script, penstock into files and into the lake (warm:
in a process that has just moved a few rows; cold: the command), rustream (from a copy of the table whose amounts are
double precision: it cannot read a numeric), dlt by three of its backends, and Spark's JDBC reader, warm. Of each:
seconds, CPU seconds and peak memory (PSS) of all processes of the client, as medians. Everyone's rows are counted and
their ids summed. Debian's PostgreSQL, over loopback TCP. What must hold is said, and fails nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import _orders as orders
from benchmarks import _plot as plot
from benchmarks._contenders import FEW, FEW_ROWS, FLOATS, NAMES, WARM, Ground, meeting
from benchmarks._processes import Cost
from benchmarks._verdict import Medians, medians, named, table, verdicts
from tests.harness.postgres import PostgresServer


def counted(folder: Path, rows: int, name: str) -> None:
    """SystemExit unless all rows are in the Parquet files below a folder, each once; then the files go."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found = total = 0
    for path in folder.rglob("*.parquet"):
        ids = pq.ParquetFile(path).read(columns=["id"])["id"]
        found += len(ids)
        total += pc.sum(ids).as_py() or 0
    if (found, total) != (rows, rows * (rows + 1) // 2):
        raise SystemExit(f"{name} was to bring out {rows:,} rows, and brought {found:,} with ids that sum to {total:,}")
    shutil.rmtree(folder)


def measured(ground: Ground, names: Sequence[str]) -> dict[str, list[Cost]]:
    """What each run of each contender has cost, in turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    with meeting(ground, names) as contenders:
        for run in range(ground.runs):
            for name, contender in contenders.items():
                cost, folder = contender.take(run)
                if folder is not None:
                    counted(folder, ground.rows, name)
                costs[name].append(cost)
                print(
                    f"  run {run + 1}  {name:<22} {cost.seconds:8.2f} s {cost.cpu:8.2f} CPU s {cost.peak:7.0f} MiB",
                    flush=True,
                )
    return costs


def found(rows: int, runs: int, names: Sequence[str]) -> Medians:
    """Make the tables and measure."""
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-out-") as folder, PostgresServer() as server:
        url = server.database("shop")
        orders.make_orders(url, rows)
        orders.touch(url, "orders")
        if WARM.keys() & set(names):
            orders.make_orders(url, FEW_ROWS, FEW)
        if "rustream" in names:
            orders.make_floats(url, FLOATS)
        print(f"{rows:,} rows; {runs} runs of each, in turns", flush=True)
        return medians(measured(Ground(url, Path(folder), rows, runs), names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table")
    parser.add_argument("--runs", type=int, default=5, help="runs of each contender")
    parser.add_argument("--only", type=named(NAMES), default=list(NAMES), help="contenders, with commas between")
    parser.add_argument("--plot", type=Path, help="draw what was found into this file, as SVG")
    parser.add_argument("--found", type=Path, help="measure nothing: this file holds the JSON of an earlier run")
    chosen = parser.parse_args()
    if chosen.found:
        result = json.loads(chosen.found.read_text().splitlines()[-1])
    else:
        result = {"rows": chosen.rows, "contenders": found(chosen.rows, chosen.runs, chosen.only)}
    print(table(result["contenders"], "copy"))
    for line in verdicts(result["rows"], result["contenders"]):
        print(line)
    if chosen.plot:
        chosen.plot.write_text(plot.drawn(result["rows"], result["contenders"]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
