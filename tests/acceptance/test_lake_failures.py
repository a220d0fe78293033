"""The eight ways in which an earlier system of this kind failed, each as a test.

`python -m tests.acceptance.lake_guards` takes each guard out of the code and shows that its test then fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.lake.upkeep.job import StepResult, UpkeepJob
from penstock.lake.upkeep.options import RetentionOptions, UpkeepOptions
from penstock.lake.upkeep.retention import retain
from penstock.ports import NoProbe, NoSpark
from tests.harness.doubles import LoopMover
from tests.harness.faults import Command, Outcome, Running
from tests.sources.lake.lakes import NAMESPACE, LakeWorld, orders
from tests.sources.lake.opened import opened

FILE = """\
store: {store}
pipelines:
  {name}:
    source: {{type: lake, namespace: {namespace}}}
    sink: {sink}
    streams:
      orders: {stream}
"""


@dataclass
class Export:
    """A pipeline from a table of a lake, run by the real command."""

    lake: LakeWorld
    name: str = "out"
    stream: dict[str, Any] = field(default_factory=dict)
    namespace: str = NAMESPACE
    #: a table for its sink; None: files of its own
    into: str | None = None
    store: str = ".penstock/store.db"

    def __post_init__(self) -> None:
        files = {"type": "files", "directory": f"out-{self.name}", "format": "ndjson"}
        sink = {"type": "lake", "namespace": self.into} if self.into else files
        Path(self.file).write_text(
            FILE.format(
                store=self.store,
                name=self.name,
                namespace=self.namespace,
                sink=json.dumps(sink),
                stream=json.dumps(self.stream),
            )
        )
        place = self.lake.folder / f"command-{self.name}-{Path(self.store).stem}"
        place.mkdir()
        self.command = Command(place)

    @property
    def file(self) -> str:
        return str(self.lake.folder / f"{self.name}-{Path(self.store).stem}.yaml")

    def run(self, *words: str) -> Outcome:
        return self.command.run("run", self.file, *words)

    def tick(self, *words: str) -> None:
        done = self.run(*words)
        assert done.code == 0, done.err

    @contextmanager
    def halted(self, point: str) -> Iterator[Running]:
        """A run that waits at a point; ended with the block, if it still waits."""
        running = self.command.start("run", self.file, point=point)
        try:
            running.reached()
            yield running
        finally:
            if running.process.poll() is None:
                running.kill()

    @property
    def slices(self) -> list[list[int]]:
        """The ids of every file that readers see, in the order of their slices."""
        folder = self.lake.folder / f"out-{self.name}" / "orders"
        paths = sorted(folder.iterdir()) if folder.exists() else []
        return [[json.loads(line)["id"] for line in path.read_text().splitlines()] for path in paths]

    @property
    def delivered(self) -> list[int]:
        return [id_ for ids in self.slices for id_ in ids]


@pytest.fixture
def lake(tmp_path: Path) -> LakeWorld:
    return LakeWorld(tmp_path)


def once(found: list[int], wanted: range) -> bool:
    return sorted(found) == list(wanted)


def test_rows_skipped_because_the_scan_was_not_in_order(lake: LakeWorld) -> None:
    """1. Files hold numbers from all over, and a slice ends in the middle of them: its mark passes nothing unread."""
    lake.land(orders(1, 1000))
    lake.shuffle(7)
    export = Export(lake)
    for done in range(1, 3):
        export.tick("--max-rows", "130")
        assert [len(ids) for ids in export.slices] == [130] * done, "a slice is the rows with the least numbers"
    export.tick()
    assert export.delivered == list(range(1, 1001)), "every slice in order, nothing skipped, nothing twice"
    lake.land(orders(1001, 1010))
    lake.shuffle(3)
    export.tick()
    assert export.delivered == list(range(1, 1011))


def test_legacy_rows_exported_again_at_every_tick(lake: LakeWorld) -> None:
    """2. A table that penstock did not write, then with both kinds of rows: each is exported once, to each sink."""
    lake.make(orders(1, 1))
    lake.append(orders(1, 40))
    lake.append(orders(41, 50))
    one, two = Export(lake, "one", {"adopt": True}), Export(lake, "two", {"adopt": True})
    one.tick()
    assert once(one.delivered, range(1, 51))
    lake.land(orders(51, 60), into_existing=True)
    lake.append(orders(61, 70))
    assert None in lake.numbers(), "some rows have a number and some have none"
    for tick in range(2):
        one.tick()
        two.tick()
        assert once(one.delivered, range(1, 71 + tick))
        assert once(two.delivered, range(1, 71 + tick))
        lake.append(orders(71 + tick, 71 + tick))
    one.tick()
    before = one.slices
    one.tick()
    assert one.slices == before


def test_writers_that_bypass_the_stamp(lake: LakeWorld) -> None:
    """3. Rows without a number, and rows with numbers of another table: numbered before any reader passes them."""
    lake.make(orders(1, 1))
    lake.append(orders(1, 10))
    adopted = Export(lake, "adopted", {"adopt": True})
    adopted.tick()
    lake.append(orders(11, 15))  # no numbers at all
    adopted.tick()
    assert once(adopted.delivered, range(1, 16))

    ours = LakeWorld(lake.folder)
    ours.land(orders(1, 20), table="made")
    export = Export(lake, "export", {"table": "made"})
    export.tick()
    copied = lake.table().scan().to_arrow()  # numbers 1 to 15, which the reader has passed
    lake.append(copied.set_column(0, "id", orders(21, 35).column("id")), "made")
    ours.land(orders(36, 40), table="made")
    export.tick()
    assert once(export.delivered, range(1, 41))
    numbers = lake.numbers("made")
    assert len(set(numbers)) == len(numbers) == 40
    assert None not in numbers


def in_commit_order(lake: LakeWorld, name: str) -> bool:
    """Whether every snapshot brought only numbers above all that were there before it."""
    table = lake.catalog().load_table(name)
    line = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    heads = [
        (int(snapshot.summary["penstock.head"] or 0), table.scan(snapshot_id=snapshot.snapshot_id).to_arrow())
        for snapshot in line
        if snapshot.summary is not None
    ]
    for (head, before), (_, after) in pairwise(heads):
        known = set(before.column("_ingest_seq").to_pylist())
        new = set(after.column("_ingest_seq").to_pylist()) - known
        if len(known) != before.num_rows or any(number <= head for number in new):
            return False
    return True


def test_two_processes_handing_out_the_same_numbers(lake: LakeWorld) -> None:
    """4. Two writer processes land in one table; whoever reads by its head, at any time, misses nothing."""
    writers = {}
    for index, name in enumerate(("left", "right")):
        side = LakeWorld(lake.folder, name)
        side.land(orders(1000 * index + 1, 1000 * index + 40))
        writers[name] = (side, Export(lake, name, namespace=name, into="both"))
    poll = Export(lake, "poll", namespace="both")
    (left, leftwards), (right, rightwards) = writers["left"], writers["right"]
    leftwards.tick()
    poll.tick()
    # Both have stamped from the same head; the second to commit must not use the numbers of the first.
    left.land(orders(41, 60))
    with leftwards.halted("lake.prepared") as halted:
        rightwards.tick()
        poll.tick()
        halted.go()
        assert halted.end().code == 0
    poll.tick()
    # And as it comes.
    for step in range(2):
        left.land(orders(61 + 10 * step, 70 + 10 * step))
        right.land(orders(1041 + 10 * step, 1050 + 10 * step))
        running = [export.command.start("run", export.file) for _, export in writers.values()]
        poll.tick()
        for each in running:
            done = each.end()
            assert done.code == 0, done.err
    poll.tick()
    wanted = [*range(1, 81), *range(1001, 1061)]
    assert sorted(poll.delivered) == wanted
    assert in_commit_order(lake, "both.orders")


def test_a_mark_shared_by_two_instances_of_a_sink(lake: LakeWorld) -> None:
    """5. Two pipelines read one table, each by its own mark; one name used twice is held back, and never skips."""
    lake.land(orders(1, 100))
    one, two = Export(lake, "one"), Export(lake, "two")
    one.tick()
    two.tick("--max-rows", "30")
    lake.land(orders(101, 110))
    one.tick()
    assert (len(one.delivered), len(two.delivered)) == (110, 30)
    assert {reader.pipeline: reader.mark for reader in lake.state().readers()} == {"one": 110, "two": 30}
    two.tick()
    assert two.delivered == one.delivered == list(range(1, 111))

    # Two pipelines into one table: each has its own place in it.
    first, second = Export(lake, "first", into="both"), Export(lake, "second", into="both")
    first.tick()
    second.tick()
    lake.land(orders(111, 120))
    first.tick()
    second.tick()
    found = lake.catalog().load_table("both.orders").scan().to_arrow().column("id").to_pylist()
    assert sorted(found) == sorted([*range(1, 121)] * 2)

    # The same name at the same time: one waits. The same name with another store: it stops.
    with one.halted("gate.moved") as running:
        held = one.run()
        assert held.code == 4
        assert f"process {running.process.pid}" in held.err
        running.go()
        assert running.end().code == 0
    stopped = Export(lake, "one", store="second.db").run()
    assert stopped.code == 1
    assert "The store was lost, or this is a second store under the same pipeline name" in stopped.err
    assert one.delivered == list(range(1, 121))


def test_reads_that_grow_with_the_table(lake: LakeWorld) -> None:
    """6. A hundred files, one new: one data file is opened, seen from outside."""
    for first in range(1, 101, 20):
        lake.land(*(orders(number, number) for number in range(first, first + 20)))
    export = Export(lake)
    data = lake.folder / "lake/shop/orders/data"
    with opened(data) as everything:
        export.tick()
    assert len(everything) == 100, "the instrument sees what is opened"
    lake.land(orders(101, 101))
    with opened(data) as seen:
        export.tick()
    assert export.delivered == list(range(1, 102))
    assert len(seen) == 1
    with opened(data) as idle:
        export.tick()
    assert idle == []


@pytest.mark.parametrize("point", ["gate.intended", "gate.moved", "gate.committed"])
def test_a_retried_unit_that_grows(lake: LakeWorld, point: str) -> None:
    """7. A slice is intended, the process killed, rows arrive: the retry has the same bounds and the same rows."""
    lake.land(orders(1, 50))
    export = Export(lake)
    export.command.kill_at(point, "run", export.file)
    before = {path.name for path in (lake.folder / "out-out/orders").iterdir()} if point == "gate.committed" else set()
    lake.land(orders(51, 60))
    lake.append(lake.table().scan("id <= 5").to_arrow().set_column(0, "id", orders(61, 65).column("id")))
    export.tick()
    assert [sorted(ids) for ids in export.slices] == [list(range(1, 51)), list(range(51, 66))]
    assert before <= {path.name for path in (lake.folder / "out-out/orders").iterdir()}


def kept(lake: LakeWorld, *, force: bool = False) -> StepResult:
    """Retention that wants to keep almost nothing."""
    options = UpkeepOptions(retention=RetentionOptions(size=1))
    work = UpkeepJob(lake.lake, "orders", options, NoSpark(), LoopMover, NoProbe(), datetime.now(UTC), force=force)
    (done,) = retain(work)
    return done


def ids(lake: LakeWorld) -> Iterator[int]:
    yield from sorted(lake.table().scan().to_arrow().column("id").to_pylist())


def test_retention_that_deletes_what_a_slow_reader_has_not_seen(lake: LakeWorld) -> None:
    """8. The slowest reader holds retention back; forced, each reader is told how many rows it lost."""
    for first in range(1, 101, 20):
        lake.land(orders(first, first + 19))
    slow, fast = Export(lake, "slow"), Export(lake, "fast")
    slow.tick("--max-rows", "40")
    fast.tick()
    lake.land(orders(101, 102))
    fast.tick()
    slow.tick("--max-rows", "10")
    done = kept(lake)
    assert "held back: slow/orders" in done.text
    assert list(ids(lake)) == list(range(41, 103)), "what it has not seen is there, and no more"
    slow.tick("--max-rows", "10")
    assert slow.delivered == list(range(1, 61))

    done = kept(lake, force=True)
    assert "slow/orders (at 60) loses 42 rows" in done.text
    stopped = slow.run()
    assert stopped.code == 1
    assert (
        "rows of shop.orders with numbers from 61 to 102 were removed by retention before this reader had seen them "
        "(42 rows)"
    ) in stopped.err
    assert slow.delivered == list(range(1, 61))
    floor = lake.state().floor
    went = slow.command.run("rewind", slow.file, "--to", str(floor), "--stream", "orders", "--yes")
    assert went.code == 0, went.err
    lake.land(orders(103, 105))
    slow.tick()
    fast.tick()
    assert slow.delivered == [*range(1, 61), 103, 104, 105]
    assert fast.delivered == list(range(1, 106))
