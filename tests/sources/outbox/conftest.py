"""What the tests of this room share: sources that are left open are closed."""

from collections.abc import Iterator

import pytest
from tests.sources.outbox import shops


@pytest.fixture(autouse=True)
def _close_outboxes() -> Iterator[None]:
    yield
    while shops.OPENED:
        shops.OPENED.pop().close()
