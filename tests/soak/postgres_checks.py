"""Whether everything that was written is in the sink, once: asked in SQL, of the server that was read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql

#: rows that are named of those that are wrong
NAMED = 50
#: where in the order of delivery a row came
PLACE = "_place"

_LATEST = "SELECT DISTINCT ON ({key}) * FROM {seen} ORDER BY {key}, {version} DESC, _place DESC"
MISSING = sql.SQL(
    "SELECT {key} FROM {table} t LEFT JOIN (" + _LATEST + ") s USING ({key})"
    " WHERE s._place IS NULL OR ({ours}) IS DISTINCT FROM ({theirs}) ORDER BY 1"
)
STRANGE = sql.SQL(
    "SELECT {key} FROM {seen} EXCEPT SELECT {key} FROM {table} EXCEPT SELECT {key} FROM {gone} ORDER BY 1"
)
DOUBLED = sql.SQL("SELECT {key} FROM {seen} GROUP BY {key}, {version} HAVING count(*) > 1 ORDER BY 1")
COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"


@dataclass(frozen=True)
class Compared:
    """What the source and the sink have, and ids of rows of which they differ."""

    table: str
    rows: int
    delivered: int
    #: rows of the source whose newest version in the sink is another, or none
    missing: Sequence[int]
    #: rows of the sink that the source does not have and never had
    strange: Sequence[int]
    #: rows that the sink has twice in one version
    doubled: Sequence[int]

    @property
    def faults(self) -> list[str]:
        wrong = {"lost": self.missing, "strange": self.strange, "doubled": self.doubled}
        return [f"{self.table}: {len(ids)} rows {word}: {_few(ids)}" for word, ids in wrong.items() if ids]


def compare(
    url: str,
    table: str,
    tables: Sequence[pa.Table],
    *,
    key: str = "id",
    version: str | None = None,
    gone: str | None = None,
) -> Compared:
    """A table and all that was delivered of it, in its order; `gone` is a table of the keys that were deleted."""
    names = {
        "table": sql.Identifier(table),
        "seen": sql.Identifier(f"seen_{table}"),
        "gone": sql.Identifier(gone or f"seen_{table}_gone"),
        "key": sql.Identifier(key),
        "version": sql.Identifier(version or key),
    }
    if tables:
        _bring(url, f"seen_{table}", tables)
    with psycopg.connect(url, autocommit=True) as db:
        if not tables:
            db.execute(sql.SQL("CREATE TABLE {seen} (LIKE {table}, _place bigint)").format(**names))
        if gone is None:
            db.execute(sql.SQL("CREATE TEMPORARY TABLE {gone} (LIKE {table})").format(**names))
        columns = [row[0] for row in db.execute(COLUMNS, (table,))]
        ours, theirs = (sql.SQL(", ").join(sql.Identifier(side, name) for name in columns) for side in "ts")
        rows, delivered = (
            _one(db, sql.SQL("SELECT count(*) FROM {}").format(names[name])) for name in ("table", "seen")
        )
        missing = _ids(db, MISSING.format(**names, ours=ours, theirs=theirs))
        return Compared(
            table, rows, delivered, missing, _ids(db, STRANGE.format(**names)), _ids(db, DOUBLED.format(**names))
        )


def versions(url: str, table: str, id_: int) -> list[str]:
    """A row as it is, and each of its versions that was delivered; after `compare`."""
    query = "SELECT to_jsonb(t)::text FROM {} t WHERE id = %s"
    with psycopg.connect(url, autocommit=True) as db:
        return [
            f"{word} {row[0]}"
            for word, name in (("is", table), ("delivered", f"seen_{table}"))
            for row in db.execute(sql.SQL(query).format(sql.Identifier(name)), (id_,))
        ]


def files(out: Path, pipeline: str, stream: str) -> tuple[list[pa.Table], list[str]]:
    """The files that a reader sees of a stream, in order, and what is wrong with them by the manifests."""
    named: dict[str, int] = {}
    for path in sorted((out / "_penstock" / pipeline / stream / "manifests").glob("*.json")):
        named |= {file["name"]: file["rows"] for file in json.loads(path.read_text())["files"]}
    visible = {str(path.relative_to(out)): pq.ParquetFile(path).read() for path in (out / stream).rglob("*.parquet")}
    faults = [f"{name} is in no manifest" for name in sorted(visible.keys() - named.keys())]
    faults += [f"{name} is missing" for name in sorted(named.keys() - visible.keys())]
    both = [name for name in named if name in visible]
    faults += [f"{name} has other rows than its manifest" for name in both if visible[name].num_rows != named[name]]
    return [visible[name] for name in both], faults


def _bring(url: str, name: str, tables: Sequence[pa.Table]) -> None:
    placed = [
        table.append_column(PLACE, pa.array([at] * table.num_rows, pa.int64())) for at, table in enumerate(tables)
    ]
    with adbc.connect(url, autocommit=True) as db, db.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        cursor.adbc_ingest(name, pa.concat_tables(placed), mode="create")


def _ids(db: psycopg.Connection[Any], query: sql.Composed) -> list[int]:
    return [row[0] for row in db.execute(query)]


def _one(db: psycopg.Connection[Any], query: sql.Composed) -> int:
    [found] = _ids(db, query)
    return found


def _few(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:NAMED])) + (" …" if len(ids) > NAMED else "")
