"""Data files of a table: what a worker must know of one, and open files with their row groups, numbers and deletes."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from penstock.core.documents import canonical, parse
from penstock.core.slices import Part
from penstock.errors import StreamFailed
from penstock.lake import names
from penstock.lake.projection import Names, find_column

#: next step for a data file that cannot be read: a retry plans the slice on the table as it is then
RUN_AGAIN = "run again; the slice is planned again on the table as it is then"


@dataclass(frozen=True, slots=True)
class ScanFile:
    """One data file of a table, with the delete files that apply to it."""

    path: str
    #: bytes
    size: int
    #: rows, those that position deletes name included
    rows: int
    #: the lowest and highest number in it; None: not known
    low: int | None
    high: int | None
    #: paths of its position delete files
    deletes: tuple[str, ...] = ()
    #: field id and JSON text of each identity partition's value, for files that leave such a column out
    constants: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ScanFile:
        """Read it from JSON, where tuples are lists."""
        constants = tuple((id_, text) for id_, text in document["constants"])
        return cls(**{**document, "deletes": tuple(document["deletes"]), "constants": constants})

    def within(self, after: int, upto: int) -> bool:
        """Whether it may hold rows of a range."""
        return (self.low is None or self.low <= upto) and (self.high is None or self.high > after)

    def rows_within(self, after: int, upto: int) -> int:
        """About how many of its rows lie in a range, as if its numbers were spread evenly."""
        if self.low is None or self.high is None:
            return self.rows
        shared = min(self.high, upto) - max(self.low - 1, after)
        return self.rows * max(0, shared) // (self.high - self.low + 1)


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A range of numbers, (after, upto], and the files that may hold its rows."""

    after: int
    upto: int
    scan_files: tuple[ScanFile, ...]

    def part(self, index: int) -> Part:
        return Part(index, canonical(asdict(self)))

    @classmethod
    def of(cls, part: Part) -> NumberRange:
        terms = parse(part.terms)
        return cls(terms["after"], terms["upto"], tuple(ScanFile.of(each) for each in terms["scan_files"]))


Item = TypeVar("Item")


def group_overlapping(items: Iterable[Item], bounds: Callable[[Item], tuple[int, int]]) -> Iterator[Sequence[Item]]:
    """Group items whose ranges overlap; each group lies wholly after the one before."""
    group: list[Item] = []
    end = 0
    for item in sorted(items, key=bounds):
        low, high = bounds(item)
        if group and low > end:
            yield group
            group = []
        end = max(end, high) if group else high
        group.append(item)
    if group:
        yield group


def group_scan_files(scan_files: Iterable[ScanFile], after: int, upto: int) -> Iterator[Sequence[ScanFile]]:
    """Group the files of a range that overlap, in the order of their numbers."""

    def bounds(scan_file: ScanFile) -> tuple[int, int]:
        low = after + 1 if scan_file.low is None else max(scan_file.low, after + 1)
        return low, upto if scan_file.high is None else min(scan_file.high, upto)

    return group_overlapping((scan_file for scan_file in scan_files if scan_file.within(after, upto)), bounds)


def read_bounds(file: DataFile, seq: int) -> tuple[int | None, int | None]:
    """Read the lowest and highest number in a file from its manifest entry; None: the manifest does not say."""

    def read(bounds: Mapping[int, bytes] | None) -> int | None:
        raw = (bounds or {}).get(seq)
        # Four bytes where the column was an int when the file was written.
        return None if raw is None else int.from_bytes(raw, "little", signed=True)

    return read(file.lower_bounds), read(file.upper_bounds)


