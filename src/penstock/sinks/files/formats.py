"""Encoders: Arrow batches to Parquet, CSV or NDJSON, a row group or a block at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import StreamRefused
from penstock.links.arrow_types import NoType, carried, type_of
from penstock.sinks.files.options import Options
from penstock.sinks.files.textual import refusal

_ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
#: a dictionary beyond this is given up: columns of mostly different values are 1.3 times faster without, and smaller
_DICTIONARY = 64 << 10


class Encoder(Protocol):
    """One open file."""

    def write(self, batches: Sequence[pa.RecordBatch]) -> None: ...
    def size(self) -> int: ...
    def close(self) -> int:
        """Finish the file; returns its rows."""
        ...

    def abandon(self) -> None:
        """Let go of the file without finishing it."""
        ...


def suffix(options: Options) -> str:
    if options.format == "parquet":
        return ".parquet"
    return f".{options.format}{_ENDINGS[options.compression or 'none']}"


def encoder(path: str, schema: pa.Schema, options: Options) -> Encoder:
    if options.format == "parquet":
        return _Parquet(path, schema, options.compression or "zstd")
    refuse_untextual(schema, options.format)
    kind = _Csv if options.format == "csv" else _Ndjson
    return kind(path, carried(schema), options.compression or "none")


def refuse_untextual(schema: pa.Schema, format_: str) -> None:
    """Text formats have no exact form for bytes or most nested values."""
    for field in schema:
        try:
            found = refusal(field.name, type_of(field.type), format_)
        except NoType as none:
            raise StreamRefused(f"column {field.name!r}: {none}", next_step="leave it out with `columns`") from none
        if found:
            raise StreamRefused(found[0], next_step=found[1])


class _Parquet:
    def __init__(self, path: str, schema: pa.Schema, compression: str) -> None:
        import pyarrow.parquet as pq

        self.file = pa.OSFile(path, "wb")
        level = {"compression_level": 1} if compression == "zstd" else {}
        self.writer: Any = pq.ParquetWriter(
            self.file,
            schema,
            compression=compression,
            dictionary_pagesize_limit=_DICTIONARY,
            store_decimal_as_integer=True,
            **level,
        )
        self.rows = 0

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(batches)
        self.writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.rows += table.num_rows

    def size(self) -> int:
        return int(self.file.tell())

    def close(self) -> int:
        self.writer.close()
        self.file.close()
        return self.rows

    def abandon(self) -> None:
        # Arrow would write the footer when it lets go of the writer, into a file that is closed by then.
        self.writer.is_open = False
        self.file.close()


class _Text:
    """A text file, compressed or not."""

    def __init__(self, path: str, schema: pa.Schema, compression: str) -> None:
        self.file = pa.OSFile(path, "wb")
        self.out = self.file if compression == "none" else pa.CompressedOutputStream(self.file, compression)
        self.schema = schema
        self.rows = 0

    def size(self) -> int:
        return int(self.file.tell())

    def close(self) -> int:
        if self.out is not self.file:
            self.out.close()
        self.file.close()
        return self.rows

    def abandon(self) -> None:
        if self.out is not self.file:
            # First, because it writes its end into the file; a full disk takes no end.
            with contextlib.suppress(OSError):
                self.out.close()
        self.file.close()


class _Csv(_Text):
    """RFC 4180 with a header; a NULL is an empty field, an empty text is ""."""

    def __init__(self, path: str, schema: pa.Schema, compression: str) -> None:
        from pyarrow import csv

        super().__init__(path, schema, compression)
        self.csv = csv
        self.header = True

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        from penstock.sinks.files.text import readable

        for batch in batches:
            options = self.csv.WriteOptions(include_header=self.header)
            self.csv.write_csv(readable(batch.cast(self.schema)), self.out, options)
            self.header = False
            self.rows += batch.num_rows


class _Ndjson(_Text):
    """One JSON object a line; exact numbers, times as ISO 8601."""

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        from penstock.sinks.files.text import json_lines

        for batch in batches:
            self.out.write(json_lines(batch.cast(self.schema)))
            self.rows += batch.num_rows
