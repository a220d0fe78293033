"""Short seeds of the soak with other programs; `script/soak foreign` runs it in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.ports import NoSpark
from tests.lake.upkeep.upkeep_tables import provider_for
from tests.soak.foreign import soak

# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def test_every_row_that_pyiceberg_writes_is_delivered_once_or_named(tmp_path: Path) -> None:
    result = soak(seed=5, steps=20, folder=tmp_path, spark=NoSpark())

    assert result["faults"] == []
    assert result["whole_rows"] > 0
    assert result["landed"] > 0


def test_every_row_that_spark_writes_is_delivered_once_or_named(
    tmp_path: Path, spark_provider: SparkSessionProvider
) -> None:
    result = soak(seed=2, steps=6, folder=tmp_path, spark=provider_for(tmp_path, spark_provider))

    assert result["faults"] == []
    assert any(name.startswith("spark_") for name in result)
