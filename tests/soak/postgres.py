"""Late commits: writers of every kind beside runs back to back, some killed; at the end every row is in the sink.

    script/soak postgres [--seeds 1-10] [--seconds 180] [--writers 64] [--longest 20] [--mover loop|spark]
    script/soak postgres --load [--seeds 1-10] [--lake] [--mover loop|spark]

With --load: a first load under fire instead, killed five times (tests/soak/postgres_load.py). With --horizon off: what
is lost without one. Writes soak-results/postgres-*.json and exits with 1 if anything was lost or doubled, or a run
failed; the folder of a seed that failed is kept.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.faults import Command, Outcome
from tests.harness.postgres import PostgresServer
from tests.soak.postgres_checks import Compared, compare, files, versions
from tests.soak.postgres_crew import Crew
from tests.soak.postgres_load import load
from tests.soak.postgres_writers import TABLES, Straggler, begin, make_tables

PIPELINE = """
pipelines:
  soak:
    source: {{type: postgres, url: "${{DATABASE_URL}}", horizon: {{method: {horizon}, margin: {margin}}}}}
    sink: {{type: files, directory: out}}
    slice_bytes: {slice_bytes}
    streams:
      stamped: {{cursor: updated_at, tiebreaker: id}}
      defaulted: {{cursor: updated_at, tiebreaker: id}}
      numbered: {{cursor: id, unique: true}}
      parted: {{cursor: id, unique: true}}
