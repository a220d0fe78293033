"""What the tests of this room share: sources that are left open are closed; small slices are cut by statistics."""

from collections.abc import Iterator

import pytest
from tests.sources import tables


@pytest.fixture(autouse=True)
def _close_sources() -> Iterator[None]:
    yield
    while tables.OPENED:
        tables.OPENED.pop().close()


@pytest.fixture
def by_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also small slices are cut by the statistics, and a slice is as large as it says."""
    monkeypatch.setattr("penstock.sources.postgres.keyset.MAX_WALKED_ROWS", 10)
    monkeypatch.setattr("penstock.sources.postgres.keyset.FIRST_WALK_ROWS", 20)
    monkeypatch.setattr("penstock.sources.postgres.keyset.LONG_SLICE_FACTOR", 1)
    monkeypatch.setattr("penstock.sources.postgres.keyset.MIN_PART_ROWS", 10)
