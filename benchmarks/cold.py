"""The start of a command: one cron tick of a thousand rows, and five million rows, from its start to its exit.

A tick (`…_1000`): the `orders` table has its five million rows (`--rows`), each contender has taken them before, and a
thousand rows more are committed 1.5 s before the first contender starts. One after the other takes them into Parquet
files, with the state that it has kept itself. Five million rows (`…_5m`): the whole table into Parquet files by a
contender that knows nothing of it. Contenders:

- `before`: the command of this project at commit c299502, checked out into `.bench/before`;
- `cold`: the command. Its class-data-sharing archive is there, as after a user's first run;
- `handed_over`: the command beside a warm worker, which has moved rows before; the worker's CPU time is counted too;
- `warm`: a session that is kept in one process, from the reading of the file to the closing of the store;
- `dlt`: with connectorx, streaming; `rustream`: from a copy of the table without numerics, which it cannot read.

In turns (`--runs`); medians of wall seconds, CPU seconds (user and system, of all processes of the client) and peak
memory (PSS). Every tick must bring its thousand rows, and at the end the files must hold every row of the table once.
`before_5m`, `handed_over_5m`, `warm_5m` and `rustream_5m` run once and are not in the JSON: no bound speaks of them.

Must hold: 1,000 rows cold in at most half the seconds of `before`; handed over at most 1 s more than `warm`, and ahead
of dlt; 5M rows cold not slower than dlt. Said, and fails nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks import _orders as orders
from benchmarks import _peers as peers
from benchmarks import postgres_out, tick
from benchmarks._archive import own_folder, wait_for_archive
from benchmarks._contenders import FEW, FEW_ROWS, FLOATS, Ground
from benchmarks._processes import Cost
from benchmarks._starts import Before, Cold, HandedOver
from benchmarks._verdict import Medians, least, medians, most, named, table
from tests.harness.postgres import PostgresServer

#: who takes ticks, and what takes them; in the order of their turns
TAKERS: Mapping[str, Callable[[Ground, str, ExitStack], tick.Taker]] = {
    "before": Before,
    "cold": Cold,
    "warm": tick.Warmed,
    "handed_over": HandedOver,
    "dlt": tick.Command,
    "rustream": tick.Command,
}
#: of those that exist already: what they are called where they are made
ELSEWHERE = {"warm": "penstock_files_warm", "dlt": "dlt_connectorx_stream", "rustream": "rustream"}
#: who takes the whole table in turns, and who once, by their names in `postgres_out`
WHOLE = {"cold_5m": "penstock_files_cold", "dlt_5m": "dlt_connectorx_stream"}
ONCE = {"warm_5m": "penstock_files_warm"}
#: whose load before the ticks is measured
LOADS = ("before_5m", "handed_over_5m", "rustream_5m")
TICKS = tuple(f"{name}_1000" for name in TAKERS)
#: those in the JSON
JUDGED = (*TICKS, *WHOLE)
NAMES = (*JUDGED, *LOADS, *ONCE)

#: cold against before; seconds that handing over may take
HALF, HAND_OVER_SECONDS = 0.5, 1.0


def whole(ground: Ground, names: Sequence[str]) -> dict[str, list[Cost]]:
    """What each run over the whole table has cost."""
    costs: dict[str, list[Cost]] = {}
    for known, runs in ((WHOLE, ground.runs), (ONCE, 1)):
        chosen = {theirs: name for name, theirs in known.items() if name in names}
        if chosen:
            found = postgres_out.measured(replace(ground, runs=runs), list(chosen))
            costs |= {chosen[theirs]: each for theirs, each in found.items()}
    return costs


def ticks(ground: Ground, names: Sequence[str]) -> dict[str, list[Cost]]:
    """What each tick has cost, and the loads before them that are wanted."""
    chosen = [name for name in TAKERS if f"{name}_1000" in names or (f"{name}_5m" in names and f"{name}_5m" in LOADS)]
    costs: dict[str, list[Cost]] = {name: [] for name in names if name in (*TICKS, *LOADS)}
    with ExitStack() as stack:
        takers = {name: TAKERS[name](ground, ELSEWHERE.get(name, name), stack) for name in chosen}
        for name, taker in takers.items():
            cost = taker.take()
            print(f"  load    {name:<22} {cost.seconds:8.2f} s", flush=True)
            costs.get(f"{name}_5m", []).append(cost)
        ticking = {name: taker for name, taker in takers.items() if f"{name}_1000" in names}
        for name, all_costs in tick.in_turns(ground, ticking).items():
            costs[f"{name}_1000"] = all_costs
        rows = ground.rows + (tick.NEW * (ground.runs + 1) if ticking else 0)
        for name, taker in takers.items():
            postgres_out.counted(taker.landed, rows if name in ticking else ground.rows, name)
    return costs


def found(rows: int, runs: int, names: Sequence[str]) -> Medians:
    """Make the tables and measure."""
    if any(name.startswith(("dlt", "rustream")) for name in names):
        peers.program("python")
    with tempfile.TemporaryDirectory(prefix="penstock-cold-") as folder, PostgresServer() as server:
        own_folder(Path(folder))
        url = server.database("shop")
        ground = Ground(url, Path(folder), rows, runs)
        orders.make_orders(url, rows)
        orders.touch(url, "orders")
        orders.make_orders(url, FEW_ROWS, FEW)
        if any(name.startswith("rustream") for name in names):
            orders.make_floats(url, FLOATS)
        if any(name.startswith("cold") for name in names):
            wait_for_archive(Cold(ground, "first_run", ExitStack()))
        print(f"{rows:,} rows; {runs} runs of each, in turns", flush=True)
        costs = whole(ground.below("whole"), names) | ticks(ground.below("ticks"), names)
        return medians({name: costs[name] for name in NAMES if name in costs})


def verdicts(found: Medians) -> Iterator[str]:
    """What must hold, and whether it does; without what cannot be said of those that took part."""
    seconds = {name: each["s"] for name, each in found.items()}
    if {"cold_1000", "before_1000"} <= seconds.keys():
        yield most("cold_1000, times before_1000", seconds["cold_1000"] / seconds["before_1000"], HALF)
    if {"handed_over_1000", "warm_1000"} <= seconds.keys():
        more = seconds["handed_over_1000"] - seconds["warm_1000"]
        yield most("handed_over_1000, seconds more than warm_1000", more, HAND_OVER_SECONDS)
    for ours, peer in (("handed_over_1000", "dlt_1000"), ("cold_5m", "dlt_5m")):
        if {ours, peer} <= seconds.keys():
            yield least(f"{ours}, times as fast as {peer}", seconds[peer] / seconds[ours], 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table")
    parser.add_argument("--runs", type=int, default=5, help="runs of each contender")
    parser.add_argument("--only", type=named(NAMES), default=list(NAMES), help="contenders, with commas between")
    chosen = parser.parse_args()
    result = found(chosen.rows, chosen.runs, chosen.only)
    print(table(result))
    print("must hold:")
    for line in verdicts(result):
        print(line)
    print(json.dumps({"contenders": {name: {"s": result[name]["s"]} for name in JUDGED if name in result}}))


if __name__ == "__main__":
    main()
