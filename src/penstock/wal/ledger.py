"""What each producer has sent to a stream: a pure fold over the records of its log.

A producer numbers its slices, and the chunks of a slice. Chunk k is taken only after k-1, and a slice only after the
one that it names as its predecessor is whole. What is sent again is recognised; what contradicts is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.documents import Document
from penstock.wal import meta
from penstock.wal.meta import Sources
from penstock.wal.persistent_map import PersistentMap


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies."""

    segment: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a producer's slice, without its rows."""

    producer: str
    slice: str
    #: the slice's number in its stream
    number: int
    #: the slice that the producer sent before it; "": it is its first one
    predecessor: str
    #: 1, 2, …
    chunk: int
    chunks: int
    #: of the decoded body: a retry may be compressed in another way
    digest: str
    rows: int
    #: what the producer wants to be told when it has lost its store
    bounds: str = ""


@dataclass(frozen=True, slots=True)
class Bare:
    """A batch of a producer without slices, known by a key within its owner: a token, or \"\"."""

    owner: str
    key: str
    digest: str
    rows: int


@dataclass(frozen=True, slots=True)
class SentSlice:
    """A slice of a producer, whole or open."""

    slice: str
    number: int
    predecessor: str
    chunks: int
    #: of the chunks that are held, in order
    digests: tuple[str, ...]
    #: where they lie
    places: tuple[Place, ...]
    rows: int
    bounds: str

    @property
    def is_whole(self) -> bool:
        return len(self.digests) == self.chunks


@dataclass(frozen=True, slots=True)
class Producer:
    """What is held of one producer."""

    #: its last whole slice
    last: SentSlice | None = None
    #: the slice that is being sent
    open: SentSlice | None = None


@dataclass(frozen=True, slots=True)
class KnownKey:
    digest: str
    rows: int
    #: microseconds since 1970, by the log's clock
    at: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of one stream's producers."""

    producers: PersistentMap[str, Producer] = field(default_factory=PersistentMap)
    #: by (owner, key)
    keys: PersistentMap[tuple[str, str], KnownKey] = field(default_factory=PersistentMap)
    #: the log's clock: the latest time of a record, in microseconds; it never goes back
    clock: int = 0
    #: batches that could be read since the log began
    batches: int = 0
    #: rows of them
    rows: int = 0
    #: what was last heard of each source
    sources: Sources = field(default_factory=PersistentMap)


@dataclass(frozen=True, slots=True)
class Take:
    """It is to be written."""


@dataclass(frozen=True, slots=True)
class Known:
    """It was taken before: the same answer is due."""

    rows: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """It contradicts what is held."""

    reason: str
    next_step: str


Verdict = Take | Known | Refuse


def judge_chunk(ledger: Ledger, chunk: Chunk) -> Verdict:
    """Whether a chunk is new, known, or out of order."""
    held = ledger.producers.get(chunk.producer, Producer())
    for sent in (held.open, held.last):
        if sent is not None and sent.slice == chunk.slice:
            return _judge_next(sent, chunk)
    if held.open is not None:
        return Refuse(
            f"slice {held.open.number} ({held.open.slice}) is open: {len(held.open.digests)} of {held.open.chunks} "
            "chunks are held",
            "send the rest of that slice, or withdraw it",
        )
    last = held.last.slice if held.last else ""
    if chunk.predecessor != last:
        return Refuse(
            f"its predecessor is {chunk.predecessor or 'none'}, and the last slice held is {last or 'none'}",
            "`penstock state recover` rebuilds the producer's store from what is held here",
        )
    return _judge_first(held.last, chunk)


def _judge_first(last: SentSlice | None, chunk: Chunk) -> Verdict:
    if last is not None and chunk.number <= last.number:
        # A reader recognises by its number what it has delivered.
        return Refuse(
            f"it is slice {chunk.number}, and its predecessor {last.slice} is slice {last.number}",
            "number slices in the order in which they are sent",
        )
    if chunk.chunk == 1:
        return Take()
    return Refuse(f"chunk {chunk.chunk} comes before chunk 1", "send the chunks of a slice in order")


def _judge_next(sent: SentSlice, chunk: Chunk) -> Verdict:
    if (chunk.chunks, chunk.number, chunk.predecessor) != (sent.chunks, sent.number, sent.predecessor):
        return Refuse(
            f"slice {sent.slice} was announced as number {sent.number} with {sent.chunks} chunks",
            "send a slice again as it was sent before",
        )
    if chunk.chunk <= len(sent.digests):
        if sent.digests[chunk.chunk - 1] == chunk.digest:
            return Known(chunk.rows)
        return Refuse(
            f"chunk {chunk.chunk} is held with other contents",
            "a slice is sent again with the same bytes: use the spool that was sealed",
        )
    if chunk.chunk > len(sent.digests) + 1:
        return Refuse(
            f"chunk {chunk.chunk} comes before chunk {len(sent.digests) + 1}", "send the chunks of a slice in order"
        )
    return Take()


