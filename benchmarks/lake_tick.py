"""A tick on a large lake table: 20 million rows in 200 files, a thousand new ones, a reader that has seen the rest.

Data files that the tick opens are counted from outside, by the kernel: no more than are new, and one more once the
table was compacted. A run with nothing new opens none, starts no JVM and imports no PyIceberg. In a warm process (one
that has run before) the tick takes at most 1 s, and a thousand changed rows by random key into a keyed table of 8
million at most 3 s. Seconds are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from benchmarks import _lake as lake
from benchmarks import _orders as orders
from benchmarks._opens import Opens
from benchmarks._warm import Warm
from benchmarks.noop import JavaWatch
from tests.harness.postgres import PostgresServer

TICK_BOUND, MERGE_BOUND = 1.0, 3.0
#: new or changed rows of one tick, and ticks that count
NEW, TICKS = 1000, 3
#: landings that make the keyed table
KEYED_FILES = 16

PIPELINES = """\
pipelines:
  load:  # what it would land is landed by the benchmark itself; named so that upkeep knows the table
    source: {type: lake, namespace: elsewhere}
    sink: {type: lake, namespace: shop}
    streams: {orders: {}}
  export:
    source: {type: lake, namespace: shop}
    sink: {type: files, directory: out}
    streams: {orders: {from: now}}
"""
MERGE = """\
pipelines:
  merge:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: lake, namespace: keyed}
    streams: {orders: {cursor: updated_at, tiebreaker: id, mode: merge, key: [id]}}
