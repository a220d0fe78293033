"""The state of a table, from its metadata document alone: head, chain, readers, floor, turn, and foreign snapshots.

Pure: no PyIceberg, no reading of files. `metadata.read_state` fetches the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from penstock.core.content import OtherFormat, check_format
from penstock.core.documents import canonical, digest
from penstock.core.marks import Mark, Position
from penstock.errors import StreamRefused, StreamStopped
from penstock.lake import names

#: a property of an adopted table while its old rows have no number
UNNUMBERED = "penstock.unnumbered"
#: why readers stop where history is missing
SNAPSHOTS_EXPIRED = "snapshots of other programs were expired before penstock could see which rows they brought"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot of a table."""

    id: int
    parent: int | None
    sequence: int
    #: append, overwrite, delete, replace
    operation: str
    at_ms: int
    summary: Mapping[str, str]

    @property
    def kind(self) -> str | None:
        """What penstock created it for; None: another program created it."""
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
            # Its fingerprint: the text is a property of its own, so that snapshots do not repeat it.
            "content": digest(self.position.content),
            "snapshot": str(self.snapshot),
            **{name: getattr(self, name) for name in ("kind", "rows", "bytes", "uuid", "sequence")},
        }

    @classmethod
    def read(cls, document: Mapping[str, Any], properties: Mapping[str, str]) -> Link:
        """Read a link from its document and the table's properties."""
        mark = Mark.read(document["mark"]) if document["mark"] is not None else None
        content = properties[f"{names.CONTENT}.{document['content']}"]
        position = Position(document["number"], document["id"], mark, content)
        counts = {name: document[name] for name in ("kind", "rows", "bytes", "uuid", "sequence")}
        return cls(position, snapshot=int(document["snapshot"]), **counts)


@dataclass(frozen=True, slots=True)
class Turn:
    """A writer's announcement that the next commit is its own."""

    owner: str
    until: datetime
    #: who that is, for messages
    by: str


