"""Manifests: the commit of a slice into files. One per slice, named by its number, created only if absent."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.core.content import OtherFormat
from penstock.core.marks import Mark
from penstock.core.slices import Kind, Slice

#: the version of the form, and of the content in it
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Named:
    """A file of a slice."""

    #: where readers see it, relative to the output folder
    name: str
    #: where it was put aside
    staged: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a slice consists of, and its place in the chain."""

    slice: Slice
    attempt: str
    rows: int
    #: size of the rows as Arrow; the files know their own
    arrow_bytes: int
    #: the schema the files were written with, for people
    schema: str
    files: tuple[Named, ...] = field(default_factory=tuple)
    #: a refresh swaps one link: (where it was put aside, what it points to)
    link: tuple[str, str] | None = None

    def text(self) -> str:
        s = self.slice
        document: dict[str, Any] = {
            "penstock_manifest": FORMAT,
            "id": s.id,
            "pipeline": s.pipeline,
            "stream": s.stream,
            "number": s.number,
            "kind": s.kind.value,
            "after": s.after.document if s.after else None,
            "upto": s.upto.document if s.upto else None,
            "previous": s.previous,
            "content": json.loads(s.content),
            "attempt": self.attempt,
            "rows": self.rows,
            "arrow_bytes": self.arrow_bytes,
            "schema": self.schema,
            "files": [asdict(named) for named in self.files],
            "link": list(self.link) if self.link else None,
        }
        if s.spool:
            document["spool"] = s.spool
        return json.dumps(document, indent=1, ensure_ascii=True, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """OtherFormat if another version of penstock wrote it; ValueError or KeyError if it is damaged."""
        d = json.loads(text)
        if d["penstock_manifest"] != FORMAT:
            raise OtherFormat(f"its format is {d['penstock_manifest']}, this penstock reads {FORMAT}")
        slice_ = Slice(
            pipeline=d["pipeline"],
            stream=d["stream"],
            number=d["number"],
            after=Mark.of(d["after"]) if d["after"] is not None else None,
            upto=Mark.of(d["upto"]) if d["upto"] is not None else None,
            content=Mark.of(d["content"]).text,
            previous=d["previous"],
            kind=Kind(d["kind"]),
            spool=d.get("spool", ""),
        )
        # Computed again: it must agree.
        if slice_.id != d["id"]:
            raise ValueError("its contents do not give its id")
        return cls(
            slice=slice_,
            attempt=d["attempt"],
            rows=d["rows"],
            arrow_bytes=d["arrow_bytes"],
            schema=d["schema"],
            files=tuple(Named(**named) for named in d["files"]),
            link=tuple(d["link"]) if d["link"] else None,
        )


def sync_folder(path: str) -> None:
    """Make names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folders(path: str, root: str) -> None:
    """Create a folder below the root, durably: each new name is synced in its parent."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if path != root:
        make_folders(parent, root)
    os.makedirs(path, exist_ok=True)
    sync_folder(parent)


def write_durably(path: str, text: str) -> None:
    """A new file whose bytes are on disk when this returns."""
    with open(path, "x", encoding="ascii") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
