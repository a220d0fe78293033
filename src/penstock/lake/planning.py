"""Plans a read, on the driver: which files hold a range of numbers, where a slice ends, how it is cut into parts.

Files are found by the bounds in the manifests. No data file is opened for that; only where a slice must end inside of
files are their footers and number columns read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from pyiceberg.conversions import to_json
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import ALWAYS_TRUE, FileScanTask, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import PrimitiveType

from penstock.errors import StreamRefused
from penstock.lake import names
from penstock.lake.data_files import (
    Int64s,
    NumberRange,
    OpenDataFiles,
    ScanFile,
    group_overlapping,
    group_scan_files,
    read_bounds,
)
from penstock.lake.projection import parse_name_mapping

#: a table property: column names of files without field ids
NAME_MAPPING = "schema.name-mapping.default"
#: larger files are planned by their row groups
LARGE_FILE_BYTES = 32 << 20
#: a part should have at least this many bytes of Arrow data
SMALL_PART_BYTES = 8 << 20
#: bytes of Arrow data for each byte of a file, while the rows' size is not known; 4.2 was measured on orders in zstd
ARROW_BYTES_PER_FILE_BYTE = 4


def open_data_files(table: Table) -> OpenDataFiles:
    """Open the table's data files; the caller closes them."""
    return OpenDataFiles(table.io, table.schema(), parse_name_mapping(table.properties.get(NAME_MAPPING)))


# ---------------------------------------------------------------- which files


def find_files(table: Table, snapshot: int | None, after: int, upto: int) -> list[ScanFile]:
    """The files of a snapshot that may hold numbers in (after, upto]; None: the table has no snapshot yet."""
    if names.SEQ not in table.schema().column_names:
        raise StreamRefused(
            f"{'.'.join(table.name())} has no column {names.SEQ}, which gives its rows their order",
            next_step="adopt the table first, or let penstock write it",
        )
    if snapshot is None or after >= upto:
        return []
    chosen = f"{names.SEQ} > {after} and {names.SEQ} <= {upto}"
    return [make_scan_file(table, task.file, task.delete_files) for task in plan_files(table, snapshot, chosen)]


def plan_files(table: Table, snapshot: int, chosen: str | None = None) -> list[FileScanTask]:
    """The files of a snapshot, or those that may hold chosen rows; StreamRefused if it has equality deletes."""
    try:
        return list(table.scan(row_filter=chosen or ALWAYS_TRUE, snapshot_id=snapshot).plan_files())
    except (NotImplementedError, ValueError):
        # PyIceberg does not plan with equality deletes, and does not say which file it is.
        _refuse_equality_deletes(table, snapshot)
        raise


def make_scan_file(table: Table, file: DataFile, deletes: Iterable[DataFile]) -> ScanFile:
    """A data file as workers know it; StreamRefused if it, or one of its deletes, cannot be read."""
    paths = []
    for each in (file, *deletes):
        if each.file_format != FileFormat.PARQUET:
            raise StreamRefused(
                f"{each.file_path} is a {each.file_format.value} file; of the lake's files only Parquet can be read",
                next_step="rewrite the table's files and deletes as Parquet, in format version 2, with its writer",
            )
        paths.append(each.file_path)
    seq = table.schema().find_field(names.SEQ).field_id
    return ScanFile(
        file.file_path,
        file.file_size_in_bytes,
        file.record_count,
        *read_bounds(file, seq),
        tuple(sorted(paths[1:])),
        tuple(_constants(table, file)),
    )


def _constants(table: Table, file: DataFile) -> Iterator[tuple[int, str]]:
    """Values of identity partitions: a file that was added to the table, not written for it, may lack their columns."""
    top = {field.field_id: field for field in table.schema().fields}
    for index, part in enumerate(table.specs()[file.spec_id].fields):
        value, field = file.partition[index], top.get(part.source_id)
        if not isinstance(part.transform, IdentityTransform) or value is None or field is None:
            continue
        assert isinstance(field.field_type, PrimitiveType)
        exact = UUID(bytes=value) if isinstance(value, bytes) and str(field.field_type) == "uuid" else value
        yield field.field_id, json.dumps(to_json(field.field_type, exact))


