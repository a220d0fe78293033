"""The names in the output folder.

    OUT/<stream>/[<column>_<by>=<value>/]<number>-<attempt>-<part>-<k>.parquet              what readers see
    OUT/<stream>/current -> …/refresh/<number>.<attempt>/                                   a full refresh
    OUT/_penstock/<pipeline>/<stream>/manifests/<number>.json                               the commits, in order
    OUT/_penstock/<pipeline>/<stream>/newest.json                                           where a look begins
    OUT/_penstock/<pipeline>/<stream>/staged/<number>.<attempt>/                            staged, not visible
    OUT/_penstock/<pipeline>/<stream>/refresh/<number>.<attempt>/                           what `current` points to
    OUT/_penstock/<pipeline>/<stream>/withdrawn/                                              removed by `state recover`

Spark, Arrow and Hive skip names that begin with `_` when they list a folder.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import quote

from penstock.core.slices import Kind, Slice

_MANIFEST = re.compile(r"^(\d{12})\.json$")
_FILE = re.compile(r"^(\d{8,})-(?:\w+-\w+-)?[0-9a-z]+-\d{3,}-\d+\.(parquet|csv|ndjson)(\.gz|\.zst)?$")
_ATTEMPT = re.compile(r"^(\d+)\.([0-9a-z]+)$")


def safe(name: str) -> str:
    """Encode a name as one folder name, which is neither hidden nor leads out of the folder."""
    text = quote(name, safe=" -_.~@+,=")
    return "%" + f"{ord(text[0]):02X}" + text[1:] if text[:1] in ("_", ".") else text


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
    def newest(self) -> str:
        """Names the newest manifest, or an older one that existed."""
        return os.path.join(self.meta, "newest.json")

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
        """The beginning of the names of folders that `state migrate` moved away."""
        return os.path.join("_before", safe(self.stream))

    def manifest(self, number: int) -> str:
        return os.path.join(self.manifests, f"{number:012d}.json")

    def attempt(self, number: int, attempt: str) -> str:
        return os.path.join(self.staged, f"{number}.{attempt}")

    def refresh(self, number: int, attempt: str) -> str:
        return os.path.join(self.refreshes, f"{number}.{attempt}")

    def final(self, slice_: Slice, attempt: str) -> str:
        """The folder in which a slice's files become visible."""
        return self.refresh(slice_.number, attempt) if slice_.kind is Kind.REFRESH else self.data


def manifest_number(name: str) -> int | None:
    return _read_number(_MANIFEST, name)


def file_number(name: str) -> int | None:
    """The slice number of a file that readers see; None: penstock did not write it."""
    return _read_number(_FILE, name)


def attempt_number(name: str) -> int | None:
    """The slice number of a staged or refresh folder."""
    return _read_number(_ATTEMPT, name)


def _read_number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.match(name)
    return int(match[1]) if match else None


def list_names(folder: str) -> list[str]:
    """The names in a folder; empty: there is no such folder."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
