"""CSV files: every field is read as text by Arrow and converted exactly; cut by bytes where no field can be quoted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.content import Column, Columns
from penstock.core.types import Plain, Type
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.sources.files.conversion import BadValue, Fitter, Policy
from penstock.sources.files.heads import Head, Piece, unreadable
from penstock.sources.files.options import CsvOptions
from penstock.sources.files.places import File, Place, shown
from penstock.sources.files.text import (
    BLOCK_BYTES,
    SAMPLE_BYTES,
    Compression,
    bad_row,
    cut_lines,
    cut_quoted,
    estimate,
    lines_before,
    opened,
    sample,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: encodings in which a byte below 128 is always that character
_ASCII = ("utf-8", "ascii", "iso8859-1", "cp1252", "iso8859-15")
#: types of the vocabulary for types that Arrow guesses and text is not converted to
_GUESSED: dict[Type, Type] = {
    Plain.NULL: Plain.STRING,
    Plain.BINARY: Plain.STRING,
    Plain.TIMESTAMP_NS: Plain.TIMESTAMP,
    Plain.TIMESTAMPTZ_NS: Plain.TIMESTAMPTZ,
}


@dataclass(frozen=True, slots=True)
class Csv:
    """See `heads.Format`."""

    dialect: CsvOptions
    compression: Compression
    policy: Policy
    #: the fields' names in order, where no header has them
    fields: tuple[str, ...] = ()

    def inspect(self, place: Place, file: File, stream: str) -> Head:
        import pyarrow as pa

        if not file.version.size:
            return Head(None, None, 0, 0, 1)
        try:
            text = sample(place, file, self.compression, stream)
            names = self._names(text) if text and self.dialect.header else self.fields or None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise unreadable(file, place, "csv", error, stream) from None
        twice = [name for name, count in Counter(names or ()).items() if count > 1]
        if twice:
            raise StreamRefused(
                f"{shown(file.path)} in {place.shown} has the column {twice[0]!r} twice",
                safe=UNTOUCHED,
                next_step="write the file with distinct names, or leave it out with `exclude`",
                stream=stream,
            )
        return estimate(file, self.compression, text, names)

    def _names(self, text: bytes) -> tuple[str, ...]:
        return tuple(self._reader(_stream(text), handler=lambda _: "skip").schema.names)

    def guess(self, place: Place, file: File, stream: str) -> Columns:
        import pyarrow as pa

        from penstock.links.arrow_types import type_of

        try:
            text = sample(place, file, self.compression, stream)
            if len(text) == SAMPLE_BYTES:
                text = text[: text.rfind(b"\n") + 1]
            schema = self._reader(_stream(text), handler=lambda _: "skip", guesses=True).schema if text else ()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise unreadable(file, place, "csv", error, stream) from None
        return tuple(Column(each.name, _GUESSED.get(found := type_of(each.type), found)) for each in schema)

    def cut(self, place: Place, file: File, head: Head, most: int, stream: str) -> Sequence[Piece]:
        whole = [Piece(0, -1, head.bytes)] if file.version.size else []
        if self.compression.of(file) or self.dialect.encoding not in _ASCII or self.dialect.escape:
            return whole
        if not whole or not self.dialect.quote:
            return cut_lines(place, file, head, most, stream) if whole else []
        return cut_quoted(place, file, head, most, self.dialect, stream)

    def read(
        self, place: Place, file: File, piece: tuple[int, int], columns: Columns, stream: str
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_schema

        schema, fitter = arrow_schema(columns), Fitter(self.policy)
        names = None
        # Arrow reads the names itself. But where no file begins, or one column is read, they must be known.
        if self.dialect.header and (piece[0] > 0 or len(columns) == 1):
            names = self.inspect(place, file, stream).names or ()
        # Counted from 1, with the header.
        first = 1 + (1 if self.dialect.header and piece[0] == 0 else 0)
        done = 0

        def where(row: int) -> str:
            return f"row {lines_before(place, file, piece[0], stream) + first + row:,}"

        ragged: list[Any] = []

        def handler(row: Any) -> str:
            ragged.append(row)
            return "error"

        try:
            with opened(place, file, self.compression, stream, piece) as text:
                reader = self._reader(
                    text,
                    names=names if piece[0] > 0 else None,
                    only=[column.name for column in columns],
                    handler=handler,
                    is_single=len(names or columns) == 1,
                )
                for batch in reader:
                    try:
                        arrays = [fitter.fit(column.name, batch.column(column.name), column.type) for column in columns]
                    except BadValue as bad:
                        raise bad_row(file, place, where(done + bad.row), str(bad), stream, can_be_null=True) from None
                    done += batch.num_rows
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            if ragged:
                row = ragged[0]
                at = where((row.number or 1) - first) if row.number else where(done)
                why = f"it has {row.actual_columns} fields instead of {row.expected_columns}: {row.text[:80]!r}"
                raise bad_row(file, place, at, why, stream) from None
            raise bad_row(file, place, f"after {where(done - 1)}", str(error).split("\n")[0], stream) from None

    def _reader(
        self,
        text: Any,
        *,
        handler: Any,
        names: Sequence[str] | None = None,
        only: Sequence[str] = (),
        guesses: bool = False,
        is_single: bool = False,
    ) -> Any:
        from pyarrow import csv

        dialect = self.dialect
        names = list(names or ()) or ([] if dialect.header else list(self.fields))
        return csv.open_csv(
            text,
            read_options=csv.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, column_names=names or None, encoding=dialect.encoding
            ),
            parse_options=csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote or False,
                escape_char=dialect.escape or False,
                newlines_in_values=bool(dialect.quote or dialect.escape),
                # In a file with one column, an empty line is a row.
                ignore_empty_lines=not is_single,
                invalid_row_handler=handler,
            ),
            convert_options=csv.ConvertOptions(
                column_types=None if guesses else dict.fromkeys(only, _string()),
                include_columns=list(only) or None,
                null_values=list(dialect.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def _stream(text: bytes) -> Any:
    import pyarrow as pa

    return pa.BufferReader(text)


def _string() -> Any:
    import pyarrow as pa

    return pa.string()
