"""A small Spark for tests that start one as a user would, without penstock: by its defaults it takes twice the time."""

from __future__ import annotations

from pathlib import Path

#: where tables have a dozen rows, compiling a query takes longer than running it uncompiled
FOR_SMALL_TABLES = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}
_DEFAULTS = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    **FOR_SMALL_TABLES,
}


def small_spark(folder: Path) -> dict[str, str]:
    """The environment of a process whose SparkSession is small; its settings are written into the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in _DEFAULTS.items()))
    return {"SPARK_CONF_DIR": str(folder)}
