"""The memory of whole runs, every process that they start counted: five million orders into Parquet files, the same
into the lake, the same handed over to a warm worker, a tick of a thousand rows there, and twenty million rows out of
the lake into files.

Summed is the PSS (a page shared by n processes counts for 1/n in each) of the command, its JVM, the daemon and the
Python workers; Postgres is not part of it. Each peak must stay within 940 MiB: memory follows from the byte budgets,
not from the table. Beside it: where the time went.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from benchmarks import _orders as orders
from benchmarks import tick
from benchmarks._processes import MIB, Peak, watching
from benchmarks._worker import Worker
from psycopg import sql
from tests.harness.postgres import PostgresServer

#: what a run of five million rows took before there were warm workers
BOUND_MIB = 940
#: landings that make the table in the lake
LANDINGS = 200

LAKE = """\
pipelines:
  lake:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: lake}
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""
EXPORT = """\
pipelines:
  export:
    source: {type: lake, namespace: many}
    sink: {type: files, directory: exported}
"""


def phases(messages: list[dict[str, str]], begun: float, ended: float) -> dict[str, float]:
    """Where the time went, from the times at which a run's messages were made."""
    spent: dict[str, float] = {}
    last, first_move = begun, True
    for message in messages:
        moment = datetime.fromisoformat(message["_ts"]).timestamp()
        step = message.get("step") or message["type"]
        if step == "move" and first_move:
            step, first_move = "start Spark and move slice 1", False
        name = {"catalog": "start and connect", "intend": "plan and intend", "state": "advance"}.get(step, step)
        spent[name] = spent.get(name, 0.0) + moment - last
        last = moment
    spent["end Spark and exit"] = ended - last
    return spent


def measured(name: str, folder: Path, env: dict[str, str]) -> Peak:
    """Run one pipeline file to its end. SystemExit with what it said if it fails."""
    begun = time.time()
    with subprocess.Popen(
        [orders.COMMAND, "run", f"{name}.yaml", "--json"],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        with watching(process.pid) as peak:
            messages = [json.loads(line) for line in process.stdout]
            code = process.wait()
    ended = time.time()
    if code != 0:
        raise SystemExit(f"the run of {name} ended with {code}: {messages[-2:]}")
    slices = sum(message["type"] == "state" for message in messages)
    print(f"{name}: {slices} slices, {ended - begun:.1f} s, {peak.looks} looks at the processes")
    for step, seconds in phases(messages, begun, ended).items():
        print(f"  {step:<30} {seconds:6.2f} s")
    tell(peak)
    return peak


def tell(peak: Peak) -> None:
    """Print a peak and what it consists of."""
    print(f"  peak {peak.bytes / MIB:,.0f} MiB (at most {BOUND_MIB:,}):")
    for part, size in peak.parts.items():
        print(f"    {part:<28} {size / MIB:6.0f} MiB", flush=True)


def handed_over(name: str, folder: Path, env: dict[str, str], ticks: Iterator[str]) -> list[Peak]:
    """The peaks of a warm worker and the commands: the table of a pipeline file, then ticks, as `ticks` names them."""
    peaks = []
    with Worker(folder / f"{name}.yaml", env) as worker:
        for what in ticks:
            command = orders.started([orders.COMMAND, "run", f"{name}.yaml"], env, folder)
            with watching(worker.pid, command.pid) as peak:
                said = orders.wait_for(command)
            worker.must_have_run(said)
            print(f"{what}, handed over to a warm worker:")
            tell(peak)
            peaks.append(peak)
    return peaks


def grown(url: str, rows: int) -> Iterator[str]:
    """The whole table, then two ticks of a thousand rows more: the first one warms up."""
    yield f"{rows:,} rows"
    for turn in range(2):
        first = rows + 1 + turn * tick.NEW
        with psycopg.connect(url, autocommit=True) as connection:
            bounds = {"first": sql.Literal(first), "last": sql.Literal(first + tick.NEW - 1)}
            connection.execute(sql.SQL(tick.INSERT).format(table=sql.Identifier("orders"), **bounds))
        yield f"tick {turn + 1} of {tick.NEW:,} rows"


def from_postgres(folder: Path, rows: int) -> dict[str, Peak]:
    """The peaks of one table's way into files and into the lake, and of a warm worker."""
    with PostgresServer() as server:
        url = server.database("shop")
        orders.make_orders(url, rows)
        env = orders.environment(url)
        orders.write_pipeline(folder)
        (folder / "lake.yaml").write_text(LAKE)
        files = measured("shop", folder, env)
        arrived(folder / "out", rows)
        lake = measured("lake", folder, env)
        arrived(folder / "lake", rows)
        warm = folder / "warm"
        warm.mkdir()
        orders.write_pipeline(warm)
        table, _, tick_after = handed_over("shop", warm, env, grown(url, rows))
        arrived(warm / "out", rows + 2 * tick.NEW)
    return {"files": files, "lake": lake, "warm_table": table, "warm_tick": tick_after}


def from_lake(folder: Path, rows: int) -> dict[str, Peak]:
    """The peak of an export of a table in many files."""
    from benchmarks import _lake

    _lake.fill(_lake.Lander(folder, "many"), rows=rows, landings=LANDINGS)
    (folder / "export.yaml").write_text(EXPORT)
    peak = measured("export", folder, orders.environment(""))
    arrived(folder / "exported", rows)
    return {"export": peak}


def arrived(folder: Path, rows: int) -> None:
    """SystemExit if a folder's files do not hold all rows; then they go, to make room."""
    found = orders.rows_in(folder)
    if found != rows:
        raise SystemExit(f"{found:,} rows arrived in {folder.name} of {rows:,}")
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table in Postgres")
    parser.add_argument("--export-rows", type=int, default=20_000_000, help="rows of the table in the lake")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-memory-") as name:
        peaks = from_postgres(Path(name), chosen.rows) | from_lake(Path(name), chosen.export_rows)
    print(json.dumps(found := summary(peaks)))
    if any(each["peak_mib"] > BOUND_MIB for each in found["runs"].values()):
        raise SystemExit(1)


def summary(peaks: dict[str, Peak]) -> dict[str, Any]:
    """The bound, and by run the peak and its parts."""
    return {
        "bound_mib": BOUND_MIB,
        "runs": {
            name: {
                "peak_mib": round(peak.bytes / MIB),
                "parts_mib": {role: round(size / MIB) for role, size in sorted(peak.roles.items())},
            }
            for name, peak in peaks.items()
        },
    }


if __name__ == "__main__":
    main()
