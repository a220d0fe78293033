"""Pieces: what a worker must know of a data file, and of which rows it may read. Small, picklable, writable as JSON."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from penstock.core.documents import Document, canonical, parse
from penstock.core.slices import Part
from penstock.errors import StreamFailed, StreamRefused
from penstock.lake import names
from penstock.lake.projection import Names, find_column

#: what to do where a data file is gone, or cannot be read: a retry is planned anew on the table as it is by then
RUN_AGAIN = "run again; the slice is planned anew on the table as it is then"


@dataclass(frozen=True, slots=True)
class ScanFile:
    """One data file of a table, with the delete files that apply to it."""

    path: str
    #: bytes
    size: int
    #: rows, those that position deletes name included
    rows: int
    #: the least and the greatest number in it; None: not known
    low: int | None
    high: int | None
    #: paths of its position delete files
    deletes: tuple[str, ...] = ()
    #: field id and JSON text of each identity partition's value, for files that leave such a column out
    constants: tuple[tuple[int, str], ...] = ()

    def document(self) -> Document:
        return {
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "low": self.low,
            "high": self.high,
            "deletes": list(self.deletes),
            "constants": [list(constant) for constant in self.constants],
        }

    @classmethod
    def of(cls, document: Any) -> ScanFile:
        deletes, constants = document["deletes"], document["constants"]
        plain = {name: document[name] for name in ("path", "size", "rows", "low", "high")}
        return cls(**plain, deletes=tuple(deletes), constants=tuple((id_, text) for id_, text in constants))

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
    """A range of numbers, (after, upto], and the pieces that may hold its rows."""

    after: int
    upto: int
    pieces: tuple[ScanFile, ...]

    def part(self, index: int) -> Part:
        pieces = [piece.document() for piece in self.pieces]
        return Part(index, canonical({"after": self.after, "upto": self.upto, "pieces": pieces}))

    @classmethod
    def of(cls, part: Part) -> NumberRange:
        terms = parse(part.terms)
        return cls(terms["after"], terms["upto"], tuple(ScanFile.of(piece) for piece in terms["pieces"]))


Item = TypeVar("Item")


def group_overlapping(items: Iterable[Item], bounds: Callable[[Item], tuple[int, int]]) -> Iterator[Sequence[Item]]:
    """Items in groups: within a group their ranges overlap, and each group lies wholly after the one before."""
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


def group_scan_files(pieces: Iterable[ScanFile], after: int, upto: int) -> Iterator[Sequence[ScanFile]]:
    """The pieces of a range in overlapping groups, in the order of their numbers."""

    def bounds(piece: ScanFile) -> tuple[int, int]:
        low = after + 1 if piece.low is None else max(piece.low, after + 1)
        return low, upto if piece.high is None else min(piece.high, upto)

    return group_overlapping((piece for piece in pieces if piece.within(after, upto)), bounds)


def make_gone(path: str) -> StreamFailed:
    return StreamFailed(
        f"{path} is not there any more: the table was compacted or expired meanwhile", next_step=RUN_AGAIN
    )


def make_unreadable(path: str, error: BaseException) -> StreamFailed:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return StreamFailed(f"{path} cannot be read: {reason}", next_step=RUN_AGAIN)


#: files that are open at the same time
MAX_OPEN_FILES = 32

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group that holds rows of a range."""

    piece: ScanFile
    group: int
    #: the place of its first row in the file
    first: int
    rows: int
    #: the least and greatest number in it
    low: int
    high: int
    #: its share of the file, in bytes
    size: int

    def bounds(self, after: int, upto: int) -> tuple[int, int]:
        """Its numbers within a range; what lies outside overlaps nothing."""
        return max(self.low, after + 1), min(self.high, upto)


@dataclass(frozen=True, slots=True)
class _Opened:
    file: pq.ParquetFile
    stack: ExitStack


