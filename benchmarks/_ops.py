"""An outbox with a backlog of documents, tables to load, and pipelines that keep one row for each image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from pyiceberg.catalog.sql import SqlCatalog

HERE = Path(__file__).parent
#: ops of the backlog for each document: every fourth document creates an image by two ops, the others have one
OPS_PER_DOCUMENT, DOCUMENTS_PER_ENTITY = 1.25, 4

SINKS = {
    "lake": "{{type: lake, warehouse: lake, namespace: {name}, catalog: {{name: lake}}}}",
    "postgres": '{{type: postgres, url: "{target}", schema: {name}, own_schema: {name}}}',
}
STATE = """\
  {name}:
    source: {{type: outbox, url: "{url}"}}
    sink: {sink}
    slice_bytes: {slice_bytes}
    streams:
      images:
        mode: state
        direct:
          - {{table: images, key: id, columns: [url, post_id, size, views], creates: true}}
        multi_value:
          - {{table: image_tags, key: image_id, field: tags, value: tag_id}}
        fan_out:
          - {{table: posts, match: "post_id eq {{id}}", columns: [title]}}
"""
ROWS = """\
  {name}:
    source: {{type: postgres, url: "{url}"}}
    sink: {sink}
    slice_bytes: {slice_bytes}
    streams:
      images: {{cursor: id, unique: true, mode: merge}}
"""


def pipeline(name: str, sink: str, url: str, target: str, *, rows: bool = False, slice_bytes: str = "256MiB") -> str:
    """A pipeline that applies the outbox to a state table, or with `rows` copies the table into a keyed one."""
    place = SINKS[sink].format(name=name, target=target)
    return (ROWS if rows else STATE).format(name=name, url=url, sink=place, slice_bytes=slice_bytes)


def make_tables(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((HERE / "_ops.sql").read_bytes())


def make_schemas(url: str, names: Sequence[str]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for name in names:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))


def fill_backlog(url: str, documents: int, apart: int) -> tuple[Any, ...]:
    """Write so many documents, every `apart`-th of them a fan-out; returns what they lead to."""
    entities = documents // DOCUMENTS_PER_ENTITY
    numbers = {"documents": sql.Literal(documents), "entities": sql.Literal(entities), "apart": sql.Literal(apart)}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL((HERE / "_ops_backlog.sql").read_text()).format(**numbers))
        connection.execute("VACUUM ANALYZE penstock_outbox.outbox")
        connection.execute("CHECKPOINT")
        return _one(connection.execute((HERE / "_ops_truth.sql").read_bytes()).fetchall())


def fill_images(url: str, rows: int) -> None:
    """Rows of the table that creates, written before its triggers."""
    statement = (
        "INSERT INTO images SELECT n, 'https://images.example/' || n || '.png', n % 100, n * 7, n % 1000 "
        "FROM generate_series(1::bigint, {}) n"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Literal(rows)))
        connection.execute("VACUUM ANALYZE images")
        connection.execute("CHECKPOINT")


def found_in_postgres(target: str, schema: str) -> tuple[Any, ...]:
    """What a state table has: images, the sum of sizes and views, tags, images with a title."""
    query = sql.SQL(
        "SELECT count(*), (coalesce(sum(size), 0) + coalesce(sum(views), 0)), sum(coalesce(cardinality(tags), 0)), "
        "count(title) FROM {}"
    ).format(sql.Identifier(schema, "images"))
    with psycopg.connect(target) as connection:
        return _one(connection.execute(query).fetchall())


def found_in_lake(folder: Path, namespace: str) -> tuple[Any, ...]:
    """The same of a lake table; rows that stand for deleted images are left out."""
    import pyarrow.compute as pc

    columns = ("size", "views", "tags", "title", "_tombstone")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        table = catalog.load_table(f"{namespace}.images")
        names = [name for name in columns if name in table.schema().column_names]
        rows = table.scan(selected_fields=tuple(names)).to_arrow()
    finally:
        catalog.close()
    if "_tombstone" in names:
        rows = rows.filter(pc.fill_null(pc.invert(rows["_tombstone"]), True))
    total = sum(pc.sum(rows[name]).as_py() or 0 for name in ("size", "views"))
    tags = pc.sum(pc.list_value_length(rows["tags"])).as_py() or 0
    return (rows.num_rows, total, tags, rows.num_rows - rows["title"].null_count)


def count_in_lake(folder: Path, namespace: str) -> int:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        return int(catalog.load_table(f"{namespace}.images").scan().count())
    finally:
        catalog.close()


def _one(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(int(value) for value in rows[0])
