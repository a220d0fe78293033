"""The seal beside a spool, and the stops for a spool that is gone.

The seal lies beside the spool until the sink holds the slice, with the slice itself: so it outlives a store that is
restored or lost, and the slice is neither staged again nor forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.documents import canonical, parse
from penstock.core.slices import Kind, Seal, Slice, read_slice, slice_document
from penstock.errors import StreamStopped
from penstock.ports import GatheringRepairs, Source, Spools, has_capability

_SAFE = "Nothing was changed: neither the mark nor the sink."


def is_gathered(slice_: Slice, source: Source) -> bool:
    """Whether a slice is read from a spool. Of most sources, the digest of a repair is that of its keys."""
    return bool(slice_.spool) and (slice_.kind is not Kind.REPAIR or has_capability(source, GatheringRepairs))


def find_beside(spools: Spools, slice_: Slice) -> Seal | None:
    """The seal that lies beside the spool of this very slice."""
    return next((seal for found, seal in read_all(spools, slice_.stream) if found.id == slice_.id), None)


def keep_beside(spools: Spools, slice_: Slice, seal: Seal) -> bool:
    """Keep a seal beside its spool; False: another one is there already."""
    text = canonical({"slice": slice_document(slice_), "seal": seal.text})
    return spools.write_seal(slice_.stream, slice_.number, slice_.id, text) == text


def read_all(spools: Spools, stream: str) -> list[tuple[Slice, Seal]]:
    """Every slice of which a seal is kept, lowest number first."""
    documents = map(parse, spools.read_seals(stream))
    return [(read_slice(each["slice"]), Seal.read(each["seal"])) for each in documents]


def gathered_is_gone(slice_: Slice) -> StreamStopped:
    """The stop for an intent whose gathered spool cannot be read any more."""
    return StreamStopped(
        f"slice {slice_.number} is open, and its gathered spool ({slice_.spool[:12]}) is gone or damaged",
        next_step="put the spool back; or `penstock state recover FILE` drops the slice if the sink does not hold it, "
        "and the next run gathers again",
        safe=_SAFE,
        stream=slice_.stream,
    )


def staged_is_gone(slice_: Slice, pieces: Sequence[str]) -> StreamStopped:
    """The stop for a sealed slice whose staged pieces are gone: some may have been delivered."""
    return StreamStopped(
        f"slice {slice_.number} is sealed, and what was staged for it is gone or damaged; "
        f"these pieces may have been delivered: {_listed(pieces)}",
        next_step="put the spool back; or `penstock state recover FILE` has the sink withdraw the slice, or asks for "
        "your decision where the sink cannot",
        safe="Nothing was changed now, and the mark has not moved.",
        stream=slice_.stream,
    )


def sealed_otherwise(slice_: Slice) -> StreamStopped:
    """The stop for a slice that two processes have sealed, each with a store of its own."""
    return StreamStopped(
        f"slice {slice_.number} was sealed by another process, with other pieces than the store has recorded. "
        "The store was restored while that process was at work",
        next_step="stop the other process, then `penstock state recover FILE`",
        safe=_SAFE,
        stream=slice_.stream,
    )


def needs_decision(slice_: Slice, pieces: Sequence[str]) -> StreamStopped:
    """The refusal to drop a sealed slice whose pieces a sink cannot withdraw."""
    return StreamStopped(
        f"slice {slice_.number} is sealed, what was staged for it is gone, and this sink cannot withdraw pieces; "
        f"these may have been delivered: {_listed(pieces)}",
        next_step="remove those pieces at the receiver, or accept that they arrive twice; then "
        "`penstock state recover FILE --drop-sealed`",
        safe=_SAFE,
        stream=slice_.stream,
    )


def _listed(pieces: Sequence[str], most: int = 20) -> str:
    more = f" and {len(pieces) - most} more" if len(pieces) > most else ""
    return "; ".join(pieces[:most]) + more or "none"
