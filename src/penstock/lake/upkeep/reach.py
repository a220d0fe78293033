"""Which files a table's states name, and how the same file is spelt by different writers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.lake import names
from penstock.lake.standing import Standing

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def plain(location: str) -> str:
    """One spelling: /path for what is local, s3://bucket/key for what is not."""
    if re.match(r"file:", location):
        return "/" + location.removeprefix("file:").lstrip("/")
    return re.sub(r"^s3[an]://", "s3://", location)


@dataclass
class Reach:
    """Files by their plain spelling; a manifest is read once, however many states share it."""

    #: manifest lists
    lists: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    #: data and delete files that are live in some state
    files: set[str] = field(default_factory=set)

    def add(self, table: Table, snapshots: Iterable[Snapshot], known: Reach | None = None) -> Reach:
        """Everything that these states name. Manifests that `known` has read are not read again."""
        for snapshot in snapshots:
            self.lists.add(plain(snapshot.manifest_list))
            for manifest in snapshot.manifests(table.io):
                path = plain(manifest.manifest_path)
                if path in self.manifests or (known is not None and path in known.manifests):
                    continue
                self.manifests.add(path)
                entries = manifest.fetch_manifest_entry(table.io)
                self.files |= {plain(entry.data_file.file_path) for entry in entries}
        return self

    @property
    def all(self) -> set[str]:
        return self.lists | self.manifests | self.files


@dataclass(frozen=True)
class Slices:
    """The last slice that a table holds of each stream, by the stream's tag: what its files' names are judged by."""

    held: Mapping[str, int]

    @classmethod
    def of(cls, standing: Standing) -> Slices:
        return cls({names.stream_tag(*about): link.position.number for about, link in standing.links().items()})

    def awaited(self, path: str) -> bool:
        """Whether a landing may still commit this file: its slice comes after the one that the table holds."""
        about = names.of_file(path.rpartition("/")[2])
        return about is not None and about[1] > self.held.get(about[0], 0)

    def left_over(self, path: str) -> bool:
        """Whether it is of a slice that the table holds: if no state names it, no one will commit it any more."""
        about = names.of_file(path.rpartition("/")[2])
        return about is not None and about[1] <= self.held.get(about[0], 0)


def shared(table: Table) -> set[str]:
    """Files beside the states' own: metadata documents and statistics."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {each.statistics_path for each in metadata.statistics}
    found |= {each.statistics_path for each in metadata.partition_statistics}
    return {plain(location) for location in found}
