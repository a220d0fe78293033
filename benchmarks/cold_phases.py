"""Where the seconds of a cold start go: one tick of a thousand rows into files, at commit c299502 and now.

Each has taken the table (`--rows`) before, and the archive with which Java starts sooner is there, as after a user's
first run. Then, round by round (`--runs`), a thousand rows come in and both commands take them, in turns. A phase ends
when the start has come so far:

- Python and imports: the store is opened;
- look: Java is started, because there is something new;
- JVM boot: the first connection to it is made;
- Spark session: context and session are there;
- first job: the rows are in files (the start of the Python workers included);
- commit: the files are visible and the mark has moved;
- exit: Spark and the command have ended.

Phases that run beside each other count for the one that ends first. Medians; `--plot FILE` draws them as SVG,
`--found FILE` takes an earlier result. Nothing is bounded: `cold` does that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import _milestones, tick
from benchmarks import _orders as orders
from benchmarks import _plot_phases as plot
from benchmarks._archive import own_folder, wait_for_archive
from benchmarks._contenders import FEW, FEW_ROWS, Ground
from benchmarks._plot_phases import Phases
from benchmarks._starts import Before, Cold
from tests.harness.postgres import PostgresServer

#: the milestone that ends each phase, in their order
ENDS = {
    "Python and imports": "store",
    "look": "java",
    "JVM boot": "booted",
    "Spark session": "session",
    "first job": "move",
    "commit": "state",
    "exit": "exit",
}
COMMANDS = {"c299502": Before, "now": Cold}
TITLE = "A cold tick of 1,000 rows: where its seconds go"


def phases(begun: float, reached: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each phase, from the times at which milestones were reached. SystemExit if one was not."""
    missing = [name for name in ENDS.values() if name not in reached]
    if missing:
        raise SystemExit(f"the start was to reach {', '.join(missing)}, and did not: {dict(reached)}")
    spent, last = {}, begun
    for phase, end in ENDS.items():
        spent[phase] = max(0.0, reached[end] - last)
        last = max(last, reached[end])
    return spent


def said_at(messages: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """When the rows were moved and when the mark had moved, by a run's messages."""
    times = {message.get("step") or message["type"]: message["_ts"] for message in messages}
    return {name: datetime.fromisoformat(times[name]).timestamp() for name in ("move", "state") if name in times}


def measured(taker: Cold) -> dict[str, float]:
    """The phases of one run."""
    record = taker.folder / "milestones"
    record.unlink(missing_ok=True)
    script = str(Path(_milestones.__file__).resolve())
    begun = time.time()
    said = orders.run_once(
        [taker.python, script, str(record), "run", "shop.yaml", "shop", "--json"], taker.env, taker.folder
    )
    ended = time.time()
    reached = {name: float(moment) for name, moment in (line.split() for line in record.read_text().splitlines())}
    messages = [json.loads(line) for line in said.splitlines()]
    return phases(begun, reached | said_at(messages) | {"exit": ended})


def found(rows: int, runs: int) -> dict[str, dict[str, float]]:
    """The medians of each command's phases."""
    spent: dict[str, list[dict[str, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory(prefix="penstock-phases-") as folder, PostgresServer() as server:
        own_folder(Path(folder))
        ground = Ground(server.database("shop"), Path(folder), rows, runs)
        orders.make_orders(ground.url, rows)
        orders.make_orders(ground.url, FEW_ROWS, FEW)
        takers = {name: command(ground, name, ExitStack()) for name, command in COMMANDS.items()}
        wait_for_archive(takers["now"])
        for taker in takers.values():
            taker.take()
        for run in range(runs):
            tick.insert(ground, rows + 1 + tick.NEW * run, floats=False)
            for name, taker in takers.items():
                spent[name].append(measured(taker))
                told = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in spent[name][-1].items())
                print(f"  run {run + 1}  {name:<8} {sum(spent[name][-1].values()):6.2f} s: {told}", flush=True)
    return {
        name: {phase: round(statistics.median(one[phase] for one in each), 3) for phase in ENDS}
        for name, each in spent.items()
    }


def table(result: Mapping[str, Phases]) -> str:
    lines = [f"{'':<20}" + "".join(f"{name:>10}" for name in result)]
    lines += [f"{phase:<20}" + "".join(f"{each[phase]:9.2f}s" for each in result.values()) for phase in ENDS]
    lines += [f"{'all':<20}" + "".join(f"{sum(each.values()):9.2f}s" for each in result.values())]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the table before the ticks")
    parser.add_argument("--runs", type=int, default=5, help="runs of each command")
    parser.add_argument("--plot", type=Path, help="draw what was found into this file, as SVG")
    parser.add_argument("--found", type=Path, help="measure nothing: this file holds the JSON of an earlier run")
    chosen = parser.parse_args()
    if chosen.found:
        result = json.loads(chosen.found.read_text().splitlines()[-1])
    else:
        result = found(chosen.rows, chosen.runs)
    print(table(result))
    if chosen.plot:
        chosen.plot.write_text(plot.drawn(TITLE, result))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