def judge_bare(ledger: Ledger, bare: Bare, since: int = 0) -> Verdict:
    """Whether a batch with a key of its own is new or known. Keys from before `since` do not count."""
    known = ledger.keys.get((bare.owner, bare.key))
    if known is None or known.at < since:
        return Take()
    if known.digest == bare.digest:
        return Known(known.rows)
    return Refuse("this Idempotency-Key was used for other contents", "use a new key for each batch")


def with_chunk(ledger: Ledger, chunk: Chunk, place: Place, at: int) -> Ledger:
    """The ledger after a chunk that was to be taken, or that a log holds.

    Where a log has lost an earlier chunk of the slice, its digest is "": nothing that is sent again equals it. Where it
    has lost the withdrawal of the slice, the slice begins again.
    """
    held = ledger.producers.get(chunk.producer, Producer())
    sent = held.open
    if sent is None or sent.slice != chunk.slice or chunk.chunk <= len(sent.digests):
        sent = SentSlice(chunk.slice, chunk.number, chunk.predecessor, chunk.chunks, (), (), 0, chunk.bounds)
    lost = chunk.chunk - 1 - len(sent.digests)
    digests = (*sent.digests, *[""] * lost, chunk.digest)
    is_whole = len(digests) == sent.chunks
    places = () if is_whole else (*sent.places, place)
    rows = sent.rows + chunk.rows
    sent = SentSlice(sent.slice, sent.number, sent.predecessor, sent.chunks, digests, places, rows, sent.bounds)
    return _with_producer(ledger, chunk.producer, Producer(last=sent) if is_whole else Producer(held.last, sent), at)


def with_bare(ledger: Ledger, bare: Bare, at: int) -> Ledger:
    """The ledger after a batch with a key of its own."""
    keys = ledger.keys.having((bare.owner, bare.key), KnownKey(bare.digest, bare.rows, at))
    return Ledger(ledger.producers, keys, max(ledger.clock, at), ledger.batches, ledger.rows, ledger.sources)


def withdraw(ledger: Ledger, producer: str, slice_: str, at: int) -> Ledger | Refuse:
    """The ledger without the open slice of a producer; Refuse if it is whole. The same ledger if it is not held."""
    held = ledger.producers.get(producer, Producer())
    if held.last is not None and held.last.slice == slice_:
        return Refuse(f"slice {slice_} is whole, and may have been read", "`penstock state recover` goes on from it")
    if held.open is None or held.open.slice != slice_:
        return ledger
    return _with_producer(ledger, producer, replace(held, open=None), at)


def forget_keys(ledger: Ledger, before: int) -> Ledger:
    """The ledger without keys from before this time of the log's clock."""
    return replace(ledger, keys=PersistentMap((key, known) for key, known in ledger.keys.items() if known.at >= before))


def _with_producer(ledger: Ledger, name: str, producer: Producer, at: int) -> Ledger:
    # Not `replace`, here and where a batch is taken: it takes several times as long.
    producers = ledger.producers.having(name, producer)
    return Ledger(producers, ledger.keys, max(ledger.clock, at), ledger.batches, ledger.rows, ledger.sources)


# ---------------------------------------------------------------- the stored form


def to_document(ledger: Ledger) -> Document:
    """The copy that every segment begins with."""
    return {
        "producers": {
            name: {"last": _sent_document(each.last), "open": _sent_document(each.open)}
            for name, each in ledger.producers.items()
        },
        "keys": sorted([owner, key, known.digest, known.rows, known.at] for (owner, key), known in ledger.keys.items()),
        "clock": ledger.clock,
        "batches": ledger.batches,
        "rows": ledger.rows,
        "sources": meta.to_document(ledger.sources),
    }


def from_document(document: Mapping[str, Any]) -> Ledger:
    producers = PersistentMap(
        (name, Producer(_sent(each["last"]), _sent(each["open"]))) for name, each in document["producers"].items()
    )
    keys = PersistentMap(
        ((owner, key), KnownKey(digest, rows, at)) for owner, key, digest, rows, at in document["keys"]
    )
    sources = meta.from_document(document["sources"])
    return Ledger(producers, keys, document["clock"], document["batches"], document["rows"], sources)


def _sent_document(sent: SentSlice | None) -> Document | None:
    if sent is None:
        return None
    return {
        "slice": sent.slice,
        "number": sent.number,
        "predecessor": sent.predecessor,
        "chunks": sent.chunks,
        "digests": list(sent.digests),
        "places": [[place.segment, place.offset, place.length] for place in sent.places],
        "rows": sent.rows,
        "bounds": sent.bounds,
    }


def _sent(document: Mapping[str, Any] | None) -> SentSlice | None:
    if document is None:
        return None
    return SentSlice(
        **{**document, "digests": tuple(document["digests"]), "places": tuple(Place(*p) for p in document["places"])}
    )
