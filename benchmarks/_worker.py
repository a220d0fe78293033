"""A warm worker beside the commands that are handed over to it: started, asked what it has run, and stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks import _orders as orders

#: longer than any benchmark leaves it without a run
IDLE = "2h"


class Worker:
    """The worker of a pipeline file. Leaving the `with` stops it."""

    def __init__(self, file: Path, env: Mapping[str, str]) -> None:
        self._file, self._env = file, dict(env)
        #: what it said of itself when it was asked last
        self._state: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return int(self._state["pid"])

    def must_have_run(self, said: str) -> None:
        """SystemExit unless one more run was handed over than when this was asked last; `said` is what it printed."""
        before = self._state
        self._state = self._ask("--for", IDLE)
        if (self._state["pid"], self._state["runs"]) != (before["pid"], before["runs"] + 1):
            raise SystemExit(f"the run was to be handed over to the warm worker, and was not:\n{said}")

    def _ask(self, *words: str) -> dict[str, Any]:
        """What the worker says of itself; it is started if it is not there."""
        command = [orders.COMMAND, "warm", self._file.name, *words, "--json"]
        state: dict[str, Any] = json.loads(orders.run_once(command, self._env, self._file.parent))["worker"]
        return state

    def __enter__(self) -> Self:
        self._state = self._ask("--for", IDLE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ask("--stop")
