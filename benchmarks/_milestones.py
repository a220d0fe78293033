"""Runs a command of penstock in this process, and notes when its start has come how far. Works for any checkout.

    python _milestones.py RECORD run shop.yaml

Appends lines `NAME SECONDS` to RECORD, by the clock of the machine: `store` when the store is opened, `java` when Java
is started, `booted` when the first connection to it is made, `session` when the Spark session is there. Nothing of
penstock or PySpark is imported sooner than it would be: an audit hook hears what Python does, and the class of the
session is changed once it is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

SESSION_MODULE = "pyspark.sql.session"
#: the last words of a command that starts the JVM with which PySpark talks
GATEWAYS = ("pyspark-shell", ".PythonGatewayServer")


class Milestones:
    """Each is written down when it is reached for the first time."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._reached: set[str] = set()

    def reach(self, name: str) -> None:
        if name not in self._reached:
            self._reached.add(name)
            with self._record.open("a") as file:
                file.write(f"{name} {time.time():.6f}\n")

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's own report of what is about to be done."""
        if event == "sqlite3.connect":
            self.reach("store")
        elif event in ("subprocess.Popen", "os.posix_spawn") and starts_spark(arguments[1]):
            self.reach("java")
        elif event == "socket.connect" and "java" in self._reached and isinstance(arguments[1], tuple):
            self.reach("booted")


def starts_spark(command: Any) -> bool:
    """Whether a command starts Spark's JVM, by its script or by itself; others may only ask Java for its version."""
    words = [command] if isinstance(command, (str, bytes)) else list(command)
    return any(str(word).endswith(GATEWAYS) for word in words)


class SessionWatch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Has a SparkSession tell when it is there; its class is changed as soon as its module is imported."""

    def __init__(self, milestones: Milestones) -> None:
        self._milestones = milestones

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != SESSION_MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        self._real, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        start = module.SparkSession.__init__

        def started(session: Any, *given: Any, **named: Any) -> None:
            start(session, *given, **named)
            self._milestones.reach("session")

        module.SparkSession.__init__ = started


def main() -> None:
    milestones = Milestones(Path(sys.argv[1]))
    sys.argv = ["penstock", *sys.argv[2:]]
    sys.path.pop(0)  # the folder of this file
    sys.addaudithook(milestones.hear)
    sys.meta_path.insert(0, SessionWatch(milestones))
    from penstock.cli import main as command

    command()


if __name__ == "__main__":
    main()
