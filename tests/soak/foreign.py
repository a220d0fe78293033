"""Other programs write to a log of ours, in every way and order, beside landings, readers and upkeep.

    script/soak foreign [--seeds 10] [--first 1] [--steps 60] [--without-spark]

PyIceberg and Spark append, update, delete, merge, overwrite, compact and expire, with and without numbers; PyIceberg
also in the midst of a landing, a run or an upkeep. At the end, and for new readers in between, what was delivered is
compared with what is in the table: every row once, or the reader had stopped, and what was accepted named the row.
Writes soak-results/foreign-<steps>.json and exits with 1 if anything was lost or doubled, or a run failed for another
reason.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.core.messages import Eof, Log, StreamStatus
from penstock.engine import Engine
from penstock.errors import StreamStopped
from penstock.lake import names
from penstock.lake.foreign import accept
from penstock.lake.upkeep.run import STEPS, run_upkeep
from penstock.ports import Context, NoProbe, NoSpark, Probe, Sink, Source, Spark
from tests.harness.doubles import LoopMover
from tests.lake.upkeep.upkeep_tables import UpkeepTable, provider_for
from tests.soak.foreign_writers import Others

READERS = ("whole", "bits")
#: the steps of upkeep that need no Spark
LIGHT = ("expiry", "orphans")
#: how often PyIceberg writes at one of the points that a landing, a run or an upkeep passes
MEANWHILE = 0.03
DOUBT = re.compile(r"\(numbers (\d+) to (\d+)\)")
KEPT = re.compile(r"wrote (\d+) of them again under their own numbers")
#: how a reader or upkeep says that others took away what it would have to see
LOST_SIGHT = ("expired before penstock could see", "can no longer be read")


class Stirring:
    """The probe: now and then another program writes just here."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.others: Others | None = None
        self.times = 0

    def at(self, point: str, **about: Any) -> None:
        if self.others is None or not point.startswith(("lake.", "gate.")) or self.chance.random() >= MEANWHILE:
            return
        others, self.others = self.others, None
        try:
            others.quick()
            self.times += 1
        finally:
            self.others = others


@dataclass
class Stirred(UpkeepTable):
    """The table, its writer and its readers, all with that probe."""

    probe: Probe = field(default_factory=NoProbe)

    def context(self, pipeline: str, probe: Probe | None = None) -> Context:
        return super().context(pipeline, probe or self.probe)

    def engine(self, name: str, source: Source, sink: Sink, probe: Probe | None = None) -> Engine:
        return super().engine(name, source, sink, probe or self.probe)