class OpenDataFiles:
    """The files of one table. Keeps some of them open, and the footers and deletes of all that were; not picklable."""

    def __init__(self, io: FileIO, schema: Schema, known: Names | None = None) -> None:
        self._io = io
        self._seq = schema.find_field(names.SEQ)
        self.known = known
        self._open: OrderedDict[str, _Opened] = OrderedDict()
        self._footers: dict[str, pq.FileMetaData] = {}
        #: what each delete file is asked about, and what it said
        self._asked: defaultdict[str, set[str]] = defaultdict(set)
        self._places: dict[tuple[str, str], Int64s] = {}

    def __enter__(self) -> OpenDataFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, find_foreign_rows: TracebackType | None
    ) -> None:
        while self._open:
            self._open.popitem()[1].stack.close()

    def file(self, path: str) -> pq.ParquetFile:
        """A data file, opened now or before; StreamFailed if it is not there any more."""
        if path not in self._open:
            while len(self._open) >= MAX_OPEN_FILES:
                self._open.popitem(last=False)[1].stack.close()
            with ExitStack() as stack, explain_read_errors(path):
                source = stack.enter_context(self._io.new_input(path).open())
                # One large read for each column is for a store far away; a local file need not be held in memory.
                file = stack.enter_context(
                    pq.ParquetFile(
                        source,
                        metadata=self._footers.get(path),
                        pre_buffer=not _local(path),
                        coerce_int96_timestamp_unit="us",
                    )
                )
                self._footers[path] = file.metadata
                self._open[path] = _Opened(file, stack.pop_all())
        self._open.move_to_end(path)
        return self._open[path].file

    def units(self, piece: ScanFile, after: int, upto: int) -> list[RowGroup]:
        """The row groups with numbers in a range. Rows without a number are in none."""
        self._will_ask(piece)
        file = self.file(piece.path)
        column = self.column(piece.path)
        if column is None:
            return []
        leaves = {file.metadata.schema.column(index).path: index for index in range(file.metadata.num_columns)}
        all_bytes = sum(_size(file.metadata.row_group(group)) for group in range(file.num_row_groups)) or 1
        units, first = [], 0
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            at, first = first, first + about.num_rows
            low_high = self._bounds(piece.path, group, about.column(leaves[column]).statistics)
            if low_high is None or low_high[0] > upto or low_high[1] <= after:
                continue
            size = piece.size * _size(about) // all_bytes
            units.append(RowGroup(piece, group, at, about.num_rows, *low_high, size))
        return units

    def _bounds(self, path: str, group: int, statistics: pq.Statistics | None) -> tuple[int, int] | None:
        """A row group's least and greatest number; None: it has none."""
        if statistics is not None and statistics.has_min_max:
            return int(statistics.min), int(statistics.max)
        numbers, valid = self._numbers(path, group)
        known = numbers[valid]
        return (int(known.min()), int(known.max())) if len(known) else None

    def column(self, path: str) -> str | None:
        """What a file calls the column with the numbers; None: it has none."""
        file = self.file(path)
        at = find_column(self._seq, list(file.schema_arrow), self.known)
        return None if at is None else str(file.schema_arrow.field(at).name)

    def _numbers(self, path: str, group: int) -> tuple[Int64s, Mask]:
        file = self.file(path)
        with explain_read_errors(path):
            column = file.read_row_group(group, columns=[self.column(path)]).column(0)
        # Not to_numpy at once: with a NULL among them the numbers would pass through floats.
        return (
            pc.fill_null(column, 0).cast(pa.int64()).to_numpy(),
            pc.is_valid(column).to_numpy(),
        )

    def numbers(self, path: str, rows: int) -> Int64s:
        """All numbers of a file in the order of its rows, deleted ones too; 0 for a row without one."""
        if self.column(path) is None:
            return np.zeros(rows, np.int64)
        find_column = [self._numbers(path, group)[0] for group in range(self.file(path).num_row_groups)]
        return np.concatenate(find_column) if find_column else np.empty(0, np.int64)

    def selected(self, unit: RowGroup, after: int, upto: int) -> tuple[Int64s, Mask]:
        """All numbers of a unit, and which of its rows are alive and in the range."""
        numbers, valid = self._numbers(unit.piece.path, unit.group)
        mask = valid & (numbers > after) & (numbers <= upto)
        dead = self.dead(unit.piece)
        begin, end = np.searchsorted(dead, (unit.first, unit.first + unit.rows))
        mask[dead[begin:end] - unit.first] = False
        return numbers, mask

    def dead(self, piece: ScanFile) -> Int64s:
        """The places of a file's deleted rows, sorted."""
        self._will_ask(piece)
        for delete in piece.deletes:
            if (delete, piece.path) not in self._places:
                self._ask(delete)
        places = [self._places[delete, piece.path] for delete in piece.deletes]
        return np.unique(np.concatenate(places)) if places else np.empty(0, np.int64)

    def _will_ask(self, piece: ScanFile) -> None:
        for delete in piece.deletes:
            self._asked[delete].add(piece.path)

    def _ask(self, delete: str) -> None:
        """Read a delete file once for all data files that are known to name it."""
        asked = sorted(data for data in self._asked[delete] if (delete, data) not in self._places)
        with explain_read_errors(delete), self._io.new_input(delete).open() as source:
            said = pq.read_table(
                source,
                columns=["file_path", "pos"],
                filters=[("file_path", "in", asked)],
                read_dictionary=["file_path"],
            )
        said = said.unify_dictionaries().combine_chunks()
        paths = said.column("file_path").combine_chunks()
        places: Int64s = said.column("pos").to_numpy()
        known = paths.dictionary.to_pylist()
        for data in asked:
            code = known.index(data) if data in known else -1
            self._places[delete, data] = places[paths.indices.to_numpy() == code]


@contextmanager
def explain_read_errors(path: str) -> Iterator[None]:
    """What goes wrong with a file, named."""
    try:
        yield
    except FileNotFoundError as error:
        raise make_gone(path) from error
    except (OSError, pa.ArrowException) as error:
        raise make_unreadable(path, error) from error


def _size(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(index).total_compressed_size for index in range(group.num_columns))


def _local(path: str) -> bool:
    return path.startswith(("/", "file:"))


def refuse_without_numbers(schema: Schema, table: str) -> None:
    """StreamRefused for a table that was never adopted."""
    if names.SEQ not in schema.column_names:
        raise StreamRefused(
            f"{table} has no column {names.SEQ}, which gives its rows their order",
            next_step="adopt the table first, or let penstock write it",
        )


def in_order(numbers: Sequence[int] | Int64s) -> bool:
    values = np.asarray(numbers)
    return bool(np.all(values[1:] >= values[:-1]))
