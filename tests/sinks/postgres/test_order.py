"""A key that is not the source's primary key: of all rows that share it, the newest by the cursor is in the table.

Neither the rows of a slice nor the slices of a first load come in the order of the cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import Deliveries
from tests.sinks.postgres.runs import PipelineRuns, open_sink, open_source

from penstock.core.outcome import Outcome
from penstock.core.slices import Kind
from penstock.errors import StreamFailed

#: each item has three versions; the primary key falls where the cursor rises
VERSIONS = """
CREATE TABLE versions (id bigint PRIMARY KEY, item int, version int, at timestamptz NOT NULL);
CREATE INDEX ON versions (at, id);
INSERT INTO versions SELECT 1000 - g, g % 50, g / 50, timestamptz '2026-01-01Z' + g * interval '1 s'
FROM generate_series(0, 149) g;
CREATE SCHEMA copies
"""
CURSOR: dict[str, Any] = {"cursor": "at", "tiebreaker": "id"}
NEWEST = [(item, 2) for item in range(50)]


@pytest.fixture
def versions(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(VERSIONS)
        yield db


def move(url: str, source: dict[str, Any], sink: dict[str, Any], slice_bytes: int = 256 << 20) -> PipelineRuns:
    moving = PipelineRuns()
    into = {"into": "copies.items", **sink}
    said = moving.run(
        "copy",
        open_source(url, stream="versions", **source),
        open_sink(url, stream="versions", **into),
        slice_bytes=slice_bytes,
    )
    assert said == []
    return moving


def refused(url: str, source: dict[str, Any], sink: dict[str, Any]) -> str:
    into = open_sink(url, stream="versions", into="copies.items", **sink)
    (said,) = PipelineRuns().run("copy", open_source(url, stream="versions", **source), into)
    return said


@pytest.mark.parametrize("slice_bytes", [256 << 20, 2000])
def test_the_newest_row_of_a_key_is_in_the_table(
    database: str, versions: psycopg.Connection[Any], slice_bytes: int
) -> None:
    """In one slice, and in many, which follow the primary key."""
    moving = move(database, {**CURSOR, "first_load": "keys"}, {"key": ["item"]}, slice_bytes)
    assert len(moving.outcomes) > (1 if slice_bytes < 10_000 else 0)
    assert versions.execute("SELECT item, version FROM copies.items ORDER BY 1").fetchall() == NEWEST
    versions.execute(
        "INSERT INTO versions SELECT 2000 + g, g, 3, now() - interval '1 hour' FROM generate_series(0, 9) g"
    )
    move_again = moving.run(
        "copy",
        open_source(database, stream="versions", **CURSOR),
        open_sink(database, stream="versions", into="copies.items", key=["item"]),
    )
    assert move_again == []
    newest = [(item, 3 if item < 10 else 2) for item in range(50)]
    assert versions.execute("SELECT item, version FROM copies.items ORDER BY 1").fetchall() == newest


def test_a_key_that_contains_the_primary_key_is_not_compared(database: str, versions: psycopg.Connection[Any]) -> None:
    """Each key is one row of the source, whose last version comes last."""
    move(database, CURSOR, {"key": ["item", "id"]})
    assert versions.execute("SELECT count(*) FROM copies.items").fetchall() == [(150,)]


def test_a_cursor_that_is_not_shipped(database: str, versions: psycopg.Connection[Any]) -> None:
    chosen = {**CURSOR, "columns": ["id", "item", "version"]}
    said = refused(database, chosen, {"key": ["item"]})
    assert "the key (item) does not contain the primary key" in said
    assert "the cursor at, which tells the newest of them, is not shipped" in said
    assert "ship at, or name another column with `newer_than`" in said
    move(database, chosen, {"key": ["item"], "newer_than": "version"})
    assert versions.execute("SELECT item, version FROM copies.items ORDER BY 1").fetchall() == NEWEST


def test_a_column_that_is_text_here_is_no_measure(database: str, versions: psycopg.Connection[Any]) -> None:
    """As text, 9 comes after 10."""
    versions.execute("ALTER TABLE versions ALTER version TYPE numeric")
    versions.execute("CREATE TABLE copies.items (id bigint, item int PRIMARY KEY, version text, at timestamptz)")
    said = refused(database, {**CURSOR, "unfit": "text"}, {"key": ["item"], "newer_than": "version"})
    assert "`newer_than` compares by column version, which is text in copies.items and numeric at the source" in said


def test_rows_of_a_full_refresh_that_share_a_key(database: str) -> None:
    """Nothing says which of them is to be taken."""
    orders = Deliveries(database, {"key": ["item"]})
    rows = pa.table({"id": [1, 2, 3], "item": [1, 1, 2], "version": [7, 6, 1]})
    with pytest.raises(StreamFailed, match="1 row of the full refresh shares its key"):
        orders.deliver(rows, kind=Kind.REFRESH, key=["id"])
    orders.options = {"key": ["item"], "newer_than": "version"}
    assert orders.deliver(rows, kind=Kind.REFRESH, key=["id"]) == Outcome(created=2, folded=1)
    assert orders.rows("SELECT item, version FROM orders ORDER BY 1") == [(1, 7), (2, 1)]
