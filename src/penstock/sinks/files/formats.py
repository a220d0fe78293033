"""Encoders: Arrow batches to Parquet, CSV or NDJSON, a row group or a block at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import StreamRefused
from penstock.links.arrow_types import NoType, carried, type_of
from penstock.sinks.files.check import refuse_inexact
from penstock.sinks.files.options import Options

_COMPRESSION_SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst"}
#: bytes of a dictionary above which Arrow stops using it: columns of mostly distinct values are then 1.3 times faster
#: to write, and smaller
_MAX_DICTIONARY_BYTES = 64 << 10


class Encoder(Protocol):
    """One open file."""

    def write(self, batches: Sequence[pa.RecordBatch]) -> None: ...
    def size(self) -> int: ...
    def close(self) -> int:
        """Finish the file; returns its rows."""
        ...

    def abandon(self) -> None:
        """Close the file without finishing it."""
        ...


def choose_suffix(options: Options) -> str:
    if options.format == "parquet":
        return ".parquet"
    return f".{options.format}{_COMPRESSION_SUFFIXES[options.compression or 'none']}"


def open_encoder(file: pa.NativeFile, schema: pa.Schema, options: Options) -> Encoder:
    if options.format == "parquet":
        return _Parquet(file, schema, options.compression or "zstd")
    for field in schema:
        try:
            refuse_inexact(field.name, type_of(field.type), options.format)
        except NoType as none:
            raise StreamRefused(f"column {field.name!r}: {none}", next_step="leave it out with `columns`") from none
    kind = _Csv if options.format == "csv" else _Ndjson
    return kind(file, carried(schema), options.compression or "none")


class _Parquet:
    def __init__(self, file: pa.NativeFile, schema: pa.Schema, compression: str) -> None:
        import pyarrow.parquet as pq

        self.file = file
        level = {"compression_level": 1} if compression == "zstd" else {}
        self.writer: Any = pq.ParquetWriter(
            self.file,
            schema,
            compression=compression,
            dictionary_pagesize_limit=_MAX_DICTIONARY_BYTES,
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
        # Arrow would write the footer when it releases the writer, into a file that is closed by then.
        self.writer.is_open = False
        self.file.close()


class _Text:
    """A text file, compressed or not."""

    def __init__(self, file: pa.NativeFile, schema: pa.Schema, compression: str) -> None:
        self.file = file
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
            # First, because it writes its trailer into the file; on a full disk that fails.
            with contextlib.suppress(OSError):
                self.out.close()
        self.file.close()


class _Csv(_Text):
    """RFC 4180 with a header; a NULL is an empty field, an empty string is ""."""

    def __init__(self, file: pa.NativeFile, schema: pa.Schema, compression: str) -> None:
        from pyarrow import csv

        super().__init__(file, schema, compression)
        self.csv = csv
        self.header = True

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        from penstock.sinks.files.text import format_times

        for batch in batches:
            options = self.csv.WriteOptions(include_header=self.header)
            self.csv.write_csv(format_times(batch.cast(self.schema)), self.out, options)
            self.header = False
            self.rows += batch.num_rows


class _Ndjson(_Text):
    """One JSON object per line; exact numbers, times in ISO 8601."""

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        from penstock.sinks.files.text import format_json_lines

        for batch in batches:
            self.out.write(format_json_lines(batch.cast(self.schema)))
            self.rows += batch.num_rows
