"""Does the sink hold what the source holds? Answered by the source's own database, in SQL.

The visible files are copied back into a table beside the original, with the slice each row came from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql


@dataclass(frozen=True)
class Comparison:
    """What differs; all zero and empty when nothing does."""

    #: rows of the source whose newest version in the sink is missing or another
    missing: int
    #: keys in the sink that the source does not have
    strange: int
    #: (key, version) pairs that the sink has more than once
    doubled: int
    #: files that readers see and no manifest names
    stray: Sequence[str]
    #: files that a manifest names and that are missing or have other rows
    broken: Sequence[str]

    @property
    def same(self) -> bool:
        return not (self.missing or self.strange or self.doubled or self.stray or self.broken)


def compare(url: str, table: str, *, key: str, version: str, out: Path, pipeline: str, stream: str) -> Comparison:
    """Compare a table with a stream of Parquet files: newest version per key, each slice's rows exactly once."""
    named = _named(out, pipeline, stream)
    visible = sorted(str(path.relative_to(out)) for path in (out / stream).rglob("*.parquet"))
    stray = [name for name in visible if name not in named]
    broken = [name for name, rows in named.items() if _rows(out / name) != rows]
    _load(url, [out / name for name in visible])
    names = {"table": sql.Identifier(*table.split(".")), "key": sql.Identifier(key), "version": sql.Identifier(version)}
    with psycopg.connect(url, autocommit=True) as db:
        missing, strange, doubled = (_count(db, sql.SQL(text).format(**names)) for text in _QUESTIONS)
        db.execute("drop table penstock_seen")
    return Comparison(missing, strange, doubled, stray, broken)


_QUESTIONS = (
    """
    select count(*) from {table} t left join
      (select distinct on ({key}) * from penstock_seen order by {key}, {version} desc) s using ({key})
    where s.{key} is null or s.{version} is distinct from t.{version} or to_jsonb(s) - '_none' <> to_jsonb(t) - '_none'
    """,
    "select count(*) from (select {key} from penstock_seen except select {key} from {table}) x",
    "select count(*) from (select {key}, {version} from penstock_seen group by 1, 2 having count(*) > 1) x",
)


def _named(out: Path, pipeline: str, stream: str) -> dict[str, int]:
    folder = out / "_penstock" / pipeline / stream / "manifests"
    manifests = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {file["name"]: file["rows"] for manifest in manifests for file in manifest["files"]}


def _rows(path: Path) -> int | None:
    return int(pq.read_metadata(path).num_rows) if path.exists() else None


def _load(url: str, files: Sequence[Path]) -> None:
    tables = [pq.ParquetFile(path).read() for path in files]
    with adbc.connect(url, autocommit=True) as db, db.cursor() as cursor:
        cursor.execute("drop table if exists penstock_seen")
        if tables:
            cursor.adbc_ingest("penstock_seen", pa.concat_tables(tables), mode="create")
            return
    raise AssertionError("the sink has no file at all")


def _count(db: psycopg.Connection[tuple[int]], question: sql.Composed) -> int:
    row = db.execute(question).fetchone()
    assert row is not None
    return row[0]
