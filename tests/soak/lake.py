"""The lake's fault run: writers, readers, merges and upkeep on the same tables, each process killed again and again.

    script/soak lake [--seeds 10] [--first 1] [--seconds 300]

Four processes append to one log; two read it, into files and into another table; a fifth merges changes into a keyed
table, which is copied twice; a sixth compacts, removes and expires. At the end everything runs once without faults and
is compared with what the writers' sources hold. Writes soak-results/lake-<seconds>.json and exits with 1 if anything
was lost, doubled, out of order or failed; the folder of a seed that failed is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from sqlalchemy.exc import OperationalError

from penstock.errors import StreamFailed
from penstock.lake.readers import register
from penstock.store import open_store
from tests.soak.lake_checks import SEQ, Findings, check_keyed, check_log, open_table
from tests.soak.lake_feed import some_changes, some_log_rows
from tests.soak.lake_worker import EVENTS, HEAVY, PIPELINES, READERS, ROLES, SWEEPER, WRITERS, begin, feed, place

#: imported once, so that a process that is killed every few seconds does not spend its life on imports
PRELOADED = (
    "penstock.engine",
    "penstock.lake.numbering",
    "penstock.lake.landing",
    "penstock.lake.merging",
    "penstock.lake.planning",
    "penstock.lake.reading",
    "penstock.lake.stamping",
    "penstock.lake.upkeep.expiry",
    "penstock.lake.upkeep.orphans",
    "penstock.lake.upkeep.retention",
    "penstock.lake.writing",
    "penstock.links.spark.jars",
    "penstock.sinks.files.formats",
    "penstock.sinks.lake.table_setup",
    "penstock.sources.lake",
    "penstock.store.sqlite",
    "tests.harness.doubles",
    "pyiceberg.catalog.sql",
    "pyiceberg.avro.decoder_fast",
    "pyiceberg.io.pyarrow",
    "sqlalchemy.dialects.sqlite",
    "tests.soak.lake_checks",
    "tests.soak.lake_worker",
)
#: seconds that a process lives once it is at work; how often it does not live to see that
LIFE, HEAVY_LIFE, EARLY = (0.5, 5.0), (2.0, 20.0), 0.1
#: an upkeep of three tables takes longer than a slice
LIVES = {SWEEPER: (1.0, 10.0), **dict.fromkeys(HEAVY, HEAVY_LIFE)}
#: a process lives up to so many times longer if it had less than this part of a processor
PATIENT, SHARE = 2.5, 0.15
#: how often a process is frozen and replaced instead of killed, and for how long
FROZEN, FREEZE = 0.12, (3.5, 7.0)
#: the last part of the time, in which Spark is not killed any more
SPARED = 0.2
KEYS = 300
#: seconds after which one that should finish hangs
PATIENCE = 400.0


@dataclass
class Member:
    """A process and when its end comes."""

    role: str
    process: ForkServerProcess
    folder: Path
    #: seconds that it has
    life: float
    #: when they began; None: it is not at work yet
    began: float | None

    def due(self, now: float) -> bool:
        """Whether its time has come; on a busy machine it is given a while more, or it would never come to work."""
        if self.began is None and (self.folder / f"{self.role}.{self.pid}.ready").exists():
            self.began = now
        lived = now - self.began if self.began is not None else 0.0
        return lived >= self.life and (lived >= PATIENT * self.life or _worked(self.pid) >= SHARE * self.life)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def signal(self, number: int) -> bool:
        """Send it a signal; False: it has ended, perhaps without its parent's having heard of it yet."""
        if not self.process.is_alive():
            return False  # its number may be another's by now
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.join()


