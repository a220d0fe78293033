"""Files in a table's folder that no state of the table names.

What a slice that the table holds has left behind goes at once: no one can commit it any more. Files of slices that
the table does not hold yet stay, whatever their age. Anything else goes when it is old enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.sizes import shown_size
from penstock.lake.standing import Standing
from penstock.lake.upkeep.expiry import must_be_whole
from penstock.lake.upkeep.options import YOUNGEST_ORPHAN
from penstock.lake.upkeep.reach import Reach, Slices, plain, shared
from penstock.lake.upkeep.work import Done, Work, counted

if TYPE_CHECKING:
    from pyiceberg.table import Table

STEP = "orphans"


@dataclass(frozen=True)
class Found:
    """A file in the table's folder."""

    path: str
    bytes: int
    at: datetime


def sweep(work: Work) -> list[Done]:
    """Remove what nothing names. The folder is listed first, so that whatever is committed meanwhile is seen."""
    location = work.loaded()[0].location()
    listed = list(_listed(work, location))
    table, standing = work.loaded()
    must_be_whole(work.name, standing)
    named = Reach().add(table, table.metadata.snapshots).all | shared(table)
    if not any(found.path in named for found in listed):
        raise work.failed(
            f"none of the {len(listed)} files in {location} is named by the table, so none is taken for an orphan",
            "see whether the table's files were moved, or are reached by another path",
        )
    going, waiting, young = _judged(work, standing, [found for found in listed if found.path not in named])
    size = sum(found.bytes for found in going)
    kept = _kept(waiting, young)
    facts = {"files": len(going), "bytes": size, "waiting": len(waiting), "young": len(young)}
    if not going:
        return [Done(STEP, f"no orphans among {counted(len(listed), 'file')}{kept}", facts)]
    shown = f"{counted(len(going), 'file')} ({shown_size(size)}) that no snapshot names{kept}"
    if work.dry_run:
        return [Done(STEP, f"would remove {shown}", facts)]
    _remove(table, going)
    return [Done(STEP, f"removed {shown}", facts)]


def _kept(waiting: list[Found], young: list[Found]) -> str:
    parts = []
    if waiting:
        parts.append(f"{counted(len(waiting), 'file')} of slices that have not landed")
    if young:
        parts.append(f"{counted(len(young), 'file')} too young to tell")
    return f"; kept {' and '.join(parts)}" if parts else ""


def _judged(work: Work, standing: Standing, unnamed: list[Found]) -> tuple[list[Found], list[Found], list[Found]]:
    """Files that go, files that a landing may still commit, and files that are too young."""
    slices = Slices.of(standing)
    limit = work.options.orphans.older_than
    before = work.now - (limit if work.force else max(limit, YOUNGEST_ORPHAN))
    going, waiting, young = [], [], []
    for found in unnamed:
        if slices.left_over(found.path) or (found.at < before and (work.force or not slices.awaited(found.path))):
            going.append(found)
        elif slices.awaited(found.path):
            waiting.append(found)
        else:
            young.append(found)
    return going, waiting, young


def _listed(work: Work, location: str) -> Iterator[Found]:
    where = plain(location).rstrip("/")
    if where.startswith("/"):
        yield from _in_folder(where)
    else:
        yield from _in_bucket(work, where)


def _in_folder(folder: str) -> Iterator[Found]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            try:
                about = os.stat(path)
            except FileNotFoundError:
                continue  # its writer has removed it meanwhile
            yield Found(path, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC))


def _in_bucket(work: Work, where: str) -> Iterator[Found]:
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = work.loaded()[0].io
    if not isinstance(io, PyArrowFileIO):
        raise work.failed(
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
