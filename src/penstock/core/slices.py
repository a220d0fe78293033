"""Slices, their parts and receipts, and the chain that a slice's id forms with all before it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from penstock.core.content import Content
from penstock.core.documents import Document, canonical, digest, parse
from penstock.core.marks import Mark, Position


class Kind(enum.StrEnum):
    """What a slice does to the sink."""

    ROWS = "rows"  # its rows are added after all before them
    REFRESH = "refresh"  # its rows take the place of all before them
    RESET = "reset"  # no rows; the mark goes back to the beginning
    REWIND = "rewind"  # no rows; the mark goes to another place
    UNDO = "undo"  # no rows; the mark goes back to where it was before a change of it
    REPAIR = "repair"  # the current rows of the keys that its plan lists; the mark stays

    @property
    def moves(self) -> bool:
        """Whether it has rows to move."""
        return self in (Kind.ROWS, Kind.REFRESH, Kind.REPAIR)


@dataclass(frozen=True)
class Slice:
    """A bounded unit of work from one mark to the next; what is planned, moved, retried and committed."""

    #: the pipeline's name; it outlives the store
    pipeline: str
    #: the stream's name
    stream: str
    #: 1, 2, 3, … within the stream
    number: int
    #: where it starts; None: the beginning
    after: Mark | None
    #: where it leads; None: the beginning again (a reset)
    upto: Mark | None
    #: canonical JSON of what is read: schema, columns, filter, source identity, key
    content: str
    #: the id of the slice before it; "" for the first
    previous: str
    #: what it does
    kind: Kind = Kind.ROWS
    #: canonical JSON of how it was planned (cuts, estimates); not part of the id
    plan: str = "{}"
    #: the digest of the spool that it was gathered into, or of a repair's keys; "": it is read by its bounds
    spool: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The hash of what is read."""
        return digest(self.content)

    @property
    def reason(self) -> str:
        """Why the mark moves, in the word of messages and of the history."""
        if self.kind is Kind.REWIND and self.after is None:
            return "begin"  # not a rewind by a user: the stream starts at another place than the beginning
        return "advance" if self.kind is Kind.ROWS else self.kind.value

    @cached_property
    def id(self) -> str:
        """The hash of the name, the bounds, what is read and every slice before it.

        A slice that is gathered again has another spool, and so is another slice. A repair of other keys has the same
        marks and another digest.
        """
        marks = (mark.text if mark else "" for mark in (self.after, self.upto))
        return digest(
            self.pipeline,
            self.stream,
            str(self.number),
            self.kind.value,
            *marks,
            self.fingerprint,
            self.spool,
            self.previous,
        )

    @property
    def undoes_to(self) -> int | None:
        """The version of the stream's history that an undo leads to; None: it is no undo."""
        version = parse(self.plan).get("version") if self.kind is Kind.UNDO else None
        return int(version) if version is not None else None

    @property
    def position(self) -> Position:
        """Where a stream is once this slice is in."""
        return Position(self.number, self.id, self.upto, self.content)


def following(
    last: Position | None,
    *,
    pipeline: str,
    stream: str,
    upto: Mark | None,
    content: Content,
    kind: Kind = Kind.ROWS,
    plan: Document | None = None,
    spool: str = "",
) -> Slice:
    """The slice that comes after `last`."""
    return Slice(
        pipeline=pipeline,
        stream=stream,
        number=last.number + 1 if last else 1,
        after=last.mark if last else None,
        upto=upto,
        content=content.text,
        previous=last.id if last else "",
        kind=kind,
        plan=canonical(plan or {}),
        spool=spool,
    )


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a slice that one worker moves; small and picklable."""

    #: 0, 1, 2, … within the slice
    index: int
    #: canonical JSON in the source's own terms
    terms: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a worker has staged for one part."""

    #: the part's index
    part: int
    #: a name that no other attempt at this part has
    attempt: str
    #: rows that came out of the source
    read: int
    #: rows that were staged
    rows: int
    #: their size as Arrow, in bytes
    bytes: int
    #: digest of the schema they were written with
    schema: str
    #: canonical JSON in the sink's own terms: names, sizes, checksums
    pieces: str
    #: values that had no exact form, and in whose place the stream wants NULL
    nulled: int = 0
    #: columns that the source no longer has: NULL in every row, which says nothing of the values that were there
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seal:
    """What was staged for a slice, recorded before the first piece of it is delivered. It is never staged again."""

    #: the slice's id
    slice_id: str
    #: the attempt that staged it
    attempt: str
    receipts: tuple[Receipt, ...]

    @property
    def text(self) -> str:
        """As canonical JSON."""
        receipts = [asdict(receipt) for receipt in self.receipts]
        return canonical({"slice": self.slice_id, "attempt": self.attempt, "receipts": receipts})

    @classmethod
    def read(cls, text: str) -> Seal:
        document = parse(text)
        receipts = (Receipt(**{**each, "absent": tuple(each["absent"])}) for each in document["receipts"])
        return cls(document["slice"], document["attempt"], tuple(receipts))


def slice_document(slice_: Slice) -> dict[str, Any]:
    """A slice as JSON, whole: for a seal that must outlive the store."""
    marks = {"after": slice_.after, "upto": slice_.upto}
    return asdict(slice_) | {name: mark.text if mark else None for name, mark in marks.items()}


def read_slice(document: dict[str, Any]) -> Slice:
    """The slice of `slice_document`."""
    marks = {name: Mark(document[name]) if document[name] is not None else None for name in ("after", "upto")}
    return Slice(**{**document, **marks, "kind": Kind(document["kind"])})


class Verdict(enum.Enum):
    """What the sink's last slice says about the one at hand."""

    IN = "the sink holds it"
    NEXT = "the sink holds its predecessor"
    OTHER = "the sink holds neither"


def verdict(held: Position | None, slice_: Slice) -> Verdict:
    """Decide by the chain. A higher number is no proof that the work is in: only the id is."""
    held_id = held.id if held else ""
    if held_id == slice_.id:
        return Verdict.IN
    return Verdict.NEXT if held_id == slice_.previous else Verdict.OTHER


def faults_of(parts: Sequence[Part], receipts: Sequence[Receipt]) -> str | None:
    """Why these receipts must not be committed, or None."""
    wanted = [part.index for part in parts]
    named = sorted(receipt.part for receipt in receipts)
    if named != sorted(wanted):
        return f"receipts name parts {named}, the slice has parts {sorted(wanted)}"
    for receipt in receipts:
        if receipt.read != receipt.rows:
            return f"part {receipt.part} read {receipt.read} rows and staged {receipt.rows}"
    schemas = {receipt.schema for receipt in receipts}
    if len(schemas) > 1:
        return f"parts were written with {len(schemas)} different schemas"
    return None
