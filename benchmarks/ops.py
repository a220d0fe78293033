"""Change ops: a backlog applied to a state table, a first load, and what the triggers cost a writer.

(a) A backlog of five million ops over a million entities in an outbox, as triggers write it: a fifth of the ops on
values of a multi-value field, updates not collapsed, two fan-outs of a hundredth of all entities in each slice.
penstock applies it, warm, to a state table in the lake and in Postgres: ops a second. What must come out is computed by
SQL over the same documents and compared: SystemExit if it differs. (b) The first load of a table of two million rows by
the outbox into a state table of the lake, beside the first load of the same table by the postgres source into a keyed
lake table, in turns: at most 1.5 times as long. (c) pgbench's TPC-B with one client, with triggers on its three tables
against without, in turns, on a server that syncs its commits as Postgres does by default: at most 1.6 times the
latency. Memory is the peak of the summed PSS of penstock's processes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks import _ops as ops
from benchmarks import _orders as orders
from benchmarks._contenders import told
from benchmarks._processes import spending
from benchmarks._verdict import least, most
from benchmarks._warm import Warm
from tests.harness.postgres import PostgresServer, newest_programs

RATE, LOADING, WRITING = 25_000, 1.5, 1.6
OPS, ROWS = 5_000_000, 2_000_000
#: documents between two fan-outs: a slice has about twice as many
APART = 250_000
WARM_UP = 20_000
PGBENCH_SCALE, PGBENCH_SECONDS = 10, 15
#: as Postgres has them by default: a writer waits for its commit to be on disk
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
BANK = """\
pipelines:
  bank:
    source: {{type: outbox, url: "{url}"}}
    sink: {{type: files, directory: out, format: ndjson}}
    streams:
      accounts: {{direct: [{{table: pgbench_accounts, key: aid, columns: [bid, abalance], creates: true}}]}}
      tellers: {{direct: [{{table: pgbench_tellers, key: tid, columns: [bid, tbalance], creates: true}}]}}
      branches: {{direct: [{{table: pgbench_branches, key: bid, columns: [bbalance], creates: true}}]}}