def _worked(pid: int) -> float:
    """Seconds of a processor that a process has had; many, if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Crew:
    """The processes: started, frozen, killed by their ids, started again."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        self.members: dict[str, Member] = {}
        #: woken at the first time, killed at the second
        self.frozen: list[tuple[Member, float, float]] = []
        self.count: Counter[str] = Counter()
        self.faults: list[str] = []

    def start(self, role: str) -> None:
        seed = self.chance.randrange(1 << 30)
        process = self._context.Process(target=begin, args=(str(self.folder), role, seed), name=role, daemon=True)
        process.start()
        life = self.chance.uniform(*LIVES.get(role, LIFE))
        began = time.monotonic() if self.chance.random() < EARLY else None
        self.members[role] = Member(role, process, self.folder, life, began)

    def trouble(self, spared: Sequence[str] = ()) -> None:
        """Whoever's time has come ends, and is followed by another."""
        now = time.monotonic()
        for role, member in list(self.members.items()):
            if member.process.is_alive() and (role in spared or not member.due(now)):
                continue
            self._end(member, now)
            self.start(role)
        for entry in list(self.frozen):
            member, wake, end = entry
            if now >= wake:
                member.signal(signal.SIGCONT)
            if now >= end:
                member.kill()
                self.frozen.remove(entry)

    def _end(self, member: Member, now: float) -> None:
        if not member.signal(0):
            self._buried(member)
        elif member.role not in HEAVY and self.chance.random() < FROZEN and member.signal(signal.SIGSTOP):
            wake = now + self.chance.uniform(*FREEZE)
            self.frozen.append((member, wake, wake + self.chance.uniform(0.1, 2.0)))
            self.count["freezes"] += 1
        else:
            member.kill()
            self.count["heavy_kills" if member.role in HEAVY else "kills"] += 1

    def _buried(self, member: Member) -> None:
        """One that has ended without us: only by its own hand."""
        member.process.join()
        if member.process.exitcode == -signal.SIGKILL:
            self.count["own_kills"] += 1
        else:
            self.faults.append(f"{member.role} ended with {member.process.exitcode}: see {member.role}.log")

    def finish(self, roles: Sequence[str]) -> None:
        """Without faults from now on: each of these runs once more, to the end."""
        for role in roles:
            (self.folder / f"{role}.finish").touch()
            if not self.members[role].process.is_alive():
                self._buried(self.members[role])
                self.start(role)
        for role in roles:
            member = self.members[role]
            member.process.join(PATIENCE)
            # One that was about to kill itself may still have done so.
            if member.process.exitcode == -signal.SIGKILL:
                self.start(role)
                member = self.members[role]
                member.process.join(PATIENCE)
            if member.process.exitcode != 0:
                self.faults.append(f"{role} did not finish: {member.process.exitcode}")

    def rest(self) -> None:
        """End what is frozen; nobody is killed after this."""
        for member, _, _ in self.frozen:
            member.kill()
        self.frozen.clear()

    def end(self) -> None:
        self.rest()
        for member in self.members.values():
            member.kill()


