"""Which column tells a keyed sink that one row is newer than another of the same key."""

from __future__ import annotations

import pytest

from penstock.core.slices import Kind
from penstock.ports import StreamInfo


@pytest.mark.parametrize(
    ("primary_key", "key", "order", "wanted"),
    [
        (("id",), ("id",), ("updated_at", "id"), None),
        (("id",), ("tenant", "id"), ("updated_at", "id"), None),
        (("id",), ("email",), ("updated_at", "id"), "updated_at"),
        (("tenant", "id"), ("id",), ("updated_at", "id"), "updated_at"),
        ((), ("email",), ("updated_at", "id"), "updated_at"),
        (("id",), ("email",), (), None),
        (("id",), (), ("updated_at", "id"), None),
    ],
)
def test_a_key_that_several_source_rows_share_is_compared_by_the_cursor(
    primary_key: tuple[str, ...], key: tuple[str, ...], order: tuple[str, ...], wanted: str | None
) -> None:
    assert StreamInfo("s", Kind.ROWS, primary_key, order).newest_by(key) == wanted


def test_rows_that_arrive_in_order_need_no_comparison() -> None:
    assert StreamInfo("s", Kind.ROWS, (), ("_ingest_seq",), in_order=True).newest_by(("email",)) is None


def test_versions_are_compared_by_the_column_that_the_source_names() -> None:
    info = StreamInfo("s", Kind.ROWS, ("id",), ("created",), version="_changed_at")
    assert info.newest_by(("id",)) == info.newest_by(("email",)) == "_changed_at"
    assert info.newest_by(()) is None
