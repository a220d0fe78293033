"""A tick on a large table: a thousand new rows, taken by penstock in a warm process, rustream, dlt and a bare script.

Each has brought the table out before (the bare script alone is told where it stands). Then, round by round, a thousand
rows come in, a moment passes so that no margin matters, and one after the other takes them: seconds from the call to
the end of the run, which is after its mark has moved. Of each also CPU seconds and peak memory (PSS) of all its
processes; medians. Warm, penstock takes at most 0.5 s into files and 0.7 s into the lake: said, and fails nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import psycopg
from benchmarks import _contenders as contenders
from benchmarks import _orders as orders
from benchmarks import _peers as peers
from benchmarks._contenders import Ground
from benchmarks._processes import Cost, cost_of, spending
from benchmarks._verdict import Medians, medians, most, named, table
from benchmarks._warm import Warm
from psycopg import sql
from tests.harness.postgres import PostgresServer

#: new rows of a tick, and the seconds after which they are taken: longer than the horizon's margin
NEW, PAUSE = 1000, 1.5
BOUNDS = {"penstock_files_warm": 0.5, "penstock_lake_warm": 0.7}
NAMES = ("penstock_files_warm", "penstock_lake_warm", "rustream", "dlt_connectorx", "adbc")

INSERT = """
INSERT INTO {table} (id, customer_id, status, amount, note, payload, created_at, updated_at)
SELECT id, id % 400000, 'new', (id % 100000) / 100.0, 'order note ' || left(md5(id::text), 29),
    jsonb_build_object('sku', 'SKU-' || (id % 9973), 'qty', id % 10, 'channel', 'web', 'ref', left(md5(id::text), 16)),
    now(), now()
FROM generate_series({first}::bigint, {last}) AS id
"""

LAST = "SELECT updated_at::text, id FROM orders ORDER BY updated_at DESC, id DESC LIMIT 1"


class Taker(Protocol):
    """One who takes what is new each time, and keeps the state that it needs for that."""

    #: below it are the files that it has written
    landed: Path

    def take(self) -> Cost:
        """Take what is new."""
        ...


class Warmed:
    """A penstock that is kept warm."""

    def __init__(self, ground: Ground, name: str, stack: ExitStack) -> None:
        sink = name.split("_")[1]
        self.folder = ground.folder / name
        self.folder.mkdir()
        self.landed = self.folder / contenders.LANDED[sink].format(name="shop")
        (self.folder / "shop.yaml").write_text(contenders.HEADER + contenders.pipeline(sink, "shop"))
        self.process = stack.enter_context(Warm(self.folder / "shop.yaml", ground.env))

    def take(self) -> Cost:
        with spending(self.process.pid) as cost:
            said = self.process.run("shop")
        print(f"    {contenders.told(said['steps'])}")
        return Cost(said["seconds"], cost[0].cpu, cost[0].peak)


class Command:
    """A command that is started anew for each tick."""

    def __init__(self, ground: Ground, name: str, _stack: ExitStack) -> None:
        self.ground = ground
        self.folder = ground.folder / name
        self.landed = self.folder / "out"  # dlt keeps a copy of each file in its state
        self.landed.mkdir(parents=True)
        self.files = (f"out/{number}.parquet" for number in itertools.count())
        if name == "rustream":
            (self.folder / "sync.yaml").write_text(contenders.rustream_file(ground.url))
            self.words = [peers.program("rustream"), "sync", "--config", "sync.yaml"]
        elif name == "adbc":
            with psycopg.connect(ground.url) as connection:
                (self.folder / "mark.json").write_text(json.dumps(connection.execute(LAST).fetchone()))
            self.words = []
        else:
            self.words = contenders.dlt_command(self.folder, name.removeprefix("dlt_"), "incremental")

    def take(self) -> Cost:
        words = self.words or contenders.adbc_command(next(self.files), "mark.json")
        return cost_of(words, self.ground.env, self.folder)


def measured(ground: Ground, names: Sequence[str]) -> dict[str, list[Cost]]:
    """What each tick of each contender has cost, in turns."""
    with ExitStack() as stack:
        takers = {name: (Warmed if name in BOUNDS else Command)(ground, name, stack) for name in names}
        for name, taker in takers.items():
            cost = taker.take()
            print(f"  first   {name:<22} {cost.seconds:8.2f} s", flush=True)
        return in_turns(ground, takers)


def in_turns(ground: Ground, takers: Mapping[str, Taker]) -> dict[str, list[Cost]]:
    """What each tick of each taker has cost; one tick before them only warms up."""
    costs: dict[str, list[Cost]] = {name: [] for name in takers}
    for tick in range(-1, ground.runs):
        insert(ground, ground.rows + 1 + NEW * (tick + 1), "rustream" in takers)
        for name, taker in takers.items():
            cost = taken(taker, name)
            if tick >= 0:
                costs[name].append(cost)
            print(f"  tick {tick + 1:2} {name:<22} {cost.seconds:8.3f} s {cost.cpu:8.2f} CPU s", flush=True)
    return costs


def taken(taker: Taker, name: str) -> Cost:
    """One tick. SystemExit unless it brought the new rows, and no others."""
    before = orders.rows_in(taker.landed)
    cost = taker.take()
    found = orders.rows_in(taker.landed) - before
    if found != NEW:
        raise SystemExit(f"{name} was to take {NEW:,} rows and took {found:,}")
    return cost


def insert(ground: Ground, first: int, floats: bool) -> None:
    with psycopg.connect(ground.url, autocommit=True) as connection:
        for name in ["orders", *([contenders.FLOATS] if floats else [])]:
            rows = {"first": sql.Literal(first), "last": sql.Literal(first + NEW - 1)}
            connection.execute(sql.SQL(INSERT).format(table=sql.Identifier(name), **rows))
    time.sleep(PAUSE)


def found(rows: int, runs: int, names: Sequence[str]) -> Medians:
    """Make the tables and measure."""
    with tempfile.TemporaryDirectory(prefix="penstock-tick-") as folder, PostgresServer() as server:
        url = server.database("shop")
        orders.make_orders(url, rows)
        orders.touch(url, "orders")
        if "rustream" in names:
            orders.make_floats(url, contenders.FLOATS)
        print(f"{rows:,} rows; {runs} ticks of {NEW:,} rows, and one to warm up", flush=True)
        return medians(measured(Ground(url, Path(folder), rows, runs), names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table")
    parser.add_argument("--runs", type=int, default=5, help="ticks of each contender")
    parser.add_argument("--only", type=named(NAMES), default=list(NAMES), help="contenders, with commas between")
    chosen = parser.parse_args()
    result = found(chosen.rows, chosen.runs, chosen.only)
    print(table(result))
    print("must hold:")
    for name in (name for name in BOUNDS if name in result):
        print(most(f"{name}, seconds", result[name]["s"], BOUNDS[name]))
    print(json.dumps({"rows": chosen.rows, "contenders": result}))


if __name__ == "__main__":
    main()
