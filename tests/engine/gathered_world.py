"""The world with a source that gathers and the real files sink: nothing is sealed, so the spool alone must be right."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.links.spools import FolderSpools
from penstock.ports import Budget, Planned, Probe, Source, Spool
from tests.engine.files_world import FilesWorld
from tests.engine.spooling import GatheringSource
from tests.engine.world import PIPELINE, STREAM


class PagedSource(GatheringSource):
    """An API that tells that there is something, and only by its pages how far a slice goes."""

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        """Answer whether there may be something: up to the ceiling, as far as one can know without reading."""
        at, top = after.document["place"] if after else 0, ceiling["place"]
        assert isinstance(top, int)
        return Planned(Mark.of({"place": top})) if top > at else None

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        at, top = after.document["place"] if after else 0, ceiling["place"]
        assert isinstance(top, int)
        upto = min(top, at + self.most)
        if upto == at:
            return None
        self.write_pages(spool.path, self.streams[stream].between(at, upto))
        return Planned(Mark.of({"place": upto}))


@dataclass
class GatheredWorld(FilesWorld):
    """One folder of files, one of spools."""

    @property
    def spools(self) -> FolderSpools:
        return FolderSpools(os.path.join(self.folder, "spools"), PIPELINE)

    def source(self, probe: Probe) -> Source:
        return PagedSource({STREAM: self.rows}, self.spools, most=2)

    def lose_spools(self) -> None:
        shutil.rmtree(os.path.join(self.folder, "spools"), ignore_errors=True)
        self.tampered_store = True
