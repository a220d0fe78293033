"""What becomes of deletes: in a table without a key they are refused, unless the stream says; and misuse."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import STREAM, Deliveries, content_of

from penstock.core.marks import Mark
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, following
from penstock.errors import StreamRefused
from penstock.testing.contracts.delivery import stage_parts

ROWS = pa.table({"id": [1, 2, 1], "note": ["a", "b", None], "_change": ["upsert", "upsert", "delete"]})


@pytest.mark.parametrize("options", [{}, {"mode": "append"}, {"mode": "append", "deletes": "hard"}])
def test_deletes_that_would_be_added_as_rows(database: str, options: dict[str, str]) -> None:
    orders = Deliveries(database, options)
    with pytest.raises(StreamRefused, match="delivers deletes") as refused:
        orders.deliver(ROWS)
    assert "`deletes: ignore`" in refused.value.next_step
    assert "`deletes: soft`" in refused.value.next_step
    assert orders.rows("SELECT to_regclass('public.orders')") == [(None,)]


def test_an_open_slice_with_deletes_is_refused_too(database: str) -> None:
    """It is not checked again: the configuration may have changed since it was begun."""
    orders = Deliveries(database, {"mode": "append"})
    content = content_of(ROWS.schema)
    slice_ = following(None, pipeline="shop", stream=STREAM, upto=Mark.of({}), content=content, kind=Kind.ROWS)
    sink = orders.sink
    try:
        with pytest.raises(StreamRefused, match="delivers deletes"):
            sink.commit(slice_, "a1", stage_parts(sink, slice_, ROWS))
    finally:
        sink.close()
    assert orders.rows("SELECT count(*) FROM orders") == [(0,)]


def test_deletes_that_are_ignored(database: str) -> None:
    orders = Deliveries(database, {"mode": "append", "deletes": "ignore"})
    assert orders.deliver(ROWS) == Outcome(created=2, ignored=1)
    assert orders.rows() == [(1, "a"), (2, "b")]


def test_deletes_that_are_added_as_marked_rows(database: str) -> None:
    orders = Deliveries(database, {"mode": "append", "deletes": "soft", "deleted_at": "gone"})
    assert orders.deliver(ROWS) == Outcome(created=2, deleted=1)
    assert orders.rows("SELECT id, note, gone IS NOT NULL FROM orders ORDER BY 1, 3") == [
        (1, "a", False),
        (1, None, True),
        (2, "b", False),
    ]


def test_a_delete_that_is_ignored_hides_no_other_row_of_its_key(database: str) -> None:
    """Whatever shares a slice with it."""
    orders = Deliveries(database, {"key": ["id"], "deletes": "ignore"})
    assert orders.deliver(ROWS) == Outcome(created=2, folded=1)
    again = pa.table({"id": [1, 1, 3], "note": ["c", None, None], "_change": ["upsert", "delete", "delete"]})
    assert orders.deliver(again) == Outcome(updated=1, folded=1, ignored=1)
    assert orders.rows() == [(1, "c"), (2, "b")]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"deletes": "soft"}, "`deletes: soft` needs the column that marks them"),
        ({"deleted_at": "gone"}, "`deleted_at` has no meaning without `deletes: soft`"),
        ({"deletes": "soft", "deleted_at": "note"}, "names the column note, which the stream has too"),
        ({"deletes": "soft", "deleted_at": "size"}, "column size, which is integer in public.orders: it must be"),
        ({"deletes": "soft", "deleted_at": "gone", "create": False}, "public.orders has no column gone"),
        ({"deletes": "soft", "deleted_at": "at", "create": False}, None),
    ],
)
def test_the_column_that_marks_deletes_is_checked(database: str, options: dict[str, Any], what: str | None) -> None:
    orders = Deliveries(database, {"key": ["id"], **options})
    orders.run("CREATE TABLE orders (id bigint PRIMARY KEY, note text, size int, at timestamptz)")
    if what is None:
        assert orders.deliver(ROWS).rows == 3
        return
    with pytest.raises(StreamRefused, match=what) as refused:
        orders.deliver(ROWS)
    assert refused.value.next_step
    assert orders.rows() == []
