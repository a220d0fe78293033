"""Compares source and sink with SQL, PyArrow and PyIceberg, without penstock.

Each row becomes one line of text, the same on both sides; a table's checksum is the MD5 of its lines in key order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from psycopg import sql

from demo.shop import Table

Connection = psycopg.Connection[tuple[Any, ...]]
#: number of keys listed for a difference
MAX_LISTED_KEYS = 5


@dataclass(frozen=True)
class Agreement:
    """One table on both sides."""

    table: str
    #: name of the sink
    sink: str
    rows: int
    rows_in_sink: int
    checksum: str
    checksum_in_sink: str
    #: number of duplicate rows in the sink
    twice: int
    #: description of the difference; "" if there is none
    differs: str

    @property
    def same(self) -> bool:
        return (self.rows, self.checksum, 0) == (self.rows_in_sink, self.checksum_in_sink, self.twice)


def agreement(connection: Connection, table: Table, sink: str, held: Any) -> Agreement:
    """Compare a table with a sink: the newest version of each key, and no duplicate versions."""
    in_sink = row_lines(newest(held, table), table)
    rows, checksum = server_checksum(connection, table)
    lines = "\n".join(in_sink.values())
    theirs = hashlib.md5(lines.encode(), usedforsecurity=False).hexdigest()
    differs = "" if (rows, checksum) == (len(in_sink), theirs) else difference(server_lines(connection, table), in_sink)
    twice = count_duplicates(held, table)
    return Agreement(table.name, sink, rows, len(in_sink), checksum, theirs, twice, differs)


# ------------------------------------------------------------ the server's side

_LINES = """SELECT {key}::text COLLATE "C" AS key, concat_ws('|', {cells}) AS line FROM {table}"""
_CHECKSUM = "SELECT count(*), md5(coalesce(string_agg(line, E'\\n' ORDER BY key), '')) FROM ({lines}) AS rows"


def server_checksum(connection: Connection, table: Table) -> tuple[int, str]:
    """Rows and checksum of a table, computed by the server."""
    row = connection.execute(sql.SQL(_CHECKSUM).format(lines=_lines(table))).fetchone()
    assert row is not None
    return row[0], row[1]


def server_lines(connection: Connection, table: Table) -> dict[str, str]:
    return dict(connection.execute(_lines(table)).fetchall())


def _lines(table: Table) -> sql.Composed:
    return sql.SQL(_LINES).format(
        key=sql.Identifier(table.key),
        cells=sql.SQL(", ").join(_cell(column) for column in table.columns),
        table=sql.Identifier(table.name),
    )


def _cell(column: str) -> sql.Composed:
    """A column as text in the same format on both sides; timestamps, named `…_at`, as microseconds."""
    exact = "(extract(epoch FROM {}) * 1000000)::bigint" if column.endswith("_at") else "{}"
    return sql.SQL("coalesce((" + exact + ")::text, '-')").format(sql.Identifier(column))


# ------------------------------------------------------------ the sink's side


def in_files(directory: Path, table: Table) -> Any:
    """Every row in a stream's Parquet files with the number of its slice, which starts the file name."""
    known = [*table.columns, "__filename"]
    rows: Any = ds.dataset(str(directory / table.name), format="parquet").to_table(columns=known)
    names = pc.extract_regex(rows["__filename"], r"(?P<slice>\d{8})-[^/]*$")
    return rows.drop_columns(["__filename"]).append_column("_slice", pc.struct_field(names, "slice"))


def in_lake(warehouse: Path, namespace: str, table: Table) -> Any:
    """Every row of a lake table, read with PyIceberg."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    try:
        loaded = catalog.load_table(f"{namespace}.{table.name}")
        keyed = "_tombstone" in loaded.schema().column_names
        scan = loaded.scan(row_filter="_tombstone = false") if keyed else loaded.scan()
        return scan.select(*table.columns, "_ingest_seq").to_arrow()
    finally:
        catalog.close()


def newest(rows: Any, table: Table) -> Any:
    """The newest version of each key: that of the highest slice, and the highest version within it."""
    order = [column for column in ("_slice", "_ingest_seq", table.version) if column in rows.column_names]
    rows = rows.sort_by([(column, "ascending") for column in order])
    rows = rows.append_column("_place", pa.array(range(rows.num_rows), pa.int64()))
    return rows.take(rows.group_by(table.key).aggregate([("_place", "max")])["_place_max"])


def row_lines(rows: Any, table: Table) -> dict[str, str]:
    """Each row's line by key, in key order."""
    cells = [_text(rows[column]) for column in table.columns]
    lines = pc.binary_join_element_wise(*cells, "|").to_pylist()
    return dict(sorted(zip(_text(rows[table.key]).to_pylist(), lines, strict=True)))


def _text(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return pc.fill_null(column.cast(pa.string()), "-")


def count_duplicates(rows: Any, table: Table) -> int:
    """The number of duplicate rows: same key and same version."""
    identity = [table.key, *([table.version] if table.version else [])]
    return int(rows.num_rows - rows.group_by(identity).aggregate([]).num_rows)


# ------------------------------------------------------------ what differs


def difference(theirs: dict[str, str], ours: dict[str, str]) -> str:
    """Describe the difference, with the first keys of each kind."""
    kinds = {
        "missing from the sink": [key for key in theirs if key not in ours],
        "unknown to the source": [key for key in ours if key not in theirs],
        "different": [key for key in theirs if key in ours and theirs[key] != ours[key]],
    }
    return "; ".join(f"{len(keys):,} {what} ({_first(keys)})" for what, keys in kinds.items() if keys)


def _first(keys: list[str]) -> str:
    return ", ".join(keys[:MAX_LISTED_KEYS]) + (", …" if len(keys) > MAX_LISTED_KEYS else "")