@dataclass(frozen=True, slots=True)
class ReaderMark:
    """How far one reader of a table is, as it last registered."""

    pipeline: str
    stream: str
    mark: int
    at: str
    abandoned: bool = False
    #: rows that a forced retention removed unread; None: none
    lost: int | None = None
    #: the number of the slice that led to the mark; 0: none did
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.pipeline}/{self.stream}"

    def properties(self) -> dict[str, str]:
        """The table property that records it."""
        document = {name: value for name, value in asdict(self).items() if name not in ("pipeline", "stream")}
        return {names.reader_property(self.pipeline, self.stream): canonical(document)}


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
        """Whether the table has an order: penstock created or adopted it."""
        return names.HEAD in self.properties

    @property
    def adopted(self) -> bool:
        """Whether another program created the table, and may have rows in it."""
        return names.ADOPTED in self.properties

    @property
    def rows(self) -> int:
        """About how many rows main shows, according to its summary."""
        return int(self.main.summary.get("total-records") or 0) if self.main is not None else 0

    @property
    def empty(self) -> bool:
        """Whether main shows no row, according to its summary."""
        return self.main is None or self.main.summary.get("total-records") == "0"

    @property
    def size(self) -> str:
        """The files and rows that main shows, for messages."""
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
    def keyed(self) -> bool:
        """Whether it has one current row for each key, and tombstones."""
        return self.mode in ("merge", "state")

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(json.loads(self.properties.get(names.KEY, "[]")))

    @cached_property
    def snapshots(self) -> Mapping[int, Snapshot]:
        found = {}
        for entry in self.metadata.get("snapshots") or ():
            id_, summary = entry["snapshot-id"], entry.get("summary") or {}
            parent, sequence = entry.get("parent-snapshot-id"), entry.get("sequence-number") or 0
            found[id_] = Snapshot(id_, parent, sequence, summary.get("operation", ""), entry["timestamp-ms"], summary)
        return found

    @property
    def main(self) -> Snapshot | None:
        current = self.metadata.get("current-snapshot-id")
        return self.snapshots.get(current) if current is not None else None

    @property
    def branches(self) -> Mapping[str, int]:
        return self._refs("branch")

    @property
    def tags(self) -> Mapping[str, int]:
        return self._refs("tag")

    def _refs(self, kind: str) -> Mapping[str, int]:
        refs = self.metadata.get("refs") or {}
        return {name: ref["snapshot-id"] for name, ref in refs.items() if ref.get("type") == kind}

    def line(self) -> Iterator[Snapshot]:
        """Main and its ancestors, newest first, as far as history is kept."""
        at = self.main
        while at is not None:
            yield at
            at = self.snapshots.get(at.parent) if at.parent is not None else None

    # ------------------------------------------------------------ the chain

    def link(self, pipeline: str, stream: str) -> Link | None:
        """The last slice that the table records for a stream; StreamRefused if another version landed it."""
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
        """The last slice of every stream that lands here, by pipeline and stream."""
        return {
            about: Link.read(json.loads(text), self.properties)
            for name, text in self.properties.items()
            if (about := names.parse_property(name, names.CHAIN))
        }

    def refuse_other_version(self, table: str) -> None:
        """StreamRefused if another version of penstock has landed a slice in the table."""
        for (pipeline, stream), link in self.links().items():
            try:
                check_format(link.position.content)
            except OtherFormat as error:
                raise StreamRefused(
                    f"the table {table} was written by another version of penstock: slice {link.position.number} of "
                    f"{pipeline}/{stream}: {error}",
                    next_step="use that version; or have the pipeline that writes it begin again in another table "
                    "(`into` on its stream), and use that one",
                    safe="Nothing was changed in the table.",
                ) from error

    def stale(self, link: Link) -> str | None:
        """Why a link does not belong to what the table shows now; None: it does.

        Walking from main, its sequence number must not be passed without meeting its snapshot: otherwise main was
        rolled back or replaced. A history that ends above it, by expiry, is fine.
        """
        if link.uuid != self.uuid:
            return "the table was dropped and created again"
        if self.shows(link.snapshot, link.sequence):
            return None
        return (
            "the table was rolled back to a snapshot before it" if self.main else "the table has no snapshot any more"
        )

    def shows(self, snapshot: int, sequence: int) -> bool:
        """Whether main still descends from a snapshot, as far as history is kept."""
        for ancestor in self.line():
            if ancestor.id == snapshot:
                return True
            if ancestor.sequence <= sequence:
                return False
        return self.main is not None

    # ------------------------------------------------------------ readers, turn, foreign writes

    def readers(self) -> list[ReaderMark]:
        found = [
            ReaderMark(*about, **json.loads(text))
            for name, text in self.properties.items()
            if (about := names.parse_property(name, names.READER))
        ]
        return sorted(found, key=lambda reader: (reader.mark, reader.pipeline, reader.stream))

    def reader(self, pipeline: str, stream: str) -> ReaderMark | None:
        return next((r for r in self.readers() if (r.pipeline, r.stream) == (pipeline, stream)), None)

    def lost(self, pipeline: str, stream: str) -> int | None:
        """Rows that a forced retention removed before a reader read them, if they were counted."""
        reader = self.reader(pipeline, stream)
        return reader.lost if reader else None

    def slowest(self) -> ReaderMark | None:
        """The reader that holds retention back."""
        return next((reader for reader in self.readers() if not reader.abandoned), None)

    def turn(self) -> Turn | None:
        text = self.properties.get(names.TURN)
        if not text:
            return None
        turn = json.loads(text)
        return Turn(turn["owner"], datetime.fromisoformat(turn["until"]), turn["by"])

    @property
    def inspected(self) -> int:
        """The sequence number up to which every row is known to be in order."""
        text = self.properties.get(names.INSPECTED)
        return int(json.loads(text)["sequence"]) if text else 0

    def foreign(self) -> list[Snapshot]:
        """Snapshots on main, oldest first, that other programs made since the last inspection."""
        return [snapshot for snapshot in self.uninspected() if snapshot.foreign]

    def uninspected(self) -> list[Snapshot]:
        """Snapshots on main, oldest first, that anyone made since the last inspection."""
        return [snapshot for snapshot in self.line() if snapshot.sequence > self.inspected][::-1]

    @property
    def gap(self) -> bool:
        """Whether other programs expired history before anyone could see what it had brought."""
        unseen = self.uninspected()
        if not unseen or unseen[0].parent in self.snapshots:
            return False
        # The walk ended with history itself. A last snapshot without a parent proves nothing: PyIceberg removes the
        # parent's id when it expires the parent. Only the next sequence number has no unseen snapshot before it.
        return unseen[0].sequence > self.inspected + 1

    @property
    def stopped(self) -> str | None:
        """Why no reader of the table can go on; None: no reason is known."""
        if self.gap:
            return SNAPSHOTS_EXPIRED
        # The reason that a reader recorded no longer holds once the table was restored.
        return None if self.orderly else self.properties.get(names.STOPPED)

    @property
    def unnumbered(self) -> bool:
        """Whether rows from before the table was adopted still have no number."""
        return UNNUMBERED in self.properties

    @property
    def orderly(self) -> bool:
        """Whether every row is known to have its own place in the order."""
        return not self.unnumbered and not self.gap and not self.foreign()

    @property
    def whole(self) -> bool:
        """Whether main's history goes back to the table's first snapshot, which has the first sequence number.

        A snapshot without a parent proves nothing: PyIceberg removes the parent's id when it expires the parent.
        """
        line = list(self.line())
        return not line or (line[-1].parent is None and line[-1].sequence <= 1)

    @property
    def columns(self) -> list[Mapping[str, Any]]:
        """The current schema's fields, as the document has them."""
        current = self.metadata.get("current-schema-id", 0)
        for schema in self.metadata.get("schemas") or ():
            if schema.get("schema-id") == current:
                return list(schema["fields"])
        return list((self.metadata.get("schema") or {}).get("fields", ()))


def find_link(state: TableState | None, pipeline: str, stream: str, table: str) -> Link | None:
    """Find the last slice that a table holds for a stream; StreamStopped if main no longer shows it."""
    link = state.link(pipeline, stream) if state else None
    why = state.stale(link) if state and link else None
    if link is None or why is None:
        return link
    raise StreamStopped(
        f"the table {table} says it holds slice {link.position.number}, but {why}",
        safe="Nothing was changed: neither the mark nor the table.",
        next_step=f"restore the table as it was; or `penstock state recover FILE --stream {stream}` sets table and "
        "store to what the table shows now, and the next run delivers what is missing",
        pipeline=pipeline,
        stream=stream,
    )


def describe_stopped_readers(state: TableState | None, table: str) -> list[str]:
    """Describe readers that cannot go on, for those who write to the table; empty: none is known."""
    readers = [reader for reader in state.readers() if not reader.abandoned] if state else []
    if state and readers and (why := state.stopped):
        return [
            f"every reader of {table} stops ({', '.join(reader.name for reader in readers)}): {why}. New rows are not "
            "read until the table is restored, or `penstock upkeep --accept-foreign` lets readers go on from what is "
            "there"
        ]
    return [
        f"{reader.name}, a reader of {table}, stops: {reader.lost} rows or deletes were removed before it had read "
        "them. Its next run prints how to go on"
        for reader in readers
        if reader.lost
    ]
