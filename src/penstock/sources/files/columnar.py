"""Parquet and ORC files: columns by the file's own schema, cut by row groups or stripes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.core.content import Column, Columns
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.sources.files.conversion import Fitter, Policy
from penstock.sources.files.heads import BATCH_BYTES, Head, Piece, unreadable
from penstock.sources.files.places import File, Place, shown

if TYPE_CHECKING:
    import pyarrow as pa

#: Arrow bytes for each byte of a file
_GROWTH = 3


@dataclass(frozen=True, slots=True)
class Columnar:
    """See `heads.Format`."""

    kind: Literal["parquet", "orc"]
    policy: Policy
    #: the columns that are read; (): all
    only: tuple[str, ...] = ()

    def inspect(self, place: Place, file: File, stream: str) -> Head:
        import pyarrow as pa

        try:
            with place.open(file, stream) as native:
                found = self._open(native)
                return self._head(found, file, place, stream)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise unreadable(file, place, self.kind, error, stream) from None

    def _open(self, native: Any) -> Any:
        if self.kind == "orc":
            from pyarrow import orc

            return orc.ORCFile(native)
        from pyarrow import parquet

        return parquet.ParquetFile(native)

    def _head(self, found: Any, file: File, place: Place, stream: str) -> Head:
        schema = found.schema if self.kind == "orc" else found.schema_arrow
        columns = read_columns(schema, self.only, file, place, stream)
        names = tuple(column.name for column in columns)
        if self.kind == "orc":
            rows, groups = found.nrows, (0,) * found.nstripes
            size = file.version.size * _GROWTH
        else:
            about = found.metadata
            rows = about.num_rows
            each = [about.row_group(at) for at in range(about.num_row_groups)]
            groups = tuple(group.num_rows for group in each)
            size = sum(group.total_byte_size for group in each)
        return Head(columns, names, rows, rows, max(size, 1), groups)

    def guess(self, place: Place, file: File, stream: str) -> Columns:
        return self.inspect(place, file, stream).columns or ()

    def cut(self, place: Place, file: File, head: Head, most: int, stream: str) -> Sequence[Piece]:
        groups = len(head.groups)
        # Stripes do not say their rows.
        rows = head.groups if sum(head.groups) else (1,) * groups
        whole = max(1, sum(rows))
        pieces: list[Piece] = []
        start, size = 0, 0
        for at, count in enumerate(rows):
            weight = head.bytes * count // whole
            if at > start and size + weight > most:
                pieces.append(Piece(start, at, size))
                start, size = at, 0
            size += weight
        return [*pieces, Piece(start, groups, size)] if groups else []

    def read(
        self, place: Place, file: File, piece: tuple[int, int], columns: Columns, stream: str
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_schema

        schema, fitter = arrow_schema(columns), Fitter(self.policy)
        with place.open(file, stream) as native:
            found = self._open(native)
            for batch in self._batches(found, piece, columns):
                arrays = [fitter.fit(column.name, batch.column(column.name), column.type) for column in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _batches(self, found: Any, piece: tuple[int, int], columns: Columns) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in columns]
        # Arrow takes a name with a point for a nested field.
        chosen = None if any("." in name for name in names) else names
        if self.kind == "orc":
            for at in range(*piece):
                batch = found.read_stripe(at, columns=chosen)
                rows = max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes))
                yield from (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))
            return
        for at in range(*piece):
            group = found.metadata.row_group(at)
            rows = max(1, group.num_rows * BATCH_BYTES // max(1, group.total_byte_size))
            yield from found.iter_batches(
                batch_size=min(rows, max(1, group.num_rows)), row_groups=[at], columns=chosen, use_threads=False
            )


def read_columns(schema: pa.Schema, only: Sequence[str], file: File, place: Place, stream: str) -> Columns:
    """A file's columns; StreamRefused for a type that is not known, or a name that is there twice."""
    from penstock.links.arrow_types import NoType, type_of

    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise StreamRefused(
            f"{shown(file.path)} in {place.shown} has the column {twice[0]!r} twice",
            safe=UNTOUCHED,
            next_step="write the file with distinct names, or leave it out with `exclude`",
            stream=stream,
        )
    columns = []
    for each in schema:
        if only and each.name not in only:
            continue
        try:
            columns.append(Column(each.name, type_of(each.type)))
        except NoType:
            raise StreamRefused(
                f"the column {each.name!r} of {shown(file.path)} in {place.shown} has the type {each.type}, which "
                "cannot be read",
                safe=UNTOUCHED,
                next_step="list the other columns in `columns`",
                stream=stream,
            ) from None
    return tuple(columns)
