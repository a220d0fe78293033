"""One JVM for all tests of a process that need Spark: each of their modules gets a session of its own on it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from penstock.links import processes
from penstock.links.spark import jars
from penstock.links.spark.session import SparkOptions
from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.links.spark.shared import SharedSpark, SparkRequirements
from tests.plain_spark import FOR_SMALL_TABLES

#: a lake's extension, and every library that a catalog may need: nothing that a test adds later calls for another start
_EVERYTHING = SparkRequirements(
    {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
    tuple(jars.NAMES.values()),
)


#: a plan that is adapted makes a job of each stage, a fifth of what a statement takes here; the real commands of
#: tests/acceptance and of `script/soak lake` adapt theirs
_SETTINGS = FOR_SMALL_TABLES | {"spark.sql.adaptive.enabled": "false"}


def shared_spark() -> SharedSpark:
    """A Spark that starts with the first session asked for, and can serve every lake of the tests."""
    return SharedSpark(SparkOptions(master="local[2,3]", config=_SETTINGS), upcoming=lambda: [_EVERYTHING])


def provider_on(spark: SharedSpark) -> SparkSessionProvider:
    """A session of its own on a Spark that others use too; lakes can be added to it once it runs."""
    provider = SparkSessionProvider(spark.options, shared=spark)
    provider.require(_EVERYTHING.settings, _EVERYTHING.packages)
    return provider


def jvms_of(pid: int) -> list[int]:
    """The JVMs that a process or one of its descendants has started and that still run.

    Any of them may end while it is asked for its name.
    """
    found = []
    for child in processes.children(pid):
        with suppress(OSError):
            if "java" in Path(f"/proc/{child}/comm").read_text():
                found.append(child)
        found += jvms_of(child)
    return found
