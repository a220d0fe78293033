"""What a warm worker has in the place of a JVM where no row moves on Spark: a process that ends when its pipe does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence

from penstock.links.spark.attach import RunningSpark
from penstock.links.spark.session import SparkOptions


class PipedProcess:
    """As much of `WarmSpark` as a worker asks for."""

    def __init__(self, options: SparkOptions, settings: Mapping[str, str], packages: Sequence[str]) -> None:
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        return None

    def status(self) -> int | None:
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait()

    def describe(self, status_pipe: int, on_misfit: Callable[[str], object]) -> RunningSpark:
        return RunningSpark(0, "", self.pid, status_pipe, SparkOptions(), {}, on_misfit)

    def leave_to_parent(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.returncode = 0

    def stop_tasks(self) -> None:
        return None

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
