"""Spark's procedures on a table: their one row of an answer, and which of their failures are others' doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import StreamFailed
from penstock.lake.tables import undone
from penstock.lake.upkeep.work import UNHARMED, Work


class Conflict(Exception):
    """Others changed the files that were being rewritten: nothing of ours happened."""


def ask(work: Work, sql: str) -> Mapping[str, Any]:
    """The first row of what Spark answers; Conflict if other writers undid it, StreamFailed for anything else."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import PySparkException

    try:
        rows = work.spark.session().sql(sql).collect()
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        lines = text.splitlines() or [type(error).__name__]
        line = next((line.strip(": ") for line in lines if "Exception" in line), lines[0])
        if undone(text):
            raise Conflict(line) from error
        raise StreamFailed(
            f"{work.name}: Spark failed: {line}", next_step="run the upkeep again", safe=UNHARMED
        ) from error
    found: Mapping[str, Any] = rows[0].asDict() if rows else {}
    return found
