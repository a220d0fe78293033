"""What a warm worker has in the place of a JVM where no row moves on Spark: a process that ends when its pipe does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence

from penstock.links.spark.attach import RunningSpark
from penstock.links.spark.session import SparkOptions
from penstock.warm.jvm import WarmSpark


class PipedProcess(WarmSpark):
    """A `WarmSpark` without Spark."""

    def __init__(self, options: SparkOptions, settings: Mapping[str, str], packages: Sequence[str]) -> None:
        super().__init__(SparkOptions(), {}, ())
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)

    def start(self) -> None:
        return None

    def describe(self, status_pipe: int, on_misfit: Callable[[str], object]) -> RunningSpark:
        return RunningSpark(0, "", self.pid, status_pipe, SparkOptions(), {}, on_misfit)

    def stop_tasks(self) -> None:
        return None
