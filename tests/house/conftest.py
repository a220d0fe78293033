"""The house's own tests: its locks, scripts, layers and purity. Each shows first that it can fail."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def top() -> Path:
    """The top of this checkout."""
    return Path(__file__).parents[2]