"""


def penstock(folder: Path, *words: str) -> str:
    return orders.run_once([orders.COMMAND, *words], dict(os.environ), folder)


def take(process: Warm, name: str) -> tuple[float, float]:
    """Seconds and peak in MiB of one run."""
    with spending(process.pid) as cost:
        said = process.run(name)
    print(f"  {name:<12} {said['seconds']:8.2f} s, {said['rows']:,} rows: {told(said['steps'])}", flush=True)
    return float(said["seconds"]), cost[0].peak


def applying(folder: Path, server: PostgresServer, count: int, runs: int) -> tuple[dict[str, float], float]:
    """Ops a second by sink, medians, and the peak in MiB."""
    url, target = server.database("shop"), server.database("copy")
    documents = int(count / ops.OPS_PER_DOCUMENT)
    ops.make_tables(url)
    names = {(sink, run): f"{sink}_{run if run >= 0 else 'warm'}" for run in range(-1, runs) for sink in ops.SINKS}
    text = "".join(ops.pipeline(name, sink, url, target) for (sink, _), name in names.items())
    (folder / "ops.yaml").write_text(f"pipelines:\n{text}")
    ops.make_schemas(target, [name for (sink, _), name in names.items() if sink == "postgres"])
    for name in names.values():
        penstock(folder, "triggers", "apply", "ops.yaml", "--pipeline", name)
    found: dict[str, list[float]] = {sink: [] for sink in ops.SINKS}
    peaks: list[float] = []
    with Warm(folder / "ops.yaml", dict(os.environ)) as process:
        for name in names.values():
            process.run(name)  # registered, so that it reads the backlog
        ops.fill_backlog(url, WARM_UP, WARM_UP // 2)
        for sink in ops.SINKS:
            take(process, names[sink, -1])
        expected = ops.fill_backlog(url, documents, min(APART, max(2, documents // 8)))
        for run in range(runs):
            for sink in ops.SINKS:
                seconds, peak = take(process, names[sink, run])
                found[sink].append(seconds)
                peaks.append(peak)
                name = names[sink, run]
                came = ops.found_in_lake(folder, name) if sink == "lake" else ops.found_in_postgres(target, name)
                if came != expected:
                    raise SystemExit(f"{name} was to hold {expected}, and holds {came}")
    return {sink: count / statistics.median(each) for sink, each in found.items()}, max(peaks)


def loading(folder: Path, server: PostgresServer, rows: int, runs: int) -> tuple[float, float]:
    """How many times as long a first load of the outbox takes, and the peak in MiB."""
    url = server.database("load")
    ops.make_tables(url)
    ops.fill_images(url, rows)
    text = "".join(
        ops.pipeline(f"{what}_{run}", "lake", url, "", rows=what == "rows")
        for run in range(runs)
        for what in ("rows", "ops")
    )
    (folder / "load.yaml").write_text(f"pipelines:\n{text}")
    for run in range(runs):
        penstock(folder, "triggers", "apply", "load.yaml", "--pipeline", f"ops_{run}")
    found: dict[str, list[float]] = {"rows": [], "ops": []}
    peaks: list[float] = []
    with Warm(folder / "load.yaml", dict(os.environ)) as process:
        for run in range(runs):
            for what, each in found.items():
                seconds, peak = take(process, f"{what}_{run}")
                each.append(seconds)
                peaks.append(peak)
                if (came := ops.count_in_lake(folder, f"{what}_{run}")) != rows:
                    raise SystemExit(f"{what}_{run} was to hold {rows:,} rows, and holds {came:,}")
    return statistics.median(found["ops"]) / statistics.median(found["rows"]), max(peaks)


def writing(folder: Path, server: PostgresServer, seconds: int, runs: int) -> float:
    """The latency of TPC-B with triggers, times that without."""
    pgbench = str(newest_programs() / "pgbench")
    urls = {"plain": server.database("plain"), "triggers": server.database("triggers")}
    for url in urls.values():
        orders.run_once([pgbench, "-i", "-q", "-s", str(PGBENCH_SCALE), url], dict(os.environ), folder)
    (folder / "bank.yaml").write_text(BANK.format(url=urls["triggers"]))
    penstock(folder, "triggers", "apply", "bank.yaml")
    found: dict[str, list[float]] = {name: [] for name in urls}
    for run in range(-1, runs):
        for name, url in urls.items():
            output = subprocess.run(
                [pgbench, "-n", "-T", str(seconds if run >= 0 else 2), "-c", "1", url],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            latency = re.search(r"latency average = ([\d.]+) ms", output)
            if latency is None:
                raise SystemExit(f"pgbench says no latency:\n{output}")
            if run >= 0:
                found[name].append(float(latency[1]))
                print(f"  {name:<12} {latency[1]} ms", flush=True)
    return statistics.median(found["triggers"]) / statistics.median(found["plain"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=OPS, help="ops of the backlog")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table that is loaded")
    parser.add_argument("--runs", type=int, default=2, help="runs of each")
    parser.add_argument("--seconds", type=int, default=PGBENCH_SECONDS, help="seconds of each run of pgbench")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-ops-") as made, PostgresServer() as server:
        folder = Path(made)
        with PostgresServer(settings=DURABLE) as durable:
            latency = writing(folder, durable, chosen.seconds, chosen.runs + 1)
        print("on a server that never syncs, where only the statements count:", flush=True)
        unsynced = writing(folder, server, chosen.seconds, chosen.runs)
        ratio, loaded = loading(folder, server, chosen.rows, chosen.runs)
        rates, peak = applying(folder, server, chosen.ops, chosen.runs)
    print("must hold:")
    for sink, rate in rates.items():
        print(least(f"ops a second into {sink}", rate, RATE))
    print(most("first load, times that of the postgres source", ratio, LOADING))
    print(most("latency with triggers, times that without", latency, WRITING))
    print(f"       the same on a server that never syncs: {unsynced:.2f}")
    result = {
        **{f"ops_per_s_{sink}": round(rate) for sink, rate in rates.items()},
        "load_vs_first_load": round(ratio, 3),
        "trigger_latency_ratio": round(latency, 3),
        "peak_mib": round(max(peak, loaded), 1),
    }
    print(json.dumps(result))
    holds = min(rates.values()) >= RATE and ratio <= LOADING and latency <= WRITING
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
