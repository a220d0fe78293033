"""Fetches ahead while slices move: the next pages of a stream, kept in memory up to a limit.

What was fetched ahead counts only as the successor of exactly the mark, the content and the ceiling that it was fetched
under. Anything else is thrown away and fetched again.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.documents import Document, canonical
from penstock.core.marks import Mark
from penstock.core.subdivision import Subdivision
from penstock.sources.rest.gathering import RangeGather

#: bytes of records that are fetched ahead for one stream: the ids of records are kept in memory
AHEAD_BYTES = 64 << 20
#: bytes of compressed pages that are fetched ahead for one stream, and kept in memory
AHEAD_COMPRESSED_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Basis:
    """What pages were fetched under."""

    after: str
    content: str
    ceiling: str

    @classmethod
    def of(cls, after: Mark | None, content: Content, ceiling: Document) -> Basis:
        return cls(after.text if after else "", content.text, canonical(ceiling))


@dataclass(slots=True)
class Ahead:
    """A gather that goes on beside the run."""

    basis: Basis
    gathering: RangeGather
    future: Future[Subdivision]

    async def finish(self) -> RangeGather:
        """Wait for the pages that were asked for; no others are."""
        self.gathering.stop()
        future = asyncio.wrap_future(self.future)
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # retrieved here; the gather that continues this one raises it again
        return self.gathering

    def throw_away(self) -> None:
        self.future.cancel()
