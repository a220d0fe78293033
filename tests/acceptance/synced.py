"""Whether a sink holds what a database has: every row of every table, compared value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql

from penstock.links.postgres.connection import SETTINGS
from penstock.links.postgres.types import choose_form

Row = tuple[Any, ...]


def table_rows(url: str, table: str, columns: Sequence[str]) -> list[Row]:
    """A table's rows; what has no exact form in Arrow as the text that travels instead."""
    with psycopg.connect(url, autocommit=True) as db:
        for name, setting in SETTINGS.items():
            db.execute("SELECT set_config(%s, %s, false)", (name, setting))
        found = db.execute(
            # A domain travels as the type it is made of.
            "SELECT attname, CASE WHEN typbasetype <> 0 THEN format_type(typbasetype, typtypmod)"
            " ELSE format_type(atttypid, atttypmod) END"
            " FROM pg_attribute JOIN pg_class c ON c.oid = attrelid JOIN pg_type t ON t.oid = atttypid"
            " WHERE relname = %s AND relnamespace = 'public'::regnamespace AND attnum > 0",
            (table,),
        )
        types: dict[str, str] = dict(found.fetchall())
        asked = [_asked(name, types[name]) for name in columns]
        query = sql.SQL("SELECT {} FROM public.{}").format(sql.SQL(", ").join(asked), sql.Identifier(table))
        return [tuple(map(_counted, row)) for row in db.execute(query).fetchall()]


def _asked(name: str, type_: str) -> sql.Composed:
    as_text = choose_form(type_).printed or type_ in ("json", "jsonb")
    # As the type prints itself: a cast to text differs for some.
    printed = "CASE WHEN {0} IS NOT NULL THEN concat({0}) END"
    return sql.SQL(printed if as_text else "{0}").format(sql.Identifier(name))


def file_tables(folder: Path) -> list[pa.Table]:
    """What readers of the files sink see of a stream, slice by slice."""
    current = folder / "current"
    return [pq.ParquetFile(path).read() for path in sorted((current if current.exists() else folder).glob("*.parquet"))]


def rows_of(tables: Iterable[pa.Table], columns: Sequence[str]) -> list[Row]:
    return [tuple(_counted(row[name]) for name in columns) for table in tables for row in table.to_pylist()]


def _counted(value: Any) -> Any:
    """A value that can be counted: a list cannot."""
    return tuple(map(_counted, value)) if isinstance(value, list) else value


def newest(rows: Iterable[Row], key: Sequence[int]) -> Counter[Row]:
    """The last of the rows of each key; without a key, all of them."""
    if not key:
        return Counter(rows)
    return Counter({tuple(row[place] for place in key): row for row in rows}.values())
