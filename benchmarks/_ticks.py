"""A pipeline of one stream in one process, a run a minute by a clock of its own: real engine, store, lake and upkeep.

Rows come from memory and are moved by a loop in this process, so nothing of Spark is measured. Upkeep runs once a day
with its defaults, without compaction, which is Spark's: so the table has a file for every tick. Ticks that are not
measured go the short way: the same calls of the store and the same landing as a run's, without the engine around them,
and with data files that have an entry in the table but no rows on disk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks._lake import alone
from pyiceberg.manifest import DataFile
from tests.harness.doubles import Clock, LoopMover, MemorySource, Rows

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.limits import Limits
from penstock.core.marks import Mark
from penstock.core.messages import Eof
from penstock.core.slices import Slice, following
from penstock.engine import Engine, Settings
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.landing import Landing, StagedSlice
from penstock.lake.metadata import read_state
from penstock.lake.tables import load_table
from penstock.lake.upkeep.job import UpkeepJob
from penstock.lake.upkeep.run import STEPS, run_upkeep
from penstock.ports import Context, NoProbe, NoSpark, Owner, Store
from penstock.sinks import lake
from penstock.store import open_store

STREAM, PIPELINE = "orders", "shop"
MINUTE = timedelta(minutes=1)
#: where PyIceberg keeps a data file's path among its values
FILE_PATH = 1
#: ticks between two upkeeps
DAY = 1440
#: all of them but the one that needs Spark
WITHOUT_SPARK = [step for step in STEPS if step != "compaction"]
#: columns that the stream's content lists beside those that it ships: 10 kB, as a wide table has it
WIDE: Document = {f"about_{number}": "x" * 150 for number in range(60)}


class WideSource(MemorySource):
    """The source in memory, with the content of a wide table."""

    def content(self, stream: str) -> Content:
        return replace(super().content(stream), private=WIDE)


@contextmanager
def time_of(clock: Clock) -> Iterator[None]:
    """Let PyIceberg stamp its snapshots by the clock."""
    real = time.time
    time.time = lambda: clock.now().timestamp()
    try:
        yield
    finally:
        time.time = real


@dataclass
class Ticks:
    """One pipeline, its store and its table in one folder."""

    folder: Path
    rows: Rows = field(default_factory=Rows)
    clock: Clock = field(default_factory=Clock)
    #: ticks so far
    count: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._options = lake.Options(namespace="shop")
        self._place = Lake.from_options(self._options, folder=str(self.folder), pipeline=PIPELINE)

    def tick(self) -> float:
        """A row more, a minute later, and a run that moves it; its CPU seconds."""
        self.rows.arrive(self.count)
        self.count += 1
        self.clock.moment += MINUTE
        spent, eof = self._run()
        if (eof.exit_code, eof.request_progress["rows"]) != (0, 1):
            raise SystemExit(f"tick {self.count} was to move 1 row: {eof}")
        if self.count % DAY == 0:
            self.upkeep()
        return spent

    def pass_ticks(self, many: int) -> None:
        """As many ticks, the short way. There must have been a measured one before."""
        with closing(open_store("store.db", folder=str(self.folder))) as store, time_of(self.clock):
            template = self._first_file()
            for _ in range(many):
                self._pass_tick(store, template)
                if self.count % DAY == 0:
                    self.upkeep()

    def _pass_tick(self, store: Store, template: DataFile) -> None:
        self.rows.arrive(self.count)
        self.count += 1
        self.clock.moment += MINUTE
        now, run = self.clock.now(), f"run {self.count}"
        lease = store.acquire(PIPELINE, Owner(run, "here", 1), now=now, ttl=30, gone=lambda _: True)
        store.start_run(lease, run, now=now)
        state = store.state(PIPELINE, STREAM)
        assert state.last is not None
        mark = Mark.of({"place": self.count})
        content = Content.parse(state.last.content)
        slice_ = following(state.last, pipeline=PIPELINE, stream=STREAM, upto=mark, content=content)
        store.intend(lease, slice_, now=now, run=run)
        self._land(slice_, template)
        store.advance(lease, slice_, rows=1, bytes_=24, now=now, run=run)
        progress = {STREAM: json.dumps({"rows": 1, "slices": 1, "bytes": 24, "mark": mark.text, "version": self.count})}
        store.save_progress(lease, run, totals='{"rows": 1}', streams=progress)
        store.end_run(lease, run, now=now, status="complete", has_more=False, totals='{"rows": 1}', streams=progress)
        store.release(lease)

    def _land(self, slice_: Slice, template: DataFile) -> None:
        state = read_state(self._place, STREAM)
        assert state is not None
        number = state.head + 1
        attempt = f"{self.count:012d}"
        name = f"{names.file_stem(PIPELINE, STREAM, slice_.number, attempt)}-0.parquet"
        path = f"{template.file_path.rpartition('/')[0]}/{name}"
        Path(path.removeprefix("file://")).touch()
        file = copy(template)
        file._data = [*template._data[:FILE_PATH], path, *template._data[FILE_PATH + 1 :]]
        landed = StagedSlice(files=[file], rows=1, bytes=24, start=number, last=number, restamp=alone)
        rules = self._options.upkeep.snapshots.limits
        Landing(self._place, STREAM, slice_, attempt, NoProbe(), limits=rules).land(landed)

    def _first_file(self) -> DataFile:
        table = load_table(self._place, STREAM)
        assert table is not None
        return next(iter(table.scan().plan_files())).file

    def idle(self) -> float:
        """A run with nothing new; its CPU seconds."""
        self.clock.moment += MINUTE
        spent, eof = self._run()
        if (eof.exit_code, eof.request_progress["rows"]) != (0, 0):
            raise SystemExit(f"the run was to move nothing: {eof}")
        return spent

    def upkeep(self) -> None:
        work = UpkeepJob(
            lake=self._place,
            table=STREAM,
            options=self._options.upkeep,
            spark=NoSpark(),
            mover=LoopMover,
            probe=NoProbe(),
            now=self.clock.now(),
        )
        with time_of(self.clock):
            for done in run_upkeep(work, WITHOUT_SPARK):
                if done.error is not None:
                    raise SystemExit(f"upkeep failed: {done.error}")

    def _run(self) -> tuple[float, Eof]:
        """A run with a sink, a source and a store of its own, as each process has them."""
        begun = time.process_time()
        store = open_store("store.db", folder=str(self.folder))
        context = Context(PIPELINE, str(self.folder), NoProbe())
        engine = Engine(
            PIPELINE,
            source=WideSource({STREAM: self.rows}, most=1),
            sink=lake.build(self._options, {}, context),
            store=store,
            mover=LoopMover,
            clock=self.clock,
            probe=NoProbe(),
            owner=Owner(f"tick {self.count}", "here", 1),
            gone=lambda _: True,
            emit=lambda _: None,
            settings=Settings(heartbeat=False),
        )
        with time_of(self.clock):
            eof = engine.run(Limits())
        store.close()
        return time.process_time() - begun, eof

    # ------------------------------------------------------------ what it takes

    @property
    def store_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("store.db*"))

    @property
    def metadata_bytes(self) -> int:
        """The table's document, which every run reads."""
        table = load_table(self._place, STREAM)
        assert table is not None
        return Path(table.metadata_location.removeprefix("file://")).stat().st_size

    def facts(self) -> dict[str, Any]:
        return {"ticks": self.count, "store_bytes": self.store_bytes, "metadata_bytes": self.metadata_bytes}
