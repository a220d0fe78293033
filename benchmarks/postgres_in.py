"""A million orders into a Postgres table with a primary key, by penstock and by all that it is compared with, in turns.

Upserts: of every second key an older version is there already, and a row is taken only if it is newer; insert: into an
empty table. penstock reads a lake (warm: in a process that has just moved a few rows; cold: the command), the others
Parquet files of the same rows: ADBC's COPY and a merge by hand (the limit, kept warm), Spark's JDBC writer and the same
merge (warm), and rustream's ingest, as its command, into a table of double precision and text, since it writes neither
numeric nor jsonb, and without the condition, which it does not have. Every run has a table and a ledger of its own,
its rows are counted, and a checksum over all values is compared: SystemExit if one is wrong.

Of each: seconds, CPU seconds and peak memory (PSS) of all processes of the client, the server's not counted; medians.
Debian's PostgreSQL, over loopback TCP. What must hold is said, and fails nothing: warm, an upsert takes at most 1.3
times the limit, and less than every peer.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks._processes import Cost
from benchmarks._targets import Stock
from benchmarks._verdict import Medians, least, medians, most, named, table
from benchmarks._writers import CONTENDERS, Ground, meeting
from tests.harness.postgres import PostgresServer

NAMES = tuple(CONTENDERS)
#: a warm upsert against the limit, and those that it must be ahead of
LIMIT, PEERS = 1.3, ("rustream", "spark_jdbc_merge")


def measured(ground: Ground, names: Sequence[str]) -> dict[str, list[Cost]]:
    """What each run of each contender has cost, in turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    with meeting(ground, names) as contenders:
        for run in range(ground.runs):
            for name, contender in contenders.items():
                target = f"t_{name}_{run}"
                contender.ready(run)
                ground.stock.fresh(target, contender.like)
                cost = contender.take(run, target)
                ground.stock.checked(target, name)
                costs[name].append(cost)
                print(
                    f"  run {run + 1}  {name:<22} {cost.seconds:8.2f} s {cost.cpu:8.2f} CPU s {cost.peak:7.0f} MiB",
                    flush=True,
                )
    return costs


def found(rows: int, runs: int, names: Sequence[str]) -> Medians:
    """Make lake, files and tables, and measure."""
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-in-") as folder, PostgresServer() as server:
        stock = Stock(Path(folder), server.database("shop"), rows)
        stock.make()
        print(f"{rows:,} rows; {runs} runs of each, in turns", flush=True)
        return medians(measured(Ground(stock, Path(folder), runs), names))


def verdicts(result: Medians) -> Iterator[str]:
    """What must hold, and whether it does; without what cannot be said of those that took part."""
    warm = result.get("penstock_upsert_warm")
    if warm is None:
        return
    yield "must hold:"
    if "adbc_merge" in result:
        yield most("penstock_upsert_warm, times adbc_merge", warm["s"] / result["adbc_merge"]["s"], LIMIT)
    for peer in (peer for peer in PEERS if peer in result):
        yield least(f"penstock_upsert_warm, times as fast as {peer}", result[peer]["s"] / warm["s"], 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--runs", type=int, default=5, help="runs of each contender")
    parser.add_argument("--only", type=named(NAMES), default=list(NAMES), help="contenders, with commas between")
    chosen = parser.parse_args()
    result = found(chosen.rows, chosen.runs, chosen.only)
    print(table(result, "adbc_merge"))
    for line in verdicts(result):
        print(line)
    print(json.dumps({"contenders": result}))


if __name__ == "__main__":
    main()
