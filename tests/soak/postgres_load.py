"""A first load under fire: rows come, change and go at full speed while it is killed five times.

At the end the newest version of every row that is still there is in the sink, and no version twice.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.lake.lake import Lake
from penstock.lake.options import LakeOptions
from penstock.lake.tables import load_table as load_table
from tests.harness.faults import Command, Outcome
from tests.soak.postgres_checks import compare, files

SQL = Path(__file__).with_name("postgres_load.sql")
PIPELINE = """
pipelines:
  soak:
    source: {{type: postgres, url: "${{DATABASE_URL}}", horizon: {{margin: {margin}}}}}
    sink: {sink}
    slice_bytes: {slice_bytes}
    streams:
      items: {{cursor: updated_at, tiebreaker: id, first_load: {by}}}
"""
SINKS = {"files": "{type: files, directory: out}", "lake": "{type: lake}"}
MARGIN = 0.5
#: where it is killed; at the second slice of a run, so that each finishes what the one before had begun and goes on
POINTS = {
    "files": ("gate.intended", "files.part_written", "gate.moved", "files.manifest_linked", "gate.committed"),
    "lake": ("gate.intended", "lake.part_written", "gate.moved", "lake.prepared", "lake.landed"),
}
#: bytes of a row as Arrow, about; slices that the load is to have, so that each kill finds it in its midst
ROW_BYTES, SLICES = 140, 14
PATIENCE = 60.0
#: a run that takes longer hangs
HANGS = 1800.0
#: seconds
BREATH = 0.05

INSERT = """
    INSERT INTO items (id, amount, body)
    SELECT nextval('item_ids'), 1, repeat(md5(g::text), 3) FROM generate_series(1, 40) g
"""
#: nobody waits for a row that another has
CHANGE = """
    UPDATE items i SET changes = i.changes + 1, amount = i.amount + 1, body = repeat(md5(%(salt)s || i.id), %(wide)s)
    FROM (SELECT id FROM items WHERE id = ANY(%(ids)s) FOR UPDATE SKIP LOCKED) x WHERE i.id = x.id
"""
DELETE = """
    WITH d AS (DELETE FROM items i USING (SELECT id FROM items WHERE id = ANY(%(ids)s) FOR UPDATE SKIP LOCKED) x
    WHERE i.id = x.id RETURNING i.id) INSERT INTO gone SELECT id FROM d