#: files that are open at the same time
MAX_OPEN_FILES = 32

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group that holds rows of a range."""

    scan_file: ScanFile
    group: int
    #: the position of its first row in the file
    first: int
    rows: int
    #: the lowest and highest number in it
    low: int
    high: int
    #: its share of the file, in bytes
    size: int

    def bounds(self, after: int, upto: int) -> tuple[int, int]:
        """Its numbers within a range; what lies outside overlaps nothing."""
        return max(self.low, after + 1), min(self.high, upto)


class OpenDataFiles:
    """Open data files of one table. Keeps some of them open, and the footers and deletes of all; not picklable."""

    def __init__(self, io: FileIO, schema: Schema, known: Names | None = None) -> None:
        self._io = io
        self._seq = schema.find_field(names.SEQ)
        self.known = known
        self._open: OrderedDict[str, tuple[pq.ParquetFile, ExitStack]] = OrderedDict()
        self._footers: dict[str, pq.FileMetaData] = {}
        #: by delete file: the data files that name it; by both: the positions of deleted rows
        self._expected: defaultdict[str, set[str]] = defaultdict(set)
        self._places: dict[tuple[str, str], Int64s] = {}

    def __enter__(self) -> OpenDataFiles:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1][1].close()

    def file(self, path: str) -> pq.ParquetFile:
        """Open a data file, or return the open one; StreamFailed if it no longer exists."""
        if path not in self._open:
            while len(self._open) >= MAX_OPEN_FILES:
                self._open.popitem(last=False)[1][1].close()
            with ExitStack() as stack, explain_read_errors(path):
                source = stack.enter_context(self._io.new_input(path).open())
                # One large read for each column is for a store far away; a local file need not be held in memory.
                file = stack.enter_context(
                    pq.ParquetFile(
                        source,
                        metadata=self._footers.get(path),
                        pre_buffer=not path.startswith(("/", "file:")),
                        coerce_int96_timestamp_unit="us",
                    )
                )
                self._footers[path] = file.metadata
                self._open[path] = file, stack.pop_all()
        self._open.move_to_end(path)
        return self._open[path][0]

    def row_groups(self, scan_file: ScanFile, after: int, upto: int) -> list[RowGroup]:
        """The row groups with numbers in a range. Rows without a number are in none."""
        self._expect(scan_file)
        file = self.file(scan_file.path)
        column = self.column(scan_file.path)
        if column is None:
            return []
        leaves = {file.metadata.schema.column(index).path: index for index in range(file.metadata.num_columns)}
        all_bytes = sum(_size(file.metadata.row_group(group)) for group in range(file.num_row_groups)) or 1
        row_groups, first = [], 0
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            at, first = first, first + about.num_rows
            low_high = self._bounds(scan_file.path, group, about.column(leaves[column]).statistics)
            if low_high is None or low_high[0] > upto or low_high[1] <= after:
                continue
            size = scan_file.size * _size(about) // all_bytes
            row_groups.append(RowGroup(scan_file, group, at, about.num_rows, *low_high, size))
        return row_groups

    def _bounds(self, path: str, group: int, statistics: pq.Statistics | None) -> tuple[int, int] | None:
        """A row group's lowest and highest number; None: it has none."""
        if statistics is not None and statistics.has_min_max:
            return int(statistics.min), int(statistics.max)
        numbers, valid = self._numbers(path, group)
        known = numbers[valid]
        return (int(known.min()), int(known.max())) if len(known) else None

    def column(self, path: str) -> str | None:
        """The name of a file's column with the numbers; None: it has none."""
        file = self.file(path)
        at = find_column(self._seq, list(file.schema_arrow), self.known)
        return None if at is None else str(file.schema_arrow.field(at).name)

    def _numbers(self, path: str, group: int) -> tuple[Int64s, Mask]:
        file = self.file(path)
        with explain_read_errors(path):
            column = file.read_row_group(group, columns=[self.column(path)]).column(0)
        # Not to_numpy at once: with a NULL among them the numbers would pass through floats.
        return pc.fill_null(column, 0).cast(pa.int64()).to_numpy(), pc.is_valid(column).to_numpy()

    def numbers(self, path: str, rows: int) -> Int64s:
        """All numbers of a file in the order of its rows, deleted ones too; 0 for a row without one."""
        if self.column(path) is None:
            return np.zeros(rows, np.int64)
        groups = range(self.file(path).num_row_groups)
        return np.concatenate([np.empty(0, np.int64), *(self._numbers(path, group)[0] for group in groups)])

    def select(self, row_group: RowGroup, after: int, upto: int) -> tuple[Int64s, Mask]:
        """All numbers of a row group, and which of its rows are alive and in the range."""
        numbers, valid = self._numbers(row_group.scan_file.path, row_group.group)
        mask = valid & (numbers > after) & (numbers <= upto)
        dead = self.find_deleted(row_group.scan_file)
        begin, end = np.searchsorted(dead, (row_group.first, row_group.first + row_group.rows))
        mask[dead[begin:end] - row_group.first] = False
        return numbers, mask

    def find_deleted(self, scan_file: ScanFile) -> Int64s:
        """Find the positions of a file's deleted rows, sorted."""
        self._expect(scan_file)
        for delete in scan_file.deletes:
            if (delete, scan_file.path) not in self._places:
                self._read_deletes(delete)
        places = (self._places[delete, scan_file.path] for delete in scan_file.deletes)
        return np.unique(np.concatenate([np.empty(0, np.int64), *places]))

    def _expect(self, scan_file: ScanFile) -> None:
        for delete in scan_file.deletes:
            self._expected[delete].add(scan_file.path)

    def _read_deletes(self, delete: str) -> None:
        """Read a delete file once for all data files that are known to name it."""
        wanted = sorted(data for data in self._expected[delete] if (delete, data) not in self._places)
        with explain_read_errors(delete), self._io.new_input(delete).open() as source:
            deletes = pq.read_table(
                source,
                columns=["file_path", "pos"],
                filters=[("file_path", "in", wanted)],
                read_dictionary=["file_path"],
            )
        deletes = deletes.unify_dictionaries().combine_chunks()
        paths = deletes.column("file_path").combine_chunks()
        places: Int64s = deletes.column("pos").to_numpy()
        known = paths.dictionary.to_pylist()
        for data in wanted:
            code = known.index(data) if data in known else -1
            self._places[delete, data] = places[paths.indices.to_numpy() == code]


@contextmanager
def explain_read_errors(path: str) -> Iterator[None]:
    """Raise a StreamFailed that names the file, if it cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise StreamFailed(
            f"{path} no longer exists: the table was compacted, or a snapshot expired", next_step=RUN_AGAIN
        ) from error
    except (OSError, pa.ArrowException) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise StreamFailed(f"{path} cannot be read: {reason}", next_step=RUN_AGAIN) from error


def _size(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))


def in_order(numbers: Sequence[int] | Int64s) -> bool:
    values = np.asarray(numbers)
    return bool(np.all(values[1:] >= values[:-1]))
