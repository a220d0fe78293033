"""The processes of the lake's soak: each runs its pipelines again and again until it is killed or told to finish.

All but the merger and the keeper move rows in their own process, so that many fit on a small machine; those two
start Spark. What each passes through is counted in a file of its own.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.messages import Log, Message, StreamStatus
from penstock.engine import Engine, Settings
from penstock.errors import PipelineHeld
from penstock.lake.lake import Lake
from penstock.lake.metadata import read_state
from penstock.lake.options import LakeOptions
from penstock.links.processes import has_ended, this_process
from penstock.links.spark import SparkOptions, SparkSessionProvider
from penstock.ports import Context, NoSpark, Sink, Source, Spark
from penstock.sinks import files as files_sink
from penstock.sinks import lake as lake_sink
from penstock.sources import lake as lake_source
from penstock.store import open_store
from penstock.wiring import SystemClock
from tests.harness.doubles import LoopMover
from tests.plain_spark import FOR_SMALL_TABLES
from tests.soak.lake_feed import CHANGES, LOG, Feed, FeedSource

WRITERS = ("w1", "w2", "w3", "w4")
READERS = ("files", "copy", "versions")
#: upkeep that needs no Spark, beside the keeper, which does all of it
SWEEPER = "sweeper"
#: those that start a JVM
HEAVY = ("merger", "keeper")
ROLES = (*WRITERS, *READERS, SWEEPER, *HEAVY)
PIPELINES = (*WRITERS, *READERS, "merger", "again")
#: the tables, by the namespace that each lies in
EVENTS, ITEMS = "events", "items"
#: how long one that was killed holds others back; a minute as for everyone would be most of a short soak
TURN_SECONDS = 4.0
LEASE_SECONDS = 3.0
#: seconds between two runs of a process
PAUSE, HEAVY_PAUSE = (0.02, 0.3), (0.2, 2.0)
#: a process kills itself at a point as often as this, so that narrow places are hit too
SELF = 0.008


def place(folder: Path, namespace: str) -> Lake:
    return Lake.from_options(LakeOptions(namespace=namespace), folder=str(folder), pipeline="soak")


def feed(folder: Path, role: str) -> Feed:
    if role == "merger":
        return Feed(folder / "merger.feed", CHANGES, changes=True)
    return Feed(folder / f"{role}.feed", LOG)


@dataclass(frozen=True)
class Diary:
    """What a process passes through and how its runs end, a line each; a line is written at once or not at all."""

    folder: Path
    role: str

    def note(self, **about: Any) -> None:
        line = json.dumps({"role": self.role, "pid": os.getpid(), "at": round(time.time(), 3), **about})
        handle = os.open(self.folder / f"{self.role}.diary", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line.encode() + b"\n")
        os.close(handle)


class Fated:
    """The probe: counts the points, and at a few of them the process dies."""

    def __init__(self, diary: Diary, chance: random.Random) -> None:
        self._diary, self._chance = diary, chance

    def at(self, point: str, **about: Any) -> None:
        if point.startswith("lake.") or point == "gate.committed":
            self._diary.note(point=point)
        if self._chance.random() < SELF and not finishing(self._diary.folder, self._diary.role):
            self._diary.note(killed=point)
            os.kill(os.getpid(), signal.SIGKILL)


def finishing(folder: Path, role: str) -> bool:
    return (folder / f"{role}.finish").exists()


class Worker:
    """One process."""

    def __init__(self, folder: Path, role: str, seed: int) -> None:
        self.folder, self.role = folder, role
        self.chance = random.Random(seed)
        self.diary = Diary(folder, role)
        self.probe = Fated(self.diary, self.chance)
        self.spark: Spark = NoSpark()
        if role in HEAVY:
            self.spark = SparkSessionProvider(SparkOptions(master="local[1,3]", config=FOR_SMALL_TABLES))

    def live(self) -> bool:
        """Run until told to finish; whether the last run was whole."""
        while True:
            last = finishing(self.folder, self.role)
            good = True
            for name, work in self._works().items():
                good = self._reported(name, work) and good
            if last:
                return good
            parent = multiprocessing.parent_process()
            if parent is not None and not parent.is_alive():
                return False
            time.sleep(self.chance.uniform(*(HEAVY_PAUSE if self.role in HEAVY else PAUSE)))

    def _works(self) -> dict[str, Callable[[], Any]]:
        match self.role:
            case "files":
                return {"files": lambda: self._read("files", "log", EVENTS, self._files())}
            case "copy":
                return {"copy": lambda: self._read("copy", "log", EVENTS, self._lake("copy", "copy", EVENTS))}
            case "versions":
                sink = self._lake("versions", "versions", ITEMS)
                return {"versions": lambda: self._read("versions", "keyed", ITEMS, sink)}
            case "merger":
                again = self._lake("again", "again", ITEMS, mode="merge")
                return {"merger": self._merge, "again": lambda: self._read("again", "keyed", ITEMS, again)}
            case "keeper" | "sweeper":
                from tests.soak.lake_keeper import ALL, WITHOUT_SPARK, keep

                steps = ALL if self.role == "keeper" else WITHOUT_SPARK
                return {self.role: lambda: keep(self.folder, steps, self.spark, self.probe, self.diary.note)}
            case _:
                return {self.role: self._write}

    def _reported(self, name: str, work: Callable[[], bool]) -> bool:
        try:
            return work()
        except Exception as error:  # noqa: BLE001 (a run must never raise: the soak reports it as bad)
            self.diary.note(bad=name, reason=f"raised {type(error).__name__}: {error}", trace=traceback.format_exc())
            return False

    # ------------------------------------------------------------ pipelines

    def _write(self) -> bool:
        return self._run(
            self.role, FeedSource(EVENTS, feed(self.folder, self.role)), self._lake(self.role, "log", EVENTS)
        )

    def _merge(self) -> bool:
        source = FeedSource(ITEMS, feed(self.folder, self.role), key=("key",))
        return self._run(self.role, source, self._lake("merger", "keyed", ITEMS, mode="merge"))

    def _read(self, pipeline: str, namespace: str, table: str, sink: Sink) -> bool:
        if read_state(place(self.folder, namespace), table) is None:
            return not finishing(self.folder, self.role)
        options = lake_source.Options(namespace=namespace)
        source = lake_source.build(options, {table: lake_source.StreamOptions()}, self._context(pipeline))
        return self._run(pipeline, source, sink)

    def _lake(self, pipeline: str, namespace: str, table: str, mode: str = "append") -> Sink:
        options = lake_sink.StreamOptions.model_validate({"mode": mode})
        return lake_sink.build(lake_sink.Options(namespace=namespace), {table: options}, self._context(pipeline))

    def _files(self) -> Sink:
        return files_sink.build(files_sink.Options(directory="out"), {}, self._context("files"))

    def _context(self, pipeline: str) -> Context:
        return Context(pipeline, str(self.folder), self.probe, spark=self.spark, mover=LoopMover)

    def _run(self, pipeline: str, source: Source, sink: Sink) -> bool:
        """One run; anything but a whole one is noted."""
        said: list[str] = []

        def heard(message: Message) -> None:
            if isinstance(message, StreamStatus) and message.reason:
                said.append(message.reason)
            elif isinstance(message, Log):
                said.append(message.text)

        while True:
            said.clear()
            with contextlib.closing(open_store(f"{pipeline}.db", folder=str(self.folder))) as store:
                eof = Engine(
                    pipeline,
                    source=source,
                    sink=sink,
                    store=store,
                    mover=LoopMover,
                    clock=SystemClock(),
                    probe=self.probe,
                    owner=this_process(),
                    gone=has_ended,
                    emit=heard,
                    settings=Settings(lease_seconds=LEASE_SECONDS, slice_bytes=1 << 20),
                ).run()
            if eof.status == "complete":
                return True
            waits = eof.exit_code == PipelineHeld.exit_code
            about = {"waits" if waits else "bad": pipeline}
            self.diary.note(**about, status=eof.status, reason=eof.reason, said=said[-3:])
            if not waits:
                return False
            # The process before, not buried yet, or the one that came after a freeze.
            time.sleep(0.2)


def begin(folder: str, role: str, seed: int) -> None:
    """What a process does from its birth."""
    from penstock.lake import landing
    from penstock.lake.upkeep import job

    landing.TURN_SECONDS = job.TURN_SECONDS = TURN_SECONDS
    with open(Path(folder, f"{role}.log"), "ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    worker = Worker(Path(folder), role, seed)
    if role in HEAVY:
        at = place(Path(folder), "log")
        worker.spark.require(at.spark_settings(), at.spark_packages())
        worker.spark.session()
    Path(folder, f"{role}.{os.getpid()}.ready").touch()
    good = worker.live()
    worker.diary.note(finished=good)
    close = getattr(worker.spark, "close", None)
    if close is not None:
        close()
    sys.stdout.flush()
    os._exit(0 if good else 1)
