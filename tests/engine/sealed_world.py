"""The world with a source that gathers and a sink that seals in it: what a receiver of pieces sees."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field

from penstock.links.spools import FolderSpools
from penstock.ports import Context, Probe, Source
from tests.engine.spooling import GatheringSource, Receiver, WithdrawingSink
from tests.engine.world import PIPELINE, STREAM, Return, World, Wrong
from tests.harness.doubles import MemorySource


@dataclass
class SealedWorld(World):
    """One receiver, one folder of spools."""

    gathers: bool = True
    receiver: Receiver = field(default_factory=Receiver)
    #: rows that readers have seen, by slice
    seen: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def spools(self) -> FolderSpools:
        return FolderSpools(os.path.join(self.folder, "spools"), PIPELINE)

    def source(self, probe: Probe) -> Source:
        rows = {STREAM: self.rows}
        return GatheringSource(rows, self.spools, most=3) if self.gathers else MemorySource(rows, most=3)

    def sink(self, probe: Probe) -> WithdrawingSink:
        engine = self.engines
        token = f"P{self.starts}"
        context = Context(
            PIPELINE,
            self.folder,
            probe,
            spools=self.spools,
            report=lambda *about, **more: engine[token].report_work(*about, **more),
            is_cancelled=lambda: engine[token].is_cancelled(),
        )
        return WithdrawingSink(self.receiver, context)

    def lose_spools(self) -> None:
        shutil.rmtree(os.path.join(self.folder, "spools"), ignore_errors=True)
        self.tampered_store = True

    def copy_sink(self) -> object:
        return self.receiver.copy()

    def restore_sink(self, copy: object) -> None:
        assert isinstance(copy, Receiver)
        # The same object: a process that is frozen talks to the receiver that there is.
        self.receiver.taken = copy.copy().taken
        self.tampered_sink = True
        self.look_anew()

    # ------------------------------------------------------------ what readers see

    def complete(self) -> list[tuple[str, tuple[int, ...]]]:
        slices = self.receiver.taken.get(STREAM, [])
        return [
            (each.position.id, tuple(place for _, places in each.pieces for place in places))
            for each in slices
            if each.is_complete
        ]

    def returns(self) -> list[Return]:
        found = []
        for each in self.receiver.taken.get(STREAM, []):
            if each.is_complete and each.kind in ("reset", "rewind", "undo"):
                after = each.after.document["place"] if each.after else 0
                to = each.position.mark.document["place"] if each.position.mark else 0
                found.append(Return(each.position.number, after, to))
        return found

    def delivered(self) -> list[tuple[int, int]]:
        returns = self.returns()
        numbers = {each.position.id: each.position.number for each in self.receiver.taken.get(STREAM, [])}
        return [
            (sum(each.number < numbers[slice_id] for each in returns), place)
            for slice_id, places in self.complete()
            for place in places
        ]

    def look_anew(self) -> None:
        self.seen = dict(self.complete())

    def check_seen(self) -> None:
        now = dict(self.complete())
        changed = {slice_id for slice_id, places in self.seen.items() if now.get(slice_id) != places}
        if changed:
            raise Wrong(f"vanished: {sorted(changed)}")
        self.check_generations(self.delivered())
        slices = [each for each in self.receiver.taken.get(STREAM, []) if each.is_complete]
        chain = ["", *(each.position.id for each in slices)]
        if not self.tampered_sink and [each.previous for each in slices] != chain[:-1]:
            raise Wrong("doubled: slices took effect out of order")
        self.seen = now

    def check_whole(self) -> None:
        if self.receiver.opened(STREAM) is not None:
            raise Wrong("partial: a slice is open at rest")
