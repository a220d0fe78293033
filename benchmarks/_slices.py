"""A pipeline of one stream into files, in one process, with as many slices behind it as one likes.

Real engine and sink; rows and the store are in memory, and a loop moves the rows. Slices that are not measured are
manifests made by the sink's own writer, without the engine around them and without a sync.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.harness.doubles import Clock, LoopMover, MemorySource, Rows
from tests.store.memory_store import MemoryStore

from penstock.core.content import Content
from penstock.core.documents import canonical
from penstock.core.limits import Limits
from penstock.core.marks import Mark
from penstock.core.messages import Eof
from penstock.core.slices import Part, Slice, following
from penstock.engine import Engine, Settings
from penstock.ports import Context, NoProbe, Owner, Reading
from penstock.sinks.files import Options, build
from penstock.sinks.files.chain import Chain
from penstock.sinks.files.layout import Layout
from penstock.sinks.files.local import LocalFolder
from penstock.sinks.files.manifest import Manifest, SliceFile

PIPELINE, STREAM = "shop", "orders"
#: rows of a tick
ROWS = 1000


class OnePart(MemorySource):
    """The source in memory, with all rows of a slice in one part."""

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        with super().reading(slice_) as reading:
            first, last = (json.loads(reading.parts[place].terms) for place in (0, -1))
            yield Reading(reading.reader, [Part(0, canonical({"after": first["after"], "upto": last["upto"]}))])


@dataclass
class Slices:
    """A stream in a folder or below a prefix. `written_at`: the folder on this machine in which its objects lie."""

    options: Options
    written_at: Path
    #: CPU seconds so far of a server that answers
    server_seconds: Callable[[], float] = lambda: 0.0
    rows: Rows = field(default_factory=Rows)
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    count: int = 0
    place: int = 0

    def tick(self) -> float:
        """A thousand rows more, and a run that moves them; its CPU seconds."""
        for _ in range(ROWS):
            self.rows.arrive(self.place)
            self.place += 1
        self.count += 1
        return self._run(ROWS)

    def idle(self) -> float:
        """A run with nothing new; its CPU seconds."""
        return self._run(0)

    def pass_slices(self, many: int) -> None:
        """As many slices, the short way. There must have been a measured one before."""
        chain = Chain(LocalFolder(str(self.written_at)), Layout(PIPELINE, STREAM), NoProbe())
        state = self.store.state(PIPELINE, STREAM)
        last = state.last
        assert last is not None
        content, manifest = Content.parse(last.content), None
        for left in range(many, 0, -1):
            slice_ = following(
                last, pipeline=PIPELINE, stream=STREAM, upto=Mark.of({"place": self.place}), content=content
            )
            name = f"{STREAM}/{slice_.number:08d}-{slice_.id[:20]}-000-0.parquet"
            file = SliceFile(name, "gone", rows=ROWS, bytes=9000, sha256=slice_.id)
            # Files of the last two slices are looked at: these have none.
            files = (file,) if left > 2 else ()
            manifest = Manifest(slice_, "a1", ROWS if files else 0, 24_000, "place: int64", files)
            chain.folder.create(
                chain.manifest_name(slice_.number), manifest.text(), f"{chain.layout.meta}/made", _nothing
            )
            if files:
                (self.written_at / name).touch()
            last = slice_.position
        assert manifest is not None
        chain.remember(manifest)
        self.count += many
        streams: Any = self.store._has.streams
        streams[(PIPELINE, STREAM)] = replace(state, last=last)

    def _run(self, rows: int) -> float:
        begun, served = time.process_time(), self.server_seconds()
        engine = Engine(
            PIPELINE,
            source=OnePart({STREAM: self.rows}, most=ROWS),
            sink=build(self.options, {}, Context(PIPELINE, "/", NoProbe())),
            store=self.store,
            mover=LoopMover,
            clock=self.clock,
            probe=NoProbe(),
            owner=Owner(f"run {self.count}", "here", 1),
            gone=lambda _: True,
            emit=lambda _: None,
            settings=Settings(heartbeat=False),
        )
        eof: Eof = engine.run(Limits())
        spent = time.process_time() - begun + self.server_seconds() - served
        if (eof.exit_code, eof.request_progress["rows"]) != (0, rows):
            raise SystemExit(f"the run was to move {rows} rows: {eof}")
        return spent


def _nothing() -> None:
    return None


def without_syncs() -> None:
    """Only CPU time is measured, and nobody pulls the plug meanwhile."""
    setattr(os, "fsync", lambda _: None)  # noqa: B010 (mypy knows another signature)