class Poller:
    """One who reads the log by its head alone, as anyone may, and keeps each row that it was shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = -1
        self.rows: list[pa.Table] = []
        self.faults: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._live, name="poller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> pa.Table:
        self._end.set()
        self._thread.join(PATIENCE)
        self._poll()
        return pa.concat_tables(self.rows)

    def _live(self) -> None:
        while not self._end.wait(0.25):
            self._poll()

    def _poll(self) -> None:
        if not (self.folder / "lake" / "catalog.db").exists():
            return
        try:
            table = open_table(self.folder, "log", EVENTS)
        except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError, OperationalError):
            return  # not there yet, being made by another process, or moved on while we looked
        head = int(table.properties["penstock.head"])
        if head <= self.seen:
            return
        try:
            if self.seen < 0:
                # First, so that nothing is removed that was not seen.
                self._tell(0)
                self.seen = 0
            chosen = f"{SEQ} > {self.seen} and {SEQ} <= {head}"
            self.rows.append(table.scan(row_filter=chosen, selected_fields=("writer", "place", SEQ)).to_arrow())
        except FileNotFoundError as error:
            self.faults.append(f"the poller: {error}")
            return
        self.seen = head
        self._tell(head)

    def _tell(self, mark: int) -> None:
        with contextlib.suppress(StreamFailed):
            register(place(self.folder, "log"), EVENTS, "poller", EVENTS, mark)


def soak(seed: int, seconds: float, folder: Path) -> dict[str, Any]:
    """One seed in a folder of its own; `good` tells whether everything held."""
    chance, began = random.Random(seed), time.monotonic()
    feeds = {role: feed(folder, role).make() for role in (*WRITERS, "merger")}
    for pipeline in PIPELINES:
        # Made here, not by each process in a hurry.
        open_store(f"{pipeline}.db", folder=str(folder)).close()
    crew, poller = Crew(folder, chance), Poller(folder)
    try:
        for role in ROLES:
            crew.start(role)
        poller.start()
        changes = 0
        while time.monotonic() - began < seconds:
            for number, role in enumerate(WRITERS, 1):
                if chance.random() < 0.3:
                    feeds[role].arrive(some_log_rows(chance, number))
            if chance.random() < 0.3:
                feeds["merger"].arrive(some_changes(chance, changes, KEYS))
                changes += 40
            # Towards the end Spark is left running: everything that follows would only wait for it to start.
            crew.trouble(spared=HEAVY if began + seconds - time.monotonic() < SPARED * seconds else ())
            time.sleep(0.1)
        crew.rest()
        crew.finish((*WRITERS, "merger"))
        crew.finish((*READERS, SWEEPER, "keeper"))
        polled = poller.finish()
    finally:
        crew.end()
    findings = Findings(faults=crew.faults + poller.faults)
    check_log(folder, {role: feeds[role] for role in WRITERS}, polled, findings)
    check_keyed(folder, feeds["merger"], findings)
    events, bad = diaries(folder)
    findings.faults += bad
    took = round(time.monotonic() - began, 1)
    counts = {**findings.counts, **crew.count, **events}
    return {"seed": seed, "seconds": seconds, "took": took, "good": not findings.faults, **counts} | {
        "faults": findings.faults
    }


def diaries(folder: Path) -> tuple[dict[str, int], list[str]]:
    """What the processes wrote down: how often each thing happened, and runs that failed."""
    count: Counter[str] = Counter()
    bad: list[str] = []
    for path in sorted(folder.glob("*.diary")):
        for line in path.read_text().splitlines():
            said = json.loads(line)
            if "point" in said:
                count[said["point"]] += 1
            if "waits" in said:
                count["waits"] += 1
            if "bad" in said:
                bad.append(f"{said['bad']}: {said.get('reason')} {said.get('said', '')}")
            if "is_lost_race" in said:
                count[f"undone_{said['is_lost_race']}"] += 1
            for word in ("compacted", "expired", "removed", "purged", "orphans"):
                if word in said:
                    count[word] += int(said[word])
                    count[f"{word}_times"] += 1
    return dict(sorted(count.items())), bad


def main() -> int:
    options = argparse.ArgumentParser(prog="script/soak lake", description=__doc__)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--seconds", type=float, default=300.0)
    options.add_argument("--keep", action="store_true", help="keep every seed's folder")
    given = options.parse_args()
    results = []
    for seed in range(given.first, given.first + given.seeds):
        folder = Path(tempfile.mkdtemp(prefix=f"soak-lake-{seed}-"))
        result = soak(seed, given.seconds, folder)
        results.append(result)
        print(f"seed {seed}: {'good' if result['good'] else 'BAD'} {json.dumps(result)}", flush=True)
        if result["good"] and not given.keep:
            shutil.rmtree(folder)
        else:
            print(f"kept: {folder}", flush=True)
        Path("soak-results").mkdir(exist_ok=True)
        Path(f"soak-results/lake-{given.seconds:g}s.json").write_text(json.dumps(results, indent=1))
    bad = [result["seed"] for result in results if not result["good"]]
    print(json.dumps({"seeds": len(results), "rows": sum(r["rows"] for r in results), "bad": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
