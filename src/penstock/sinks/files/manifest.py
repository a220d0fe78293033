"""Manifests: the commit of a slice into files. One per slice, named by its number, created only if absent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from penstock.core.content import OtherFormat
from penstock.core.slices import Slice, read_slice, slice_document

#: the version of the form, and of the content in it
FORMAT = 3


@dataclass(frozen=True, slots=True)
class SliceFile:
    """A file of a slice."""

    #: where readers see it, relative to the output folder
    name: str
    #: where it is staged: a path, or the id of an upload
    staged: str
    rows: int
    bytes: int
    sha256: str
    #: the parts of the upload, in order
    etags: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: dict[str, Any]) -> SliceFile:
        return cls(**{**document, "etags": tuple(document.get("etags", ()))})

    def document(self) -> dict[str, Any]:
        """As manifests and receipts have it."""
        return {name: value for name, value in asdict(self).items() if name != "etags" or value}


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
    #: a refresh in a local folder swaps one link: (where it is staged, its target)
    link: tuple[str, str] | None = None

    def text(self) -> str:
        document = slice_document(self.slice) | {"penstock_manifest": FORMAT, "id": self.slice.id}
        document |= {name: value for name, value in asdict(self).items() if name != "slice"}
        document["files"] = [file.document() for file in self.files]
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
        more["files"] = tuple(map(SliceFile.read, document["files"]))
        more["link"] = tuple(document["link"]) if document["link"] else None
        return cls(slice_, **more)


@dataclass(frozen=True, slots=True)
class Newest:
    """A manifest that exists, so that a look need not list all of them."""

    number: int
    id: str

    def text(self) -> str:
        return json.dumps({"penstock_newest": 1, **asdict(self)}, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> Newest | None:
        """None: it is damaged, or of another version; then all manifests are listed."""
        try:
            document = json.loads(text)
            if document["penstock_newest"] == 1 and isinstance(document["number"], int) and document["number"] > 0:
                return cls(document["number"], str(document["id"]))
        except (ValueError, KeyError, TypeError):
            pass
        return None
