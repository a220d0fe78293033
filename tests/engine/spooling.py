"""A source that gathers and a sink that seals, in memory, for the engine's own tests and as an example of both steps.

The source reads ahead into a spool; the sink stages into one and delivers piece by piece to a receiver, which holds the
chain, takes the pieces of one open slice at a time, and can withdraw it.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.core.content import Content
from penstock.core.documents import Document, canonical, digest, parse
from penstock.core.marks import Mark, Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Part, Receipt, Slice
from penstock.errors import CommitUnclear, StreamFailed, StreamStopped
from penstock.links.durable import write_durably
from penstock.ports import Budget, Context, Held, Planned, Reading, Spool, Spools, StreamInfo
from tests.harness.doubles import MemorySource, Rows, batches_of

if TYPE_CHECKING:
    import pyarrow as pa


# ---------------------------------------------------------------- the source


class GatheringSource(MemorySource):
    """The rows of a MemorySource, which are known only once they have been read: pages of an API."""

    def __init__(
        self, streams: dict[str, Rows], spools: Spools, most: int = 2, identity: str = "here", page_rows: int = 1
    ) -> None:
        super().__init__(streams, most, identity)
        self.spools, self.page_rows = spools, page_rows

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        planned = self.plan(stream, content, after, ceiling, budget)
        if planned is None:
            return None
        at = after.document["place"] if after else 0
        self.write_pages(spool.path, self.streams[stream].between(at, planned.upto.document["place"]))
        return planned

    def write_pages(self, folder: str, rows: Sequence[tuple[int, int, int]]) -> None:
        for first in range(0, len(rows), self.page_rows):
            with open(os.path.join(folder, f"page-{first:04}.json"), "w", encoding="utf-8") as page:
                json.dump(rows[first : first + self.page_rows], page)

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        path = self.spools.find_gathered(slice_.stream, slice_.spool)
        if path is None:
            raise StreamFailed("the spool is gone", next_step="run again", stream=slice_.stream)
        pages = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.startswith("page-")]
        parts = [Part(index, canonical({"page": page})) for index, page in enumerate(pages)]
        yield Reading(PageReader(), parts)


@dataclass(frozen=True)
class PageReader:
    """Reads one page, which is one part."""

    def open(self, part: Part) -> pa.RecordBatchReader:
        with open(parse(part.terms)["page"], encoding="utf-8") as page:
            return batches_of(json.load(page))


# ---------------------------------------------------------------- the sink


@dataclass(frozen=True)
class Taken:
    """A slice as the receiver has it; complete once it has every piece."""

    position: Position
    kind: str
    after: Mark | None
    previous: str
    #: how many pieces there are
    total: int
    #: the digest and the places of each piece that has come
    pieces: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def is_complete(self) -> bool:
        return len(self.pieces) == self.total


@dataclass
class Receiver:
    """What receives pieces: it outlives processes, and can be copied and put back."""

    #: by stream, the slices in the order in which they came; only the last one can be open
    taken: dict[str, list[Taken]] = field(default_factory=dict)

    def copy(self) -> Receiver:
        return copy.deepcopy(self)

    def held(self, stream: str) -> Taken | None:
        return next((each for each in reversed(self.taken.get(stream, [])) if each.is_complete), None)

    def opened(self, stream: str) -> Taken | None:
        return next((each for each in self.taken.get(stream, []) if not each.is_complete), None)

    def take(self, slice_: Slice, index: int, total: int, name: str, places: Sequence[int]) -> bool:
        """Take a piece; False: it does not follow what is here (409)."""
        slices = self.taken.setdefault(slice_.stream, [])
        known = next((each for each in slices if each.position.id == slice_.id), None)
        if known is None:
            held = self.held(slice_.stream)
            follows = (held.position.id if held else "") == slice_.previous
            if index or self.opened(slice_.stream) is not None or not follows:
                return False
            known = Taken(slice_.position, slice_.kind.value, slice_.after, slice_.previous, total)
            slices.append(known)
        if index < len(known.pieces):
            return known.pieces[index][0] == name
        if index > len(known.pieces) or known.is_complete:
            return False
        pieces = (*known.pieces, (name, tuple(places)))
        slices[slices.index(known)] = replace(known, pieces=pieces)
        return True

    def withdraw(self, stream: str, slice_id: str) -> None:
        self.taken[stream] = [each for each in self.taken.get(stream, []) if each.position.id != slice_id]


@dataclass(frozen=True)
class _Stage:
    """Stages parts as files, one piece each."""

    folder: str

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        table = batches.read_all()
        text = json.dumps(table.column("place").to_pylist())
        path = os.path.join(self.folder, f"part-{part.index:04}.json")
        write_durably(path, text)
        name = os.path.basename(self.folder)
        pieces = canonical({"path": path, "digest": digest(text)})
        rows = table.num_rows
        return Receipt(part.index, name, rows, rows, table.nbytes, digest(str(table.schema)), pieces)


class SealedSink:
    """Delivers what it has staged piece by piece."""

    def __init__(self, receiver: Receiver, context: Context) -> None:
        self.receiver, self.context = receiver, context

    def connect(self) -> None:
        return None

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        return {}

    def check(self, stream: StreamInfo, content: Content) -> None:
        return None

    def held(self, stream: str) -> Held | None:
        taken = self.receiver.held(stream)
        return Held(taken.position, sum(len(places) for _, places in taken.pieces), 0) if taken else None

    def writer(self, slice_: Slice, attempt: str) -> _Stage:
        return _Stage(self.context.spools.stage(slice_.stream, slice_.number, attempt))

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome | None:
        pieces = [self._piece(receipt) for receipt in sorted(receipts, key=lambda receipt: receipt.part)]
        # A slice without rows is one piece without rows.
        pieces = pieces or [("", [])]
        for index, (name, places) in enumerate(pieces):
            if self.context.is_cancelled():
                raise StreamFailed("the delivery was cancelled on request", next_step="run again", stream=slice_.stream)
            if not self.receiver.take(slice_, index, len(pieces), name, places):
                self._refuse(slice_)
            self.context.report(slice_.stream, "delivering pieces", done=index + 1, total=len(pieces))
            self.context.probe.at("sealed.piece_sent", number=slice_.number)
        return None

    def _piece(self, receipt: Receipt) -> tuple[str, list[int]]:
        about = parse(receipt.pieces)
        with open(about["path"], encoding="utf-8") as file:
            text = file.read()
        if digest(text) != about["digest"]:
            raise StreamFailed("a staged piece is not what its receipt says", next_step="run again")
        return about["digest"], json.loads(text)

    def _refuse(self, slice_: Slice) -> None:
        held, opened = self.receiver.held(slice_.stream), self.receiver.opened(slice_.stream)
        if held is not None and held.position.id == slice_.id:
            raise CommitUnclear("another process has delivered the slice", next_step="ask the receiver")
        have = opened.position.id[:12] if opened else "no slice"
        raise StreamStopped(
            f"the receiver does not take slice {slice_.number}: it has {have} open, or other pieces of this one",
            next_step="`penstock state recover FILE`",
            stream=slice_.stream,
        )

    def sweep(self, stream: str, held: Position) -> None:
        return None

    def close(self) -> None:
        return None

    # ------------------------------------------------------------ sealing

    def is_staged(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> bool:
        return all(_is_whole(parse(receipt.pieces)) for receipt in receipts)

    def describe_pieces(self, slice_: Slice, receipts: Sequence[Receipt]) -> Sequence[str]:
        return [f"slice {slice_.number}, piece {receipt.part} ({receipt.rows} rows)" for receipt in receipts]


class WithdrawingSink(SealedSink):
    """The same, with a receiver that can withdraw an open slice."""

    def open_slice(self, stream: str) -> str | None:
        opened = self.receiver.opened(stream)
        return opened.position.id if opened else None

    def withdraw(self, stream: str, slice_id: str) -> Sequence[str]:
        self.receiver.withdraw(stream, slice_id)
        return [f"withdrew the pieces of slice {slice_id[:12]}"]


def _is_whole(about: Mapping[str, Any]) -> bool:
    try:
        with open(about["path"], encoding="utf-8") as file:
            return digest(file.read()) == str(about["digest"])
    except OSError:
        return False