def _refuse_equality_deletes(table: Table, snapshot: int) -> None:
    found = table.metadata.snapshot_by_id(snapshot)
    for manifest in found.manifests(table.io) if found else ():
        if manifest.content != ManifestContent.DELETES:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                raise StreamRefused(
                    f"{entry.data_file.file_path} is an equality delete file, which cannot be read here",
                    next_step=f"compact {'.'.join(table.name())} with its writer (Flink, for one, writes such files), "
                    "then run again",
                )


# ---------------------------------------------------------------- where a slice ends


@dataclass(frozen=True, slots=True)
class _Load:
    """A file, or a row group of a large one: how much of a range it is thought to hold."""

    scan_file: ScanFile
    #: its numbers, within the range
    low: int
    high: int
    rows: int
    #: bytes of Arrow data
    bytes: float

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low, self.high


def find_end(
    files: OpenDataFiles,
    scan_files: Iterable[ScanFile],
    after: int,
    upto: int,
    *,
    budget: int,
    rows: int | None = None,
    row_bytes: float | None = None,
) -> int:
    """Where a slice after `after` ends, at most at `upto`: the highest number that the budget allows.

    It holds at most `rows` rows. Its bytes are estimated: by `row_bytes` if that is known, else from the files' sizes.
    It ends between files or row groups; inside of them only if the first ones are too large alone, or if rows are
    counted. There is always progress.
    """
    bytes_left, rows_left, end = float(budget), rows, after
    for group in _groups(files, scan_files, after, upto, row_bytes):
        bytes_, count = sum(load.bytes for load in group), sum(load.rows for load in group)
        if bytes_ <= bytes_left and (rows_left is None or count <= rows_left):
            bytes_left -= bytes_
            rows_left = None if rows_left is None else rows_left - count
            end = max(load.high for load in group)
            continue
        if end == after or rows is not None:
            return _inside(files, group, end, bytes_left, rows_left, first=end == after, row_bytes=row_bytes)
        return end
    return upto


def _groups(
    files: OpenDataFiles, scan_files: Iterable[ScanFile], after: int, upto: int, row_bytes: float | None
) -> Iterator[Sequence[_Load]]:
    """Group the loads of a range that overlap, in order. Footers are read when they are reached."""
    for together in group_scan_files(scan_files, after, upto):
        loads = [load for scan_file in together for load in _loads(files, scan_file, after, upto, row_bytes)]
        yield from group_overlapping(loads, lambda load: load.bounds)


def _loads(
    files: OpenDataFiles, scan_file: ScanFile, after: int, upto: int, row_bytes: float | None
) -> Iterator[_Load]:
    if scan_file.size <= LARGE_FILE_BYTES and scan_file.low is not None and scan_file.high is not None:
        yield _load(scan_file, scan_file.low, scan_file.high, scan_file.rows, scan_file.size, after, upto, row_bytes)
        return
    for row_group in files.row_groups(scan_file, after, upto):
        yield _load(scan_file, row_group.low, row_group.high, row_group.rows, row_group.size, after, upto, row_bytes)


def _load(
    scan_file: ScanFile, low: int, high: int, rows: int, size: int, after: int, upto: int, row_bytes: float | None
) -> _Load:
    inside = (max(low, after + 1), min(high, upto))
    share = (inside[1] - inside[0] + 1) / (high - low + 1)
    # Rows are never thought fewer than they may be; bytes are a matter of taste, so numbers are taken to lie evenly.
    numbers = inside[1] - inside[0] + 1
    bytes_ = share * (rows * row_bytes if row_bytes is not None else size * ARROW_BYTES_PER_FILE_BYTE)
    return _Load(scan_file, *inside, min(rows, numbers), bytes_)


