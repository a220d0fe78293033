"""What the tables and each copy of them hold, in one form: rows of id, post, url, size, stars, title and tags."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from pyiceberg.catalog.sql import SqlCatalog

from penstock.core.ops import FanOut, Row, Shape, State, fold
from penstock.wal.durable_end import read_end
from penstock.wal.folders import folder_of

#: columns before and after one is added
COLUMNS, MORE_COLUMNS = "[post_id, url, size]", "[post_id, url, size, stars]"
SHAPE = Shape(
    frozenset({"post_id", "url", "size", "stars", "title"}),
    frozenset({"tags"}),
    (FanOut("public.posts", ("post_id",), ("title",)),),
)
TRUTH = """
SELECT i.id, i.post_id, i.url, i.size, i.stars, p.title,
       array(SELECT t.tag FROM image_tags t WHERE t.image_id = i.id ORDER BY t.tag)
FROM images i LEFT JOIN posts p ON p.id = i.post_id ORDER BY i.id
"""
NAMES = ("id", "post_id", "url", "size", "stars", "title")
Rows = list[tuple[Any, ...]]


def in_postgres(url: str, schema: str = "public") -> Rows:
    with psycopg.connect(url) as db:
        query = sql.SQL("SELECT id, post_id, url, size, stars, title, tags FROM {} ORDER BY id")
        return db.execute(query.format(sql.Identifier(schema, "images"))).fetchall()


def in_lake(folder: Path) -> Rows:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db")
    try:
        rows = catalog.load_table("lake.images").scan().to_arrow().to_pylist()
    finally:
        catalog.close()
    return sorted((*(row[name] for name in NAMES), sorted(row["tags"] or [])) for row in rows if not row["_tombstone"])


def documents_in(folder: Path) -> list[dict[str, Any]]:
    """The documents in files, in the order in which they were delivered."""
    paths = sorted(folder.rglob("*.ndjson"), key=_place)
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def twice(documents: Sequence[dict[str, Any]]) -> list[int]:
    """The ids of documents that are there more than once."""
    return [id_ for id_, count in Counter(each["id"] for each in documents).items() if count > 1]


def folded(documents: Sequence[dict[str, Any]]) -> Rows:
    """What documents lead to by the reference."""
    rows = (Row(each["id"], json.loads(each["document"])) for each in documents)
    return sorted(
        (
            json.loads(key),
            *(record.scalars.get(name) for name in NAMES[1:]),
            sorted(json.loads(value) for value in record.multi.get("tags", ())),
        )
        for key, record in fold(State(), SHAPE, rows).state.entities.items()
    )


def rows_sent(store: Path) -> int:
    """The rows that a pipeline's store says were delivered."""
    with closing(sqlite3.connect(store)) as db:
        return int(db.execute("SELECT sum(rows) FROM streams").fetchone()[0])


def rows_in_log(folder: Path) -> int:
    """The rows that can be read in the log of a receiver's stream."""
    end = read_end(folder_of(str(folder), "images"))
    return end.rows if end else 0


def _place(path: Path) -> tuple[int, ...]:
    """The slice, the part and the number of a file."""
    number, _, *rest = path.stem.split("-")
    return (int(number), *map(int, rest))


def differences(name: str, truth: Rows, found: Rows) -> list[str]:
    """Where a copy is not as the tables are."""
    wanted, there = {row[0]: row for row in truth}, {row[0]: row for row in found}
    missing, extra = sorted(wanted.keys() - there.keys()), sorted(there.keys() - wanted.keys())
    other = [(wanted[key], there[key]) for key in wanted.keys() & there.keys() if wanted[key] != there[key]]
    said = []
    for what, items in (("missing", missing), ("too many", extra), ("other (true, found)", other)):
        if items:
            said.append(f"{name}: {len(items)} of {len(truth)} images are {what}: {items[:3]}")
    return said