"""
VERSIONS = {"stamped": "updated_at", "defaulted": "updated_at"}
#: seconds below the oldest transaction that are left alone
MARGIN = 1.0
#: how often a run is killed, and after how many seconds
KILLED, LIFE = 0.5, {"loop": (0.2, 2.0), "spark": (1.0, 20.0)}
#: a stream has come to a halt if nothing arrives in so many times the longest transaction
STALLED = 6.0
#: rows whose story is told, of those that were lost
STORIES = 5
#: many connections, and many prepared transactions, are what this is about
SERVER = {"max_connections": "200", "max_prepared_transactions": "64"}


@dataclass
class Runs:
    """`penstock run`, again and again, and what it said."""

    command: Command
    count: int = 0
    kills: int = 0
    codes: list[int] = field(default_factory=list)
    #: rows that arrived, and slices that brought some, by stream
    rows: Counter[str] = field(default_factory=Counter)
    slices: Counter[str] = field(default_factory=Counter)
    #: most rows that a run held back, by stream
    held_back: dict[str, int] = field(default_factory=dict)
    blockers: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def once(self, life: float | None = None) -> None:
        """One run, to its end or until it is killed."""
        self.count += 1
        running = self.command.start("run", "soak.yaml", "--json")
        try:
            out, err = running.process.communicate(timeout=life)
        except subprocess.TimeoutExpired:
            running.signal(signal.SIGKILL)
            done = running.end()
            self.kills += 1
        else:
            done = Outcome(running.process.returncode, out, err)
            self.codes.append(done.code)
            if done.code != 0:
                self.faults.append(f"run {self.count} ended with {done.code}: {done.err} {done.out[-2000:]}")
        self._heard(done)

    def _heard(self, done: Outcome) -> None:
        (self.command.folder / f"run-{self.count}.ndjson").write_text(done.out)
        for line in done.out.splitlines():
            if not line.endswith("}"):
                continue  # killed in the midst of a word
            said = json.loads(line)
            if said["type"] == "state":
                self.rows[said["stream"]] += said["rows"]
                self.slices[said["stream"]] += said["rows"] > 0
            if said["type"] == "remaining" and said["held_back"]:
                self.held_back[said["stream"]] = max(said["held_back"], self.held_back.get(said["stream"], 0))
            if said["type"] == "remaining" and said["blocker"]:
                self.blockers.add(said["blocker"])


def soak(
    url: str,
    folder: Path,
    *,
    seed: int,
    seconds: float,
    writers: int,
    longest: float,
    rounds: int = 1,
    killed: float = 0.0,
    horizon: str = "auto",
    mover: str = "loop",
    margin: float = MARGIN,
) -> dict[str, Any]:
    """One seed, for so many seconds and at least so many rounds; `good` tells whether everything held.

    A round is a run that a straggler outlives, and one that may be killed.
    """
    chance, began = random.Random(seed), time.monotonic()
    make_tables(url)
    slice_bytes, most_prepared = chance.choice((65536, 1 << 20, 256 << 20)), chance.choice((1, 3, 8))
    (folder / "soak.yaml").write_text(PIPELINE.format(horizon=horizon, margin=margin, slice_bytes=slice_bytes))
    crew = Crew(url, seed, longest, most_prepared)
    runs = Runs(Command(folder, mover, {"DATABASE_URL": url}))
    begin(crew, writers)
    stragglers: list[Straggler] = []
    try:
        runs.once()
        while len(stragglers) < rounds or time.monotonic() - began < seconds:
            stragglers.append(Straggler(crew, len(stragglers)))
            runs.once()
            stragglers[-1].commit()
            if chance.random() < killed:
                runs.once(life=chance.uniform(*LIFE[mover]))
    finally:
        crew.finish()
    meanwhile, slices = {table: runs.rows[table] for table in TABLES}, dict(runs.slices)
    # By then no stamp is so young that the margin keeps it back: one run brings all that is left.
    time.sleep(margin + 0.5)
    runs.once()
    compared, faults = delivered(url, folder)
    faults = [*crew.faults, *runs.faults, *faults, *(fault for one in compared for fault in one.faults)]
    # A horizon that never moves loses nothing either.
    if seconds > STALLED * longest:
        faults += [f"{table}: nothing arrived as long as others wrote" for table in TABLES if not meanwhile[table]]
    late = {touched for straggler in stragglers for touched in straggler.work.touched}
    lost = [(one.table, id_) for one in compared for id_ in one.missing]
    return {
        "seed": seed,
        "seconds": seconds,
        "took": round(time.monotonic() - began, 1),
        "good": not faults,
        "horizon": horizon,
        "writers": writers,
        "transactions": crew.counts,
        "runs": runs.count,
        "kills": runs.kills,
        "slice_bytes": slice_bytes,
        "most_prepared": most_prepared,
        "rows": {one.table: one.rows for one in compared},
        "delivered": {one.table: one.delivered for one in compared},
        "delivered_meanwhile": meanwhile,
        "slices_meanwhile": slices,
        "held_back": runs.held_back,
        "blockers": len(runs.blockers),
        "some_blockers": sorted(runs.blockers)[:3],
        "stragglers": len(late),
        "stragglers_lost": len(late.intersection(lost)),
        "lost": len(lost),
        "stories": [story(url, crew, *row) for row in lost[:STORIES]],
        "faults": faults,
    }


def delivered(url: str, folder: Path) -> tuple[list[Compared], list[str]]:
    """Each table with what arrived of it, and what is wrong with the files themselves."""
    compared, faults = [], []
    for table in TABLES:
        arrived, wrong = files(folder / "out", "soak", table)
        faults += wrong
        compared.append(compare(url, table, arrived, version=VERSIONS.get(table)))
    return compared, faults


def story(url: str, crew: Crew, table: str, id_: int) -> dict[str, Any]:
    """All that is known about a row."""
    return {"table": table, "id": id_, "writers": crew.history(table, id_), "versions": versions(url, table, id_)}


def some(text: str) -> list[int]:
    """`1-10` or `1,4` or `3` as numbers."""
    pairs = [part.partition("-") for part in text.split(",")]
    return [number for low, _, high in pairs for number in range(int(low), int(high or low) + 1)]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    options = argparse.ArgumentParser(
        prog="script/soak postgres", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seeds", type=some, default=some("1-10"), help="1-10, or 3, or 1,4")
    options.add_argument("--seconds", type=float, default=180.0, help="how long writers write, for each seed")
    options.add_argument("--writers", type=int, default=64)
    options.add_argument("--longest", type=float, default=20.0, help="seconds that a transaction may take")
    options.add_argument("--horizon", choices=("auto", "off"), default="auto")
    options.add_argument("--mover", choices=("loop", "spark"), default="loop")
    options.add_argument("--load", action="store_true", help="a first load under fire instead")
    options.add_argument("--lake", action="store_true", help="with --load: into the lake")
    options.add_argument("--rows", type=int, default=500_000, help="with --load: rows of the table")
    options.add_argument("--keep", action="store_true", help="keep every seed's folder")
    return options.parse_args(given)


def one(given: argparse.Namespace, url: str, folder: Path, seed: int) -> dict[str, Any]:
    if given.load:
        by = ("keys", "blocks")[seed % 2]
        return load(
            url, folder, seed=seed, by=by, rows=given.rows, sink="lake" if given.lake else "files", mover=given.mover
        )
    return soak(
        url,
        folder,
        seed=seed,
        seconds=given.seconds,
        writers=given.writers,
        longest=given.longest,
        killed=KILLED,
        horizon=given.horizon,
        mover=given.mover,
    )


def main() -> int:
    given = arguments()
    what = f"load-{'lake' if given.lake else 'files'}" if given.load else f"{given.seconds:g}s-{given.horizon}"
    results = []
    with PostgresServer(SERVER) as server:
        for seed in given.seeds:
            folder = Path(tempfile.mkdtemp(prefix=f"soak-postgres-{seed}-"))
            result = one(given, server.database(), folder, seed)
            results.append(result)
            print(f"seed {seed}: {'good' if result['good'] else 'BAD'} {json.dumps(result)}", flush=True)
            if result["good"] and not given.keep:
                shutil.rmtree(folder)
            else:
                print(f"kept: {folder}", flush=True)
            Path("soak-results").mkdir(exist_ok=True)
            Path(f"soak-results/postgres-{what}-{given.mover}.json").write_text(json.dumps(results, indent=1))
    bad = [result["seed"] for result in results if not result["good"]]
    print(json.dumps({"seeds": len(results), "lost": sum(result["lost"] for result in results), "bad": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
