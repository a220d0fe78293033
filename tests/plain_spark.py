"""A small Spark for tests that start one as a user would, without penstock: by its defaults it takes twice the time."""

from __future__ import annotations

from pathlib import Path

_DEFAULTS = """\
spark.driver.extraJavaOptions -XX:+UseSerialGC -XX:TieredStopAtLevel=1
spark.sql.shuffle.partitions 2
spark.ui.enabled false
"""


def small_spark(folder: Path) -> dict[str, str]:
    """The environment of a process whose SparkSession is small; its settings are written into the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text(_DEFAULTS)
    return {"SPARK_CONF_DIR": str(folder)}
