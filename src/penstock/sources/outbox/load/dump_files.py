"""The files of a dump, CSV or Parquet: checked when they are named, and read in a worker as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError, StreamFailed
from penstock.sources.outbox.feeds import needed_columns
from penstock.sources.outbox.load.declared import Load
from penstock.sources.outbox.load.dumps import Dump

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = {".csv": "csv", ".parquet": "parquet"}
#: clocks of two machines differ, and that of a file system is coarse
CLOCK_TOLERANCE = timedelta(seconds=2)
#: bytes of a row of a CSV file, where only the file's size is known
_CSV_ROW_BYTES = 100

# ------------------------------------------------------------ what was named


def find_files(patterns: Sequence[str]) -> list[Path]:
    """The files that paths and patterns name, each once; InputError for one that is none."""
    found: list[Path] = []
    for pattern in patterns:
        if "://" in pattern:
            raise _refused(f"{pattern} is no local file", "copy the dump to a folder that this machine and workers see")
        names = sorted(glob(pattern, recursive=True)) if has_magic(pattern) else [pattern]
        files = [Path(name).resolve() for name in names if not Path(name).is_dir()]
        missing = [path for path in files if not path.is_file()]
        if missing or not files:
            raise _refused(f"there is no file {pattern}", "correct --from; a folder is named as 'folder/*.parquet'")
        found += [path for path in files if path not in found]
    for path in found:
        if path.suffix.lower() not in FORMATS:
            raise _refused(f"{path.name} is neither a .csv nor a .parquet file", "convert it, or correct --from")
    return found


def make_dump(paths: Sequence[Path], loads: Sequence[Load], horizon: datetime, limit: int | None) -> Dump:
    """The dump for one table; InputError for a file that is too old, or lacks a column."""
    files: list[Mapping[str, Any]] = []
    pieces: list[Mapping[str, Any]] = []
    left = limit
    for path in paths:
        stat = path.stat()
        written = datetime.fromtimestamp(stat.st_mtime, UTC)
        if written < horizon - CLOCK_TOLERANCE:
            raise too_old(f"{path.name} was last written at {_text(written)}", horizon)
        format_ = FORMATS[path.suffix.lower()]
        columns, groups = _look(path, format_)
        _check_columns(path, columns, loads)
        file = {"path": str(path), "size": stat.st_size, "mtime": stat.st_mtime_ns, "format": format_}
        for group, rows in enumerate(groups):
            most = None
            if left is not None:
                if left <= 0:
                    break
                rows = _count(path, left) if rows is None else rows
                most = min(left, rows)
                left, rows = left - most, most
            rows = max(1, stat.st_size // _CSV_ROW_BYTES) if rows is None else rows
            pieces.append({"file": len(files), "group": group, "rows": rows, "most": most})
        files.append(file)
    return Dump(tuple(files), tuple(pieces), limit)


def too_old(what: str, horizon: datetime) -> InputError:
    """The refusal of a dump from before the horizon."""
    return _refused(
        f"{what}, and the stream waits since {_text(horizon)}: changes made in between would be missing",
        "make a dump now, and name the time at which it was begun with --made-at",
    )


def _look(path: Path, format_: str) -> tuple[list[str], list[int | None]]:
    """The columns of a file, and the rows of each of its pieces; None: not known."""
    import pyarrow as pa

    try:
        if format_ == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(path) as file:
                _check_types(path, file.schema_arrow)
                groups = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
                return list(file.schema_arrow.names), list(groups)
        with _open_csv(path, None) as reader:
            return list(reader.schema.names), [None]
    except (OSError, pa.ArrowException) as error:
        raise _refused(f"{path.name} cannot be read: {str(error).splitlines()[0]}", "correct the file") from None


def _check_columns(path: Path, columns: Sequence[str], loads: Sequence[Load]) -> None:
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise _refused(f"{path.name} has two columns {twice[0]}", "give each column a name of its own")
    for load in loads:
        for name in needed_columns(load.feed):
            if name not in columns:
                raise _refused(
                    f"{path.name} has no column {name}, which {load.name} needs; {suggest(name, columns, 'columns')}",
                    "make the dump with the names of the table's columns; a CSV file needs them in its first line",
                )


def _check_types(path: Path, schema: pa.Schema) -> None:
    import pyarrow as pa

    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            raise _refused(
                f"column {field.name} of {path.name} is {field.type}, for which there is no text that Postgres reads",
                "write the column as text, as COPY does",
            )


def _count(path: Path, most: int) -> int:
    """Rows of a CSV file, not counted beyond a limit."""
    found = 0
    with _open_csv(path, None) as reader:
        for batch in reader:
            found += batch.num_rows
            if found >= most:
                break
    return min(found, most)


def _refused(what: str, next_step: str) -> InputError:
    return InputError(what, safe=UNTOUCHED, next_step=next_step)


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


# ------------------------------------------------------------ in a worker


def read_piece(terms: Mapping[str, Any], columns: Sequence[str], stream: str) -> pa.RecordBatchReader:
    """The rows of a piece as text that Postgres reads; StreamFailed if the file has changed."""
    import pyarrow as pa

    file = terms["file"]
    path = Path(file["path"])
    try:
        stat = path.stat()
        if (stat.st_size, stat.st_mtime_ns) != (file["size"], file["mtime"]):
            raise _unreadable(path, "it was changed after `penstock loads start`", stream)
        schema = pa.schema([pa.field(name, pa.string()) for name in columns])
        batches = _parquet(path, terms["group"], columns) if file["format"] == "parquet" else _csv(path, columns)
        return pa.RecordBatchReader.from_batches(schema, _first(batches, terms["most"], schema, path, stream))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, str(error).splitlines()[0], stream) from error


def _first(
    batches: Iterator[pa.RecordBatch], most: int | None, schema: pa.Schema, path: Path, stream: str
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    left = most
    try:
        for batch in batches:
            taken = batch if left is None else batch.slice(0, left)
            yield pa.RecordBatch.from_arrays([_as_text(column) for column in taken.columns], schema=schema)
            if left is not None and (left := left - taken.num_rows) <= 0:
                return
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, str(error).splitlines()[0], stream) from error


def _parquet(path: Path, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(row_groups=[group], columns=list(columns), batch_size=16_384):
            yield batch.select(list(columns))


def _csv(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _open_csv(path, columns) as reader:
        yield from reader


def _open_csv(path: Path, columns: Sequence[str] | None) -> Any:
    """As `COPY … WITH (FORMAT csv, HEADER)` writes it: an empty field is NULL, an empty string is quoted."""
    import pyarrow as pa
    from pyarrow import csv

    with path.open("rb") as file:
        first = file.readline()
    names = list(next(iter(_header(first)), []))
    return csv.open_csv(
        path,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            include_columns=list(columns) if columns is not None else None,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _header(line: bytes) -> Iterator[list[str]]:
    from csv import reader

    return reader([line.decode("utf-8-sig")])


def _as_text(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return pc.cast(column, pa.string())


def _unreadable(path: Path, why: str, stream: str) -> StreamFailed:
    return StreamFailed(
        f"{path.name} cannot be loaded: {why}",
        next_step=f"put the file back as it was; or drop the open slice with `penstock state recover FILE --stream "
        f"{stream}`, and load the table itself with `penstock loads start FILE`",
        stream=stream,
    )
