"""Manifests: the commit of a slice into files. One per slice, named by its number, created only if absent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields

from penstock.core.content import OtherFormat
from penstock.core.slices import Slice, read_slice, slice_document

#: the version of the form, and of the content in it
FORMAT = 3


@dataclass(frozen=True, slots=True)
class SliceFile:
    """A file of a slice."""

    #: where readers see it, relative to the output folder
    name: str
    #: where it is staged
    staged: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The files of a slice, and its place in the chain."""

    slice: Slice
    attempt: str
    rows: int
    #: size of the rows as Arrow; each file has its own size
    arrow_bytes: int
    #: the schema of the files, human-readable
    schema: str
    files: tuple[SliceFile, ...] = field(default_factory=tuple)
    #: a refresh swaps one link: (where it is staged, its target)
    link: tuple[str, str] | None = None

    def text(self) -> str:
        document = slice_document(self.slice) | {"penstock_manifest": FORMAT, "id": self.slice.id}
        document |= {name: value for name, value in asdict(self).items() if name != "slice"}
        del document["plan"]
        return json.dumps(document, indent=1, ensure_ascii=True, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """OtherFormat if another version of penstock wrote it; ValueError or KeyError if it is damaged."""
        document = json.loads(text)
        if document["penstock_manifest"] != FORMAT:
            raise OtherFormat(f"its format is {document['penstock_manifest']}, this penstock reads {FORMAT}")
        slice_ = read_slice({each.name: document[each.name] for each in fields(Slice) if each.name != "plan"})
        # Computed again: it must match.
        if slice_.id != document["id"]:
            raise ValueError("its contents do not give its id")
        more = {each.name: document[each.name] for each in fields(cls) if each.name != "slice"}
        more["files"] = tuple(SliceFile(**file) for file in document["files"])
        more["link"] = tuple(document["link"]) if document["link"] else None
        return cls(slice_, **more)