@dataclass
class Soak:
    """One seed."""

    lake: Stirred
    others: Others
    stirring: Stirring
    chance: random.Random
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: by reader: keys in doubt that an acceptance named, under numbers that the reader had passed
    excused: dict[str, set[int]] = field(default_factory=dict)
    #: by reader: rows of which it said that an overwrite wrote them again under their own numbers
    said_kept: Counter[str] = field(default_factory=Counter)
    fresh: int = 0

    def step(self) -> None:
        heavy = 0 if isinstance(self.lake.spark, NoSpark) else 6
        act = self.chance.choices(
            [self.land, self.read, self.read_fresh, self.keep, self.others.quick, self.others.heavy],
            [5, 5, 1, 2, 12 - heavy, heavy],
        )[0]
        act()

    # ------------------------------------------------------------ ours

    def land(self) -> None:
        count = self.chance.randint(1, 12)
        keys = range(self.others.next_key, self.others.next_key + count)
        self.others.next_key += count
        self._must_be_whole("the writer", self.lake.land(*keys, most=5))
        self.counts["landed"] += count

    def read(self) -> None:
        self._read("bits", self.chance.randint(1, 9))
        if self.chance.random() < 0.5:
            self._read("whole")

    def read_fresh(self) -> None:
        """A reader that begins now is given what is in the table, whatever happened before."""
        self.fresh += 1
        name = f"fresh{self.fresh}"
        others, self.stirring.others = self.stirring.others, None
        try:
            self._read(name)
            self._compare(name, exactly=True)
        finally:
            self.stirring.others = others

    def _read(self, reader: str, most: int | None = None) -> None:
        for _ in range(2):
            eof = self.lake.read(reader, most)
            lines = [m.text for m in self.lake.said if isinstance(m, Log)]
            self.said_kept["readers"] += sum(int(found[1]) for line in lines if (found := KEPT.search(line)))
            if not self._lost_sight():
                self._must_be_whole(reader, eof)
                return
            self.counts["stops"] += 1
            self._accept()
        self.faults.append(f"{reader} stopped again after what is there was accepted")

    def _lost_sight(self) -> bool:
        """Whether the last run has stopped because others took history away; the way out must be named."""
        for said in self.lake.said:
            if isinstance(said, StreamStatus) and said.reason and any(each in said.reason for each in LOST_SIGHT):
                if "--accept-foreign" not in str(said.next_step):
                    self.faults.append(f"a stop without a way out: {said.reason}")
                return True
        return False

    def keep(self) -> None:
        soon = datetime.now(UTC) + timedelta(minutes=1)
        work = self.lake.work(
            now=soon,
            probe=self.stirring,
            min_input_files=3,
            snapshots={"keep_for": "0s", "keep_at_least": self.chance.randint(1, 5)},
        )
        try:
            for done in run_upkeep(work, LIGHT if isinstance(self.lake.spark, NoSpark) else STEPS):
                self.counts[f"upkeep_{done.step}"] += 1
                if done.error is not None:
                    self.counts["upkeep_undone"] += 1
                    self.counts["undone: " + done.text[:80]] += 1
        except StreamStopped as error:
            if not any(each in error.what for each in LOST_SIGHT):
                self.faults.append(f"upkeep: {error.what}")
            self.counts["stops"] += 1
            self._accept()

    def _accept(self) -> None:
        """The command that the stop names; which rows it puts in doubt for whom."""
        others, self.stirring.others = self.stirring.others, None
        lines = accept(self.lake.lake, "s", LoopMover, NoProbe())
        self.stirring.others = others
        self.counts["accepted"] += 1
        ranges = [(int(found[1]), int(found[2])) for line in lines if (found := DOUBT.search(line))]
        for low, high in ranges:
            for reader in self.lake.state.readers():
                if reader.mark >= low:
                    told = f"{reader.pipeline}/s has read up to {reader.mark}"
                    if not any(told in line for line in lines):
                        self.faults.append(f"{reader.pipeline} is not named by an acceptance that concerns it")
                    passed = {row[1] for row in self.lake.rows_in() if low <= row[3] <= min(high, reader.mark)}
                    self.excused.setdefault(reader.pipeline, set()).update(passed - self._keys(reader.pipeline).keys())

    # ------------------------------------------------------------ what was delivered

    def finish(self) -> None:
        self.stirring.others = None
        for reader in READERS:
            self._read(reader)
            self._compare(reader)
        self.read_fresh()
        numbers = Counter(row[3] for row in self.lake.rows_in())
        if any(number is None or number <= 0 for number in numbers):
            self.faults.append("rows without a number are left")
        self.counts["shared_numbers"] = sum(1 for count in numbers.values() if count > 1)

    def _keys(self, reader: str) -> Counter[int]:
        return Counter(row["key"] for row in self.lake.seen(reader))

    def _compare(self, reader: str, *, exactly: bool = False) -> None:
        seen = self.lake.seen(reader)
        there = {row[1] for row in self.lake.rows_in()}
        got = Counter(row["key"] for row in seen)
        missing = there - got.keys()
        if not exactly:
            self.counts[f"{reader}_excused"] = len(missing & self.excused.get(reader, set()))
            missing -= self.excused.get(reader, set())
            # Counted in what the run said, which is more: unchanged rows and changed ones are there too.
            self.counts[f"{reader}_in_place"] = len(missing & self.others.in_place)
            missing -= self.others.in_place
        if missing:
            self.faults.append(f"{reader}: {len(missing)} rows were not delivered: {sorted(missing)[:10]}")
        twice = [pair for pair, n in Counter((row["key"], row["version"]) for row in seen).items() if n > 1]
        if twice:
            self.faults.append(f"{reader}: {len(twice)} rows were delivered twice: {sorted(twice)[:10]}")
        if exactly and got.keys() - there:
            self.faults.append(f"{reader}: delivered what is not there: {sorted(got.keys() - there)[:10]}")
        self.counts[f"{'fresh' if exactly else reader}_rows"] += len(seen)
        in_place = self.counts["whole_in_place"] + self.counts["bits_in_place"]
        if in_place > len(READERS) * self.said_kept["readers"]:
            self.faults.append(f"{in_place} rows under others' numbers, and only {self.said_kept['readers']} were said")

    def _must_be_whole(self, who: str, eof: Eof) -> None:
        if eof.exit_code:
            self.faults.append(f"{who}: {eof.reason}")


def soak(seed: int, steps: int, folder: Path, spark: Spark) -> dict[str, Any]:
    """One seed in a namespace of its own; `good` tells whether everything held."""
    chance, began = random.Random(seed), time.monotonic()
    stirring = Stirring(chance)
    lake = Stirred(folder, f"seed{seed}", spark=spark, probe=stirring)
    others = Others(lake, chance)
    run = Soak(lake, others, stirring, chance)
    run.land()
    _prepare(lake, seed)
    for reader in READERS:
        run._read(reader)
    stirring.others = others
    for _ in range(steps):
        if run.faults:
            break
        run.step()
    run.finish()
    found = {"seed": seed, "steps": steps, "took": round(time.monotonic() - began, 1), "good": not run.faults}
    others_did = dict(sorted(others.done.items()))
    return {**found, **dict(sorted(run.counts.items())), "meanwhile": stirring.times, **others_did} | {
        "faults": run.faults
    }


def _prepare(lake: UpkeepTable, seed: int) -> None:
    """Every second seed by copying instead of delete files; every third one may leave the number out."""
    table = lake.table
    if seed % 2:
        modes = {f"write.{each}.mode": "copy-on-write" for each in ("delete", "update", "merge")}
        table.transaction().set_properties(modes).commit_transaction()
        table = lake.table
    if seed % 3 == 0:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.update_column(names.SEQ, required=False)


def main() -> int:
    options = argparse.ArgumentParser(prog="script/soak foreign", description=__doc__)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--without-spark", action="store_true", help="only what PyIceberg can do")
    options.add_argument("--keep", action="store_true", help="keep the folder")
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-foreign-"))
    spark_provider = None if given.without_spark else provider_for(folder)
    results = []
    try:
        for seed in range(given.first, given.first + given.seeds):
            result = soak(seed, given.steps, folder, spark_provider or NoSpark())
            results.append(result)
            print(f"seed {seed}: {'good' if result['good'] else 'BAD'} {json.dumps(result)}", flush=True)
            Path("soak-results").mkdir(exist_ok=True)
            Path(f"soak-results/foreign-{given.steps}.json").write_text(json.dumps(results, indent=1))
    finally:
        if spark_provider is not None:
            spark_provider.close()
    bad = [result["seed"] for result in results if not result["good"]]
    if bad or given.keep:
        print(f"kept: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    rows = sum(result["whole_rows"] + result["bits_rows"] for result in results)
    print(json.dumps({"seeds": len(results), "rows": rows, "bad": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
