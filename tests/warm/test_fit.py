"""Whether a Spark that is lent has what a run needs; what differs is named."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.links.spark.attach import STATUS, ForeignProcess, RunningSpark, find_misfit, without_session_settings
from penstock.links.spark.session import SparkOptions, all_settings

OPTIONS = SparkOptions(master="local[2,3]", config={"spark.ui.enabled": "true"})
LAKE = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.s3.secret-access-key": "secret",
}
JARS = [Path("/jars/iceberg.jar")]


def running(wanted: dict[str, str] | None = None, jars: list[Path] | None = None) -> RunningSpark:
    """One that was started with the lake's libraries, unless told otherwise."""
    settings = {**OPTIONS.config, **(LAKE if wanted is None else wanted)}
    has = without_session_settings(all_settings(OPTIONS, settings, JARS if jars is None else jars))
    return RunningSpark(1, "s", 2, -1, OPTIONS, has, lambda _: None)


def wants(more: dict[str, str] | None = None, options: SparkOptions = OPTIONS) -> dict[str, str]:
    return {**options.config, **(more or {})}


def test_the_same_fits_and_so_does_less() -> None:
    assert find_misfit(running(), OPTIONS, wants(LAKE), JARS) is None
    assert find_misfit(running(), OPTIONS, wants(), []) is None, "another pipeline of the file needs the lake"


def test_a_catalog_is_each_sessions_own() -> None:
    """None of the lender's settings of a catalog is passed on, and those of a run need not be there."""
    assert not [key for key in running().settings if key.startswith("spark.sql.catalog")]
    other = {**LAKE, "spark.sql.catalog.lake.warehouse": "elsewhere"}
    assert find_misfit(running(), OPTIONS, wants(other), JARS) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (replace(OPTIONS, master="local[1,3]"), "`spark.master` differs"),
        (replace(OPTIONS, memory="2g"), "`spark.memory` differs"),
        (replace(OPTIONS, config={}), "`spark.config` differs in spark.ui.enabled"),
        (replace(OPTIONS, config={**OPTIONS.config, "spark.x": "1"}), "`spark.config` differs in spark.x"),
    ],
)
def test_other_options_do_not_fit(options: SparkOptions, said: str) -> None:
    assert find_misfit(running(), options, wants(options=options), []) == said


def test_one_without_the_lakes_libraries_does_not_fit() -> None:
    assert (
        find_misfit(running({}, []), OPTIONS, wants(LAKE), [])
        == "it was started without spark.sql.extensions, or with another value"
    )
    assert find_misfit(running(LAKE, []), OPTIONS, wants(LAKE), JARS) == (
        "it was started without spark.driver.extraClassPath, or with another value"
    )


def test_the_end_of_a_lent_jvm_is_told() -> None:
    reading, writing = os.pipe()
    process = ForeignProcess(replace(running(), status_pipe=reading))
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.01)
    os.write(writing, STATUS.pack(-9))
    assert process.wait(timeout=1) == -9
    assert process.poll() == -9
    os.close(writing)
    os.close(reading)


def test_a_lender_that_has_ended_has_taken_its_jvm_along() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert ForeignProcess(replace(running(), status_pipe=reading)).poll() == -9
    os.close(reading)
