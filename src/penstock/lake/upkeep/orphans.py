"""Removes files in a table's folder that no snapshot of the table names.

Leftovers of a slice that the table holds go at once: no one can commit them any more. Files of slices that the table
does not hold yet stay, whatever their age. Any other file goes when it is old enough.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.sizes import count_noun, shown_size
from penstock.lake import names
from penstock.lake.parquet import remove
from penstock.lake.table_state import TableState
from penstock.lake.upkeep.job import StepResult, UpkeepJob, refuse_rolled_back
from penstock.lake.upkeep.options import YOUNGEST_ORPHAN

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

STEP = "orphans"


@dataclass(frozen=True)
class ListedFile:
    """A file in the table's folder."""

    path: str
    bytes: int
    at: datetime


def remove_orphans(job: UpkeepJob) -> list[StepResult]:
    """Remove what nothing names. The folder is listed first, so that files committed meanwhile are seen."""
    location = job.load()[0].location()
    listed = list(_list_files(job, location))
    table, state = job.load()
    refuse_rolled_back(job.name, state)
    named = ReferencedFiles().add(table, table.metadata.snapshots).all | list_metadata_files(table)
    if not any(file.path in named for file in listed):
        raise job.failed(
            f"the table names none of the {len(listed)} files in {location}, so none is taken for an orphan",
            "check whether the table's files were moved, or are reached by another path",
        )
    going, waiting, young = _sort_out(job, state, [file for file in listed if file.path not in named])
    size = sum(file.bytes for file in going)
    facts = {"files": len(going), "bytes": size, "waiting": len(waiting), "young": len(young)}
    parts = [f"{count_noun(len(waiting), 'file')} of slices that have not landed"] if waiting else []
    parts += [f"{count_noun(len(young), 'file')} too young to tell"] if young else []
    kept = f"; kept {' and '.join(parts)}" if parts else ""
    if not going:
        return [StepResult(STEP, f"no orphans among {count_noun(len(listed), 'file')}{kept}", facts)]
    if not job.dry_run:
        for file in going:
            remove(file.path, table.io)
    verb = "would remove" if job.dry_run else "removed"
    text = f"{verb} {count_noun(len(going), 'file')} ({shown_size(size)}) that no snapshot names{kept}"
    return [StepResult(STEP, text, facts)]


def _sort_out(
    job: UpkeepJob, state: TableState, unnamed: list[ListedFile]
) -> tuple[list[ListedFile], list[ListedFile], list[ListedFile]]:
    """Sort files into those that go, those that a landing may still commit, and those that are too young."""
    held = HeldSlices.of(state)
    limit = job.options.orphans.older_than
    before = job.now - (limit if job.force else max(limit, YOUNGEST_ORPHAN))
    going: list[ListedFile] = []
    waiting: list[ListedFile] = []
    young: list[ListedFile] = []
    for file in unnamed:
        awaited = held.is_awaited(file.path)
        if held.is_leftover(file.path) or (file.at < before and (job.force or not awaited)):
            going.append(file)
        else:
            (waiting if awaited else young).append(file)
    return going, waiting, young


def _list_files(job: UpkeepJob, location: str) -> Iterator[ListedFile]:
    where = normalize(location).rstrip("/")
    yield from _list_folder(where) if where.startswith("/") else _list_bucket(job, where)


def _list_folder(folder: str) -> Iterator[ListedFile]:
    for parent, _, filenames in os.walk(folder):
        for name in filenames:
            path = os.path.join(parent, name)
            try:
                about = os.stat(path)
            except FileNotFoundError:
                continue  # its writer has removed it meanwhile
            yield ListedFile(path, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC))


def _list_bucket(job: UpkeepJob, where: str) -> Iterator[ListedFile]:
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = job.load()[0].io
    if not isinstance(io, PyArrowFileIO):
        raise job.failed(
            f"files in {where} cannot be listed through {type(io).__name__}",
            "remove py-io-impl from the catalog's properties, or leave out this step with --only",
        )
    scheme, _, key = where.partition("://")
    store: Any = io.fs_by_scheme(scheme, key.partition("/")[0])
    for about in store.get_file_info(fs.FileSelector(key, recursive=True, allow_not_found=True)):
        if about.type == fs.FileType.File:
            yield ListedFile(f"{scheme}://{about.path}", about.size, about.mtime.astimezone(UTC))


# ---------------------------------------------------------------- which files a table names


def normalize(location: str) -> str:
    """One spelling for all writers: /path for a local file, s3://bucket/key for any other."""
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    return re.sub(r"^s3[an]://", "s3://", location)


@dataclass
class ReferencedFiles:
    """Files that snapshots name, in their normal spelling; a manifest is read once, however many snapshots share it."""

    lists: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    #: data and delete files that are live in some snapshot
    files: set[str] = field(default_factory=set)

    def add(self, table: Table, snapshots: Iterable[Snapshot], known: ReferencedFiles | None = None) -> ReferencedFiles:
        """Add everything that these snapshots name. Manifests that `known` has are not read again."""
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
class HeldSlices:
    """The number of the last slice that a table holds of each stream, by the stream's tag in file names."""

    numbers: Mapping[str, int]

    @classmethod
    def of(cls, state: TableState) -> HeldSlices:
        return cls({names.stream_tag(*about): link.position.number for about, link in state.links().items()})

    def is_awaited(self, path: str) -> bool:
        """Whether a landing may still commit this file: its slice comes after the one that the table holds."""
        about = names.parse_file_name(path.rpartition("/")[2])
        return about is not None and about[1] > self.numbers.get(about[0], 0)

    def is_leftover(self, path: str) -> bool:
        """Whether its slice is one that the table holds: if no snapshot names it, no one will commit it any more."""
        about = names.parse_file_name(path.rpartition("/")[2])
        return about is not None and about[1] <= self.numbers.get(about[0], 0)


def list_metadata_files(table: Table) -> set[str]:
    """Metadata documents and statistics, which no snapshot names."""
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
    return {normalize(location) for location in found}
