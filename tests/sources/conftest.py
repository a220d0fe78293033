"""Sources that a test leaves open, because it failed or because it does not matter, are closed here."""

from collections.abc import Iterator

import pytest
from tests.sources import tables


@pytest.fixture(autouse=True)
def _close_sources() -> Iterator[None]:
    yield
    while tables.OPENED:
        tables.OPENED.pop().close()
