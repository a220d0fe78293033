"""One lake and one Spark for each module: a session cannot move to another catalog."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.lake.upkeep.upkeep_tables import UpkeepTable, provider_for

from penstock.links.spark.session_provider import SparkSessionProvider

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def spark(folder: Path, spark_provider: SparkSessionProvider) -> SparkSessionProvider:
    return provider_for(folder, spark_provider)


@pytest.fixture
def kept(folder: Path) -> Callable[..., UpkeepTable]:
    """Makes a table in a namespace of its own."""

    def make(**options: Any) -> UpkeepTable:
        return UpkeepTable(folder, f"shop{next(_NUMBERS)}", **options)

    return make