"""


@dataclass
class Fire:
    """Connections that insert, update and delete as fast as the server lets them."""

    url: str
    seed: int
    #: the highest id at the beginning
    top: int
    #: rows at full speed; after them each statement is followed by a breath, so that a busy machine gets no more to do
    most: int
    #: rows written, by what was done to them
    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, connections: int) -> None:
        self._threads = [threading.Thread(target=self._burn, args=(n,), daemon=True) for n in range(connections)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        if any(thread.is_alive() for thread in self._threads):
            self.faults.append("a writer hangs")

    def _burn(self, number: int) -> None:
        chance, top = random.Random(f"{self.seed}/{number}"), self.top
        try:
            with psycopg.connect(self.url, autocommit=True, application_name=f"fire {number}") as db:
                while not self.stop.is_set():
                    [what] = chance.choices(("inserted", "changed", "deleted"), (2, 6, 2))
                    # Mostly anywhere, now and then what is new or has just changed.
                    low = 1 if chance.random() < 0.8 else max(1, top - 2000)
                    ids = [chance.randint(low, top) for _ in range(40 if what == "changed" else 15)]
                    values = {"ids": ids, "salt": str(chance.random()), "wide": chance.randint(1, 6)}
                    text = {"inserted": INSERT, "changed": CHANGE, "deleted": DELETE}[what]
                    rows = db.execute(text, values if what != "inserted" else None).rowcount
                    self.done[what] += rows
                    if self.done.total() > self.most:
                        self.stop.wait(BREATH)
                    top += rows if what == "inserted" else 0
        except psycopg.Error as error:
            self.faults.append(f"fire {number}: {error}")


@dataclass
class Loading:
    """The command, and what its marks said."""

    command: Command
    #: for each run: the marks that it left, whether of the load (True) or of what follows it
    runs: list[list[bool]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def killed(self, point: str, nth: int) -> None:
        running = self.command.start("run", "soak.yaml", "--json", point=point, nth=nth)
        reached = running.reached()
        running.signal(signal.SIGKILL)
        self._heard(running.end())
        if reached["point"] != point:
            self.faults.append(f"killed at {reached['point']} instead of {point}")

    def whole(self) -> None:
        """A run to its end."""
        running = self.command.start("run", "soak.yaml", "--json")
        try:
            out, err = running.process.communicate(timeout=HANGS)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        done = Outcome(running.process.returncode, out, err)
        if done.code != 0:
            self.faults.append(f"run {len(self.runs) + 1} ended with {done.code}: {done.err} {done.out[-2000:]}")
        self._heard(done)

    def _heard(self, done: Outcome) -> None:
        lines = [json.loads(line) for line in done.out.splitlines() if line.endswith("}")]
        states = [line for line in lines if line["type"] == "state"]
        self.runs.append(["load" in json.loads(state["mark"]) for state in states])
        (self.command.folder / f"run-{len(self.runs)}.ndjson").write_text(done.out)


def load(
    url: str,
    folder: Path,
    *,
    seed: int,
    by: str,
    rows: int,
    connections: int = 3,
    most: int = 1_000_000,
    kills: int = 5,
    to_the_end: bool = True,
    sink: str = "files",
    mover: str = "loop",
) -> dict[str, Any]:
    """One seed; `good` tells whether everything held, and whether each kill met the load at work.

    `to_the_end`: the fire goes on until a run has been through; otherwise it ends with the last kill.
    """
    chance, began = random.Random(seed), time.monotonic()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(sql.SQL(SQL.read_text()).format(rows=sql.Literal(rows)))
    slice_bytes = max(65536, rows * ROW_BYTES // SLICES)
    settings = {"margin": MARGIN, "sink": SINKS[sink], "slice_bytes": slice_bytes, "by": by}
    (folder / "soak.yaml").write_text(PIPELINE.format(**settings))
    fire, loading = Fire(url, seed, rows, most), Loading(Command(folder, mover, {"DATABASE_URL": url}))
    points = chance.sample(POINTS[sink], kills)
    fire.start(connections)
    try:
        for point in points:
            # Spark's workers each count for themselves.
            loading.killed(point, nth=1 if mover == "spark" and point.endswith("part_written") else 2)
        if to_the_end:
            loading.whole()
    finally:
        fire.finish()
    time.sleep(MARGIN + 0.5)
    loading.whole()
    # A kill met the load if the next mark was still one of the load.
    hits = sum(next((mark for run in loading.runs[kill:] for mark in run), False) for kill in range(1, kills + 1))
    arrived, faults = (landed(folder), []) if sink == "lake" else files(folder / "out", "soak", "items")
    compared = compare(url, "items", arrived, version="updated_at", gone="gone")
    faults = [*fire.faults, *loading.faults, *faults, *compared.faults]
    if hits != len(points):
        faults.append(f"{hits} of {len(points)} kills met the load at work: {loading.runs}")
    return {
        "seed": seed,
        "by": by,
        "sink": sink,
        "took": round(time.monotonic() - began, 1),
        "good": not faults,
        "fire": dict(fire.done),
        "kills": points,
        "hits": hits,
        "slices_of_the_load": sum(map(sum, loading.runs)),
        "slices": sum(map(len, loading.runs)),
        "rows": compared.rows,
        "delivered": compared.delivered,
        "lost": len(compared.missing),
        "faults": faults,
    }


def landed(folder: Path) -> list[pa.Table]:
    """What the lake's table holds, in the order in which it came."""
    table = load_table(Lake.from_options(LakeOptions(), folder=str(folder), pipeline="soak"), "items")
    assert table is not None
    return [table.scan().to_arrow().sort_by("_ingest_seq").drop_columns(["_ingest_seq"])]