def _inside(
    files: OpenDataFiles,
    group: Sequence[_Load],
    after: int,
    bytes_left: float,
    rows_left: int | None,
    *,
    first: bool,
    row_bytes: float | None,
) -> int:
    """The highest number within a group that the budget allows, by reading its numbers; `after`: none of them.

    Only as many numbers are kept as fit, and whatever begins above the last of those is not read.
    """
    upto = max(load.high for load in group)
    numbers, weights = np.empty(0, np.int64), np.empty(0, np.float64)
    # The group is in the order of its least numbers.
    for scan_file in dict.fromkeys(load.scan_file for load in group):
        for row_group in files.row_groups(scan_file, after, upto) if scan_file.within(after, upto) else ():
            if row_group.low > upto:
                continue
            found, mask = files.select(row_group, after, upto)
            weight = row_bytes if row_bytes is not None else row_group.size * ARROW_BYTES_PER_FILE_BYTE / row_group.rows
            numbers = np.concatenate((numbers, found[mask]))
            weights = np.concatenate((weights, np.full(int(mask.sum()), weight)))
            order = np.argsort(numbers, kind="stable")
            numbers, weights = numbers[order], weights[order]
            fits = int(np.searchsorted(np.cumsum(weights), bytes_left, side="right"))
            fits = fits if rows_left is None else min(fits, rows_left)
            fits = max(fits, 1) if first else fits
            if fits < len(numbers):
                numbers, weights = numbers[:fits], weights[:fits]
                upto = int(numbers[-1]) if fits else after
    return upto


# ---------------------------------------------------------------- parts


def find_part_ends(
    files: OpenDataFiles,
    scan_files: Iterable[ScanFile],
    after: int,
    upto: int,
    *,
    most: int,
    row_bytes: float | None = None,
) -> list[int]:
    """Where the parts of a slice end: at most `most`, of about the same size, the last at `upto`.

    A part ends between files or row groups where one ends near by, so that few are opened twice.
    """
    groups = list(_groups(files, scan_files, after, upto, row_bytes))
    loads = [load for group in groups for load in group]
    total = sum(load.bytes for load in loads)
    count = min(most, int(total // SMALL_PART_BYTES))
    if count <= 1:
        return [upto]
    points, filled = _filling(loads)
    ends = np.array([max(load.high for load in group) for group in groups])
    filled_at_ends = np.interp(ends, points, filled)
    found = set()
    for index in range(1, count):
        target = total * index / count
        near = int(np.argmin(np.abs(filled_at_ends - target)))
        apart = abs(float(filled_at_ends[near]) - target)
        found.add(
            int(ends[near])
            if apart <= total / count / 4
            else max(after + 1, round(float(np.interp(target, filled, points))))
        )
    return [*sorted(bound for bound in found if after < bound < upto), upto]


def _filling(loads: Sequence[_Load]) -> tuple[Int64s, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Bytes up to each number at which a load begins or ends; between them they grow evenly."""
    points = np.unique([number for load in loads for number in (load.low - 1, load.high)])
    density = np.zeros(len(points))
    for load in loads:
        begin, end = np.searchsorted(points, (load.low - 1, load.high))
        per_number = load.bytes / (load.high - load.low + 1)
        density[begin] += per_number
        density[end] -= per_number
    grown = np.cumsum(density)[:-1] * np.diff(points)
    return points, np.concatenate(([0.0], np.cumsum(grown)))


def cut_parts(
    files: OpenDataFiles,
    scan_files: Sequence[ScanFile],
    after: int,
    upto: int,
    *,
    most: int,
    row_bytes: float | None = None,
) -> list[NumberRange]:
    """Cut a slice into parts, in order, each with the files that may hold its rows."""
    ends = find_part_ends(files, scan_files, after, upto, most=most, row_bytes=row_bytes)
    return [
        NumberRange(begin, end, tuple(scan_file for scan_file in scan_files if scan_file.within(begin, end)))
        for begin, end in zip([after, *ends[:-1]], ends, strict=True)
    ]
