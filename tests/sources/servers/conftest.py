"""A pipeline of its own for each test."""

from pathlib import Path

import pytest
from tests.sources.servers.pipelines import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)