"""
CHANGE = """
INSERT INTO orders
SELECT id, 1, 'paid', 1.00, 'changed', '{}', now(), clock_timestamp() FROM unnest(%s::bigint[]) AS id
ON CONFLICT (id) DO UPDATE SET updated_at = clock_timestamp()
"""


@dataclass
class Table:
    """The table that is read, and whoever lands in it."""

    lander: lake.Lander
    orders: lake.Orders
    rows: int

    def grow(self) -> set[str]:
        """Land new rows; the names of the new files."""
        before = self.files()
        self.lander.land(self.orders.rows(np.arange(self.rows, self.rows + NEW)))
        self.rows += NEW
        return self.files() - before

    def files(self) -> set[str]:
        return {path.name for path in self.lander.data.glob("*.parquet")}


@contextmanager
def timed(what: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    print(f"  {what:<58} {time.perf_counter() - begun:6.1f} s", flush=True)


def tick(table: Table, warm: Warm) -> tuple[float, int, int]:
    """One tick with new rows: its seconds, and the data files that were new and that were opened."""
    new = table.grow()
    with Opens(table.lander.data) as opens:
        said = warm.run("export")
    if said["rows"] != NEW:
        raise SystemExit(f"the tick was to move {NEW} rows: {said}")
    if not opens.names:
        raise SystemExit("a tick that moved rows opened no file that was noticed, so the count means nothing")
    count = f"{len(opens.names)} of {len(table.files())} files opened, {len(new)} new"
    print(f"    tick {said['seconds']:.3f} s, {count}; {load()}", flush=True)
    return said["seconds"], len(new), len(opens.names)


def idle(folder: Path, env: Mapping[str, str], table: Table, java: JavaWatch) -> tuple[int, bool, bool]:
    """A run with nothing new: data files opened, whether a JVM was started, whether PyIceberg was imported."""
    started = java.starts()
    with Opens(table.lander.data) as opens:
        done = subprocess.run(
            [orders.COMMAND, "run", "shop.yaml", "export"],
            env={**env, "PYTHONPROFILEIMPORTTIME": "1"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0 or "nothing new" not in done.stdout:
        raise SystemExit(f"the run was to find nothing new, and said:\n{done.stdout}")
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    if "penstock" not in imported:
        raise SystemExit("no import was noticed, so the absence of one means nothing")
    return len(opens.names), java.starts() > started, "pyiceberg" in imported


def merged(folder: Path, env: Mapping[str, str], rows: int) -> float:
    """The median of ticks that change rows of a keyed table by random key, after one to warm up."""
    with timed(f"{rows:,} rows landed in a keyed table"):
        lake.fill(lake.Lander(folder, "keyed", keyed=True), rows=rows, landings=KEYED_FILES)
    random = np.random.default_rng(7)
    with PostgresServer() as server:
        url = server.database("shop")
        orders.make_orders(url, 0)
        file = folder / "merge.yaml"
        file.write_text(MERGE)
        seconds: list[float] = []
        with Warm(file, {**env, "DATABASE_URL": url}) as warm:
            for _ in range(TICKS + 1):
                ids = random.choice(rows, NEW, replace=False).tolist()
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute(CHANGE, (ids,))
                said = warm.run("merge")
                if said["rows"] != NEW:
                    raise SystemExit(f"the tick was to merge {NEW} rows: {said}")
                print(f"    merge {said['seconds']:.3f} s; {load()}", flush=True)
                seconds.append(said["seconds"])
    return statistics.median(seconds[1:])


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def measured(folder: Path, rows: int, files: int) -> dict[str, Any]:
    """All that is said of the table that is read."""
    java = JavaWatch(folder)
    env = java.watched(orders.environment(""))
    file = folder / "shop.yaml"
    file.write_text(PIPELINES)
    table = Table(lake.Lander(folder, "shop"), lake.Orders(), rows)
    with timed(f"{rows:,} rows landed in {files} files"):
        lake.fill(table.lander, rows=rows, landings=files)
    total = len(table.files())
    with Warm(file, env) as warm:
        with timed("the reader's first run, and one tick to start Spark"):
            warm.run("export")
            tick(table, warm)
        ticks = [tick(table, warm) for _ in range(TICKS)]
        with timed("compaction"):
            said = orders.run_once([orders.COMMAND, "upkeep", str(file), "load", "--only", "compaction"], env, folder)
        print("\n".join(f"    {line}" for line in said.splitlines()))
        compacted = tick(table, warm)
    if not java.starts():
        raise SystemExit("no java that was started was noticed, so its absence would mean nothing")
    opened, jvm, pyiceberg = idle(folder, env, table, java)
    print(f"  nothing new: {opened} files opened, JVM started: {jvm}, PyIceberg imported: {pyiceberg}")
    if opened or pyiceberg:
        raise SystemExit("a run with nothing new opened data files or imported PyIceberg")
    if len({new for _, new, _ in [*ticks, compacted]}) != 1:
        raise SystemExit(f"every tick was to have as many new files: {ticks}, {compacted}")
    return {
        "files_total": total,
        "files_new": compacted[1],
        "files_opened": max(opened for _, _, opened in ticks),
        "files_opened_compacted": compacted[2],
        "jvm_started_idle": jvm,
        "tick_s": round(statistics.median(seconds for seconds, _, _ in ticks), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the table that is read")
    parser.add_argument("--files", type=int, default=200, help="its files")
    parser.add_argument("--keyed-rows", type=int, default=8_000_000, help="rows of the keyed table; 0: leave it out")
    parser.add_argument("--untimed", action="store_true", help="a busy machine: seconds are told, no bound is on them")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-lake-tick-") as name:
        folder = Path(name)
        found = measured(folder, chosen.rows, chosen.files)
        merge = merged(folder, orders.environment(""), chosen.keyed_rows) if chosen.keyed_rows else None
    found["merge_tick_s"] = round(merge, 3) if merge is not None else None
    print(json.dumps(found))
    slow = found["tick_s"] > TICK_BOUND or (merge or 0.0) > MERGE_BOUND
    many = found["files_opened"] > found["files_new"] or found["files_opened_compacted"] > found["files_new"] + 1
    if many or found["jvm_started_idle"] or (slow and not chosen.untimed):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
