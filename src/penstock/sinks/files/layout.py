"""Where things lie in the output folder. Pure: names only, nothing is touched.

    OUT/<stream>/[<column>_<by>=<value>/]<number>-<range>-<attempt>-<part>-<k>.parquet      what readers see
    OUT/<stream>/current -> …/refresh/<number>.<attempt>/                                   a full refresh
    OUT/_penstock/<pipeline>/<stream>/manifests/<number>.json                               the commits, in order
    OUT/_penstock/<pipeline>/<stream>/staged/<number>.<attempt>/                            put aside, not visible
    OUT/_penstock/<pipeline>/<stream>/refresh/<number>.<attempt>/                           what `current` points to
    OUT/_penstock/<pipeline>/<stream>/withdrawn/                                          taken back by `state recover`

Names that begin with `_` are passed over by Spark, Arrow and Hive when they list a folder.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import quote

from penstock.core.marks import Mark
from penstock.core.slices import Kind, Slice

_MANIFEST = re.compile(r"^(\d{12})\.json$")
_FILE = re.compile(r"^(\d{8,})-\w+-\w+-[0-9a-z]+-\d{3,}-\d+\.(parquet|csv|ndjson)(\.gz|\.zst)?$")
_ATTEMPT = re.compile(r"^(\d+)\.([0-9a-z]+)$")


def safe(name: str) -> str:
    """A name as one folder name that neither hides nor climbs."""
    text = quote(name, safe=" -_.~@+,=")
    return "%" + f"{ord(text[0]):02X}" + text[1:] if text[:1] in ("_", ".") else text


def label(mark: Mark | None) -> str:
    """A mark in a few characters that any file system takes; `key` is what sources show of a mark."""
    if mark is None:
        return "start"
    shown = mark.document.get("key") or mark.text
    text = "_".join(shown) if isinstance(shown, list) else str(shown)
    return re.sub(r"[^0-9A-Za-z_]+", "", text.replace("+00", ""))[:32] or "mark"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one stream, relative to the output folder."""

    pipeline: str
    stream: str

    @property
    def data(self) -> str:
        return safe(self.stream)

    @property
    def meta(self) -> str:
        return os.path.join("_penstock", safe(self.pipeline), safe(self.stream))

    @property
    def manifests(self) -> str:
        return os.path.join(self.meta, "manifests")

    @property
    def staged(self) -> str:
        return os.path.join(self.meta, "staged")

    @property
    def refreshes(self) -> str:
        return os.path.join(self.meta, "refresh")

    @property
    def withdrawn(self) -> str:
        return os.path.join(self.meta, "withdrawn")

    @property
    def current(self) -> str:
        return os.path.join(self.data, "current")

    @property
    def archives(self) -> str:
        """The beginning of the folders that hold what `state migrate` moved out of the way."""
        return os.path.join("_before", safe(self.stream))

    def other_pipelines(self, root: str) -> list[str]:
        """Pipelines besides this one that have written the stream's folder."""
        _, own, stream = self.meta.split(os.sep)
        top = os.path.join(root, "_penstock")
        found = sorted(os.listdir(top)) if os.path.isdir(top) else []
        return [name for name in found if name != own and os.path.isdir(os.path.join(top, name, stream, "manifests"))]

    def manifest(self, number: int) -> str:
        return os.path.join(self.manifests, f"{number:012d}.json")

    def attempt(self, number: int, attempt: str) -> str:
        return os.path.join(self.staged, f"{number}.{attempt}")

    def refresh(self, number: int, attempt: str) -> str:
        return os.path.join(self.refreshes, f"{number}.{attempt}")

    def final(self, slice_: Slice, attempt: str) -> str:
        """The folder in which a slice's files become visible."""
        return self.refresh(slice_.number, attempt) if slice_.kind is Kind.REFRESH else self.data


def stem(slice_: Slice) -> str:
    """The beginning of a slice's file names: its number and range."""
    return f"{slice_.number:08d}-{label(slice_.after)}-{label(slice_.upto)}"


def manifest_number(name: str) -> int | None:
    found = _MANIFEST.match(name)
    return int(found.group(1)) if found else None


def file_number(name: str) -> int | None:
    """The slice number of a file that readers see; None: it is not ours."""
    found = _FILE.match(name)
    return int(found.group(1)) if found else None


def attempt_number(name: str) -> int | None:
    """The slice number of a staged or refresh folder."""
    found = _ATTEMPT.match(name)
    return int(found.group(1)) if found else None
