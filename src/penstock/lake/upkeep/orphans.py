"""Files in a table's folder that no state of the table names.

What a slice that the table holds has left behind goes at once: no one can commit it any more. Files of slices that
the table does not hold yet stay, whatever their age. Anything else goes when it is old enough.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.sizes import shown_size
from penstock.lake import names
from penstock.lake.table_state import TableState
from penstock.lake.upkeep.job import StepResult, UpkeepJob, count_noun, refuse_rolled_back
from penstock.lake.upkeep.options import YOUNGEST_ORPHAN

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

STEP = "orphans"


@dataclass(frozen=True)
class Found:
    """A file in the table's folder."""

    path: str
    bytes: int
    at: datetime


def remove_orphans(job: UpkeepJob) -> list[StepResult]:
    """Remove what nothing names. The folder is listed first, so that whatever is committed meanwhile is seen."""
    location = job.loaded()[0].location()
    listed = list(_listed(job, location))
    table, state = job.loaded()
    refuse_rolled_back(job.name, state)
    named = ReferencedFiles().add(table, table.metadata.snapshots).all | list_metadata_files(table)
    if not any(found.path in named for found in listed):
        raise job.failed(
            f"none of the {len(listed)} files in {location} is named by the table, so none is taken for an orphan",
            "see whether the table's files were moved, or are reached by another path",
        )
    going, waiting, young = _judged(job, state, [found for found in listed if found.path not in named])
    size = sum(found.bytes for found in going)
    kept = _kept(waiting, young)
    facts = {"files": len(going), "bytes": size, "waiting": len(waiting), "young": len(young)}
    if not going:
        return [StepResult(STEP, f"no orphans among {count_noun(len(listed), 'file')}{kept}", facts)]
    shown = f"{count_noun(len(going), 'file')} ({shown_size(size)}) that no snapshot names{kept}"
    if job.dry_run:
        return [StepResult(STEP, f"would remove {shown}", facts)]
    _remove(table, going)
    return [StepResult(STEP, f"removed {shown}", facts)]


def _kept(waiting: list[Found], young: list[Found]) -> str:
    parts = []
    if waiting:
        parts.append(f"{count_noun(len(waiting), 'file')} of slices that have not landed")
    if young:
        parts.append(f"{count_noun(len(young), 'file')} too young to tell")
    return f"; kept {' and '.join(parts)}" if parts else ""


def _judged(job: UpkeepJob, state: TableState, unnamed: list[Found]) -> tuple[list[Found], list[Found], list[Found]]:
    """Files that go, files that a landing may still commit, and files that are too young."""
    slices = Slices.of(state)
    limit = job.options.orphans.older_than
    before = job.now - (limit if job.force else max(limit, YOUNGEST_ORPHAN))
    going, waiting, young = [], [], []
    for found in unnamed:
        if slices.left_over(found.path) or (found.at < before and (job.force or not slices.awaited(found.path))):
            going.append(found)
        elif slices.awaited(found.path):
            waiting.append(found)
        else:
            young.append(found)
    return going, waiting, young


def _listed(job: UpkeepJob, location: str) -> Iterator[Found]:
    where = normalize(location).rstrip("/")
    if where.startswith("/"):
        yield from _in_folder(where)
    else:
        yield from _in_bucket(job, where)


def _in_folder(folder: str) -> Iterator[Found]:
    for parent, _, filenames in os.walk(folder):
        for name in filenames:
            path = os.path.join(parent, name)
            try:
                about = os.stat(path)
            except FileNotFoundError:
                continue  # its writer has removed it meanwhile
            yield Found(path, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC))


def _in_bucket(job: UpkeepJob, where: str) -> Iterator[Found]:
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = job.loaded()[0].io
    if not isinstance(io, PyArrowFileIO):
        raise job.failed(
            f"files in {where} cannot be listed through {type(io).__name__}",
            "leave py-io-impl out of the catalog's properties, or leave out this step with --only",
        )
    scheme, _, key = where.partition("://")
    bucket = key.partition("/")[0]
    store: Any = io.fs_by_scheme(scheme, bucket)
    for about in store.get_file_info(fs.FileSelector(key, recursive=True, allow_not_found=True)):
        if about.type == fs.FileType.File:
            yield Found(f"{scheme}://{about.path}", about.size, about.mtime.astimezone(UTC))


def _remove(table: Table, files: list[Found]) -> None:
    from penstock.lake.parquet import remove

    for found in files:
        remove(found.path, table.io)


def normalize(location: str) -> str:
    """One spelling: /path for what is local, s3://bucket/key for what is not."""
    if re.match(r"file:", location):
        return "/" + location.removeprefix("file:").lstrip("/")
    return re.sub(r"^s3[an]://", "s3://", location)


@dataclass
class ReferencedFiles:
    """Files by their plain spelling; a manifest is read once, however many states share it."""

    #: manifest lists
    lists: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    #: data and delete files that are live in some state
    files: set[str] = field(default_factory=set)

    def add(self, table: Table, snapshots: Iterable[Snapshot], known: ReferencedFiles | None = None) -> ReferencedFiles:
        """Everything that these states name. Manifests that `known` has read are not read again."""
        for snapshot in snapshots:
            self.lists.add(normalize(snapshot.manifest_list))
            for manifest in snapshot.manifests(table.io):
                path = normalize(manifest.manifest_path)
                if path in self.manifests or (known is not None and path in known.manifests):
                    continue
                self.manifests.add(path)
                entries = manifest.fetch_manifest_entry(table.io)
                self.files |= {normalize(entry.data_file.file_path) for entry in entries}
        return self

    @property
    def all(self) -> set[str]:
        return self.lists | self.manifests | self.files


@dataclass(frozen=True)
class Slices:
    """The last slice that a table holds of each stream, by the stream's tag: what its files' names are judged by."""

    held: Mapping[str, int]

    @classmethod
    def of(cls, state: TableState) -> Slices:
        return cls({names.stream_tag(*about): link.position.number for about, link in state.links().items()})

    def awaited(self, path: str) -> bool:
        """Whether a landing may still commit this file: its slice comes after the one that the table holds."""
        about = names.parse_file_name(path.rpartition("/")[2])
        return about is not None and about[1] > self.held.get(about[0], 0)

    def left_over(self, path: str) -> bool:
        """Whether it is of a slice that the table holds: if no state names it, no one will commit it any more."""
        about = names.parse_file_name(path.rpartition("/")[2])
        return about is not None and about[1] <= self.held.get(about[0], 0)


def list_metadata_files(table: Table) -> set[str]:
    """Files beside the states' own: metadata documents and statistics."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {each.statistics_path for each in metadata.statistics}
    found |= {each.statistics_path for each in metadata.partition_statistics}
    return {normalize(location) for location in found}
