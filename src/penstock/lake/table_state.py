"""How a table stands, from its metadata document alone: head, chain, readers, floor, turn, and foreign snapshots.

Pure: no PyIceberg, no reading of files. `peek` fetches the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from penstock.core.content import OtherFormat, check_format
from penstock.core.documents import digest
from penstock.core.marks import Mark, Position
from penstock.errors import StreamRefused, StreamStopped
from penstock.lake import names

#: a property of an adopted table, as long as rows from before are without a number
UNNUMBERED = "penstock.unnumbered"
#: why readers stop where history is not there any more
GAP = "snapshots that others made were expired before it could be seen what rows they brought"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of a table."""

    id: int
    parent: int | None
    sequence: int
    #: append, overwrite, delete, replace
    operation: str
    at_ms: int
    summary: Mapping[str, str]

    @property
    def kind(self) -> str | None:
        """What penstock made it for; None: it was not penstock."""
        return self.summary.get(names.KIND)

    @property
    def foreign(self) -> bool:
        """Whether it may have brought rows outside the order: not ours, and not a compaction."""
        return self.kind is None and self.operation != "replace"


@dataclass(frozen=True, slots=True)
class Link:
    """The last slice that a table holds for a stream."""

    position: Position
    kind: str
    rows: int
    bytes: int
    uuid: str
    snapshot: int
    sequence: int

    def document(self) -> dict[str, Any]:
        mark = self.position.mark
        return {
            "number": self.position.number,
            "id": self.position.id,
            "mark": mark.text if mark else None,
            # Its fingerprint: the text itself is a property of its own, or every snapshot would repeat it.
            "content": digest(self.position.content),
            "kind": self.kind,
            "rows": self.rows,
            "bytes": self.bytes,
            "uuid": self.uuid,
            "snapshot": str(self.snapshot),
            "sequence": self.sequence,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any], contents: Mapping[str, str]) -> Link:
        """From a document; `contents` are the table's properties."""
        mark = document["mark"]
        content = contents[f"{names.CONTENT}.{document['content']}"]
        return cls(
            position=Position(
                document["number"], document["id"], Mark.read(mark) if mark is not None else None, content
            ),
            kind=document["kind"],
            rows=document["rows"],
            bytes=document["bytes"],
            uuid=document["uuid"],
            snapshot=int(document["snapshot"]),
            sequence=document["sequence"],
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """Someone's announcement that the next commit is theirs."""

    owner: str
    until: datetime
    #: who that is, for messages
    by: str


@dataclass(frozen=True, slots=True)
class ReaderMark:
    """How far one reader of a table is, as it last said."""

    pipeline: str
    stream: str
    mark: int
    at: str
    abandoned: bool = False
    #: rows that a forced retention took away unread; None: none
    lost: int | None = None
    #: the number of the slice that led to the mark; 0: none did
    number: int = 0

    def document(self) -> dict[str, Any]:
        return {
            "mark": self.mark,
            "at": self.at,
            "abandoned": self.abandoned,
            "lost": self.lost,
            "number": self.number,
        }


@dataclass(frozen=True)
class TableState:
    """A table's metadata document, understood."""

    metadata: Mapping[str, Any]

    @property
    def uuid(self) -> str:
        return str(self.metadata["table-uuid"])

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.get("properties") or {}

    @property
    def ours(self) -> bool:
        """Whether the table has an order: penstock made or adopted it."""
        return names.HEAD in self.properties

    @property
    def adopted(self) -> bool:
        """Whether someone else made the table, and may have rows in it."""
        return names.ADOPTED in self.properties

    @property
    def empty(self) -> bool:
        """Whether main shows no row, as far as its summary tells."""
        return self.main is None or self.main.summary.get("total-records") == "0"

    @property
    def size(self) -> str:
        """The files and rows that main shows, for people, as its summary tells."""
        summary = self.main.summary if self.main else {}
        files, rows = summary.get("total-data-files", "its"), summary.get("total-records", "all")
        return f"{files} files with {rows} rows"

    @property
    def head(self) -> int:
        return int(self.properties.get(names.HEAD, "0"))

    @property
    def floor(self) -> int:
        return int(self.properties.get(names.FLOOR, "0"))

    @property
    def mode(self) -> str:
        return self.properties.get(names.MODE, "append")

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(json.loads(self.properties.get(names.KEY, "[]")))

    @cached_property
    def snapshots(self) -> Mapping[int, Snapshot]:
        found = {}
        for entry in self.metadata.get("snapshots") or ():
            summary = entry.get("summary") or {}
            found[entry["snapshot-id"]] = Snapshot(
                id=entry["snapshot-id"],
                parent=entry.get("parent-snapshot-id"),
                sequence=entry.get("sequence-number") or 0,
                operation=summary.get("operation", ""),
                at_ms=entry["timestamp-ms"],
                summary=summary,
            )
        return found

    @property
    def main(self) -> Snapshot | None:
        current = self.metadata.get("current-snapshot-id")
        return self.snapshots.get(current) if current is not None else None

    @property
    def branches(self) -> Mapping[str, int]:
        refs = self.metadata.get("refs") or {}
        return {name: ref["snapshot-id"] for name, ref in refs.items() if ref.get("type") == "branch"}

    @property
    def tags(self) -> Mapping[str, int]:
        refs = self.metadata.get("refs") or {}
        return {name: ref["snapshot-id"] for name, ref in refs.items() if ref.get("type") == "tag"}

    def line(self) -> Iterator[Snapshot]:
        """Main and its ancestors, newest first, as far as history is kept."""
        at = self.main
        while at is not None:
            yield at
            at = self.snapshots.get(at.parent) if at.parent is not None else None

    # ------------------------------------------------------------ the chain

    def link(self, pipeline: str, stream: str) -> Link | None:
        """The last slice the table says it holds for a stream.

        StreamRefused if another version of penstock landed it.
        """
        text = self.properties.get(names.chain_property(pipeline, stream))
        if not text:
            return None
        link = Link.read(json.loads(text), self.properties)
        try:
            check_format(link.position.content)
        except OtherFormat as error:
            raise StreamRefused(
                f"slice {link.position.number} in the table at {self.location} was landed by another version of "
                f"penstock: {error}",
                next_step="use that version; or name another table with `into` on the stream, and the stream begins "
                "again there",
                safe="Nothing was changed: neither the mark nor the table.",
                pipeline=pipeline,
                stream=stream,
            ) from error
        return link

    def links(self) -> Mapping[tuple[str, str], Link]:
        """Every stream that lands here."""
        found = {}
        for name, text in self.properties.items():
            about = names.parse_property(name, names.CHAIN)
            if about:
                found[about] = Link.read(json.loads(text), self.properties)
        return found

    def stale(self, link: Link) -> str | None:
        """Why a link does not belong to what the table shows now, in words; None: it does.

        Walking from main, its sequence number must not be passed without meeting its snapshot: then main was rolled
        back or replaced. A history that ends above it, by expiry, is fine.
        """
        if link.uuid != self.uuid:
            return "the table was dropped and made again"
        if self.shows(link.snapshot, link.sequence):
            return None
        return "the table was rolled back to a state before it" if self.main else "the table has no snapshot any more"

    def shows(self, snapshot: int, sequence: int) -> bool:
        """Whether main still descends from a snapshot, as far as history is kept."""
        reached = False
        for reached_one in self.line():
            reached = True
            if reached_one.id == snapshot:
                return True
            if reached_one.sequence <= sequence:
                return False
        return reached

    # ------------------------------------------------------------ readers, turn, foreign writes

    def readers(self) -> list[ReaderMark]:
        found = []
        for name, text in self.properties.items():
            about = names.parse_property(name, names.READER)
            if about:
                said = json.loads(text)
                found.append(
                    ReaderMark(
                        *about,
                        said["mark"],
                        said["at"],
                        said.get("abandoned", False),
                        said.get("lost"),
                        said.get("number", 0),
                    )
                )
        return sorted(found, key=lambda reader: (reader.mark, reader.pipeline, reader.stream))

    def reader(self, pipeline: str, stream: str) -> ReaderMark | None:
        return next((r for r in self.readers() if (r.pipeline, r.stream) == (pipeline, stream)), None)

    def lost(self, pipeline: str, stream: str) -> int | None:
        """Rows that a forced retention took from a reader, if it was counted."""
        reader = self.reader(pipeline, stream)
        return reader.lost if reader else None

    def slowest(self) -> ReaderMark | None:
        """The reader that holds retention back."""
        return next((reader for reader in self.readers() if not reader.abandoned), None)

    def turn(self) -> Turn | None:
        text = self.properties.get(names.TURN)
        if not text:
            return None
        said = json.loads(text)
        return Turn(said["owner"], datetime.fromisoformat(said["until"]), said["by"])

    @property
    def inspected(self) -> int:
        """The sequence number up to which every row is known to be in order."""
        text = self.properties.get(names.INSPECTED)
        return int(json.loads(text)["sequence"]) if text else 0

    def foreign(self) -> list[Snapshot]:
        """Snapshots on main, oldest first, that others made since it was last looked at."""
        return [snapshot for snapshot in self.uninspected() if snapshot.foreign]

    def uninspected(self) -> list[Snapshot]:
        """Snapshots on main, oldest first, that anyone made since it was last looked at."""
        return list(self._uninspected())[::-1]

    @property
    def gap(self) -> bool:
        """Whether history was expired by others before anyone could see what it had brought."""
        seen = list(self._uninspected())
        if not seen or seen[-1].parent in self.snapshots:
            return False
        # The walk ended with history itself. That its last one names no parent says nothing: PyIceberg takes the name
        # away when it expires the parent. Only the next sequence number has nothing before it that was not seen.
        return seen[-1].sequence > self.inspected + 1

    @property
    def stopped(self) -> str | None:
        """Why no reader of the table can go on; None: nothing is known that would keep them."""
        if self.gap:
            return GAP
        # What a reader wrote down no longer holds once the table was put back.
        return None if self.orderly else self.properties.get(names.STOPPED)

    @property
    def unnumbered(self) -> bool:
        """Whether rows from before the table was adopted still wait for their numbers."""
        return UNNUMBERED in self.properties

    @property
    def orderly(self) -> bool:
        """Whether every row is known to have its own place."""
        return not self.unnumbered and not self.gap and not self.foreign()

    @property
    def whole(self) -> bool:
        """Whether main's history goes back to the table's first snapshot."""
        line = list(self.line())
        return not line or (line[-1].parent is None and line[-1].sequence <= 1)

    def _uninspected(self) -> Iterator[Snapshot]:
        for snapshot in self.line():
            if snapshot.sequence <= self.inspected:
                return
            yield snapshot

    # ------------------------------------------------------------ columns

    @property
    def columns(self) -> list[Mapping[str, Any]]:
        """The current schema's fields, as the document has them."""
        current = self.metadata.get("current-schema-id", 0)
        for schema in self.metadata.get("schemas") or ():
            if schema.get("schema-id") == current:
                return list(schema["fields"])
        return list((self.metadata.get("schema") or {}).get("fields", ()))


def find_link(state: TableState | None, pipeline: str, stream: str, table: str) -> Link | None:
    """The last slice a table holds for a stream; StreamStopped if main no longer shows it."""
    link = state.link(pipeline, stream) if state else None
    why = state.stale(link) if state and link else None
    if link is None or why is None:
        return link
    raise StreamStopped(
        f"the table {table} says it holds slice {link.position.number}, but {why}",
        safe="Nothing was changed: neither the mark nor the table.",
        next_step=f"put the table back as it was; or `penstock state recover FILE --stream {stream}` sets table and "
        "store to what the table shows now, and the next run delivers what is missing",
        pipeline=pipeline,
        stream=stream,
    )


def describe_stopped_readers(state: TableState | None, table: str) -> list[str]:
    """Readers that cannot go on, each or all of them; empty: none is known."""
    if state is None:
        return []
    readers = [reader for reader in state.readers() if not reader.abandoned]
    if readers and (why := state.stopped):
        names = ", ".join(f"{reader.pipeline}/{reader.stream}" for reader in readers)
        return [
            f"every reader of {table} stops ({names}): {why}. What lands here is not read until the table is put back, "
            "or `--accept-foreign` of `penstock upkeep` lets them go on from what is there"
        ]
    return [
        f"{reader.pipeline}/{reader.stream}, a reader of {table}, stops: {reader.lost} rows or deletes were removed "
        "before it had seen them. Its next run says how to go on"
        for reader in readers
        if reader.lost
    ]
