"""Prints the steps of an upkeep as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.cli.shared.error_report import print_error
from penstock.config import File
from penstock.core.exits import worst
from penstock.core.messages import Eof, encode, stamp
from penstock.errors import ConnectionFailed, PenstockError, filled
from penstock.lake.upkeep.job import StepResult, UpkeepJob
from penstock.lake.upkeep.run import run_upkeep
from penstock.wiring import SystemClock


class Report:
    """Prints each finished step and collects the exit code."""

    def __init__(self, file: File, *, as_json: bool) -> None:
        self._file = file
        self._as_json = as_json
        self._codes = [0]
        self._failed: list[str] = []

    def run(self, steps: Sequence[str], job: UpkeepJob) -> None:
        """Run the upkeep of a table. An error of one table does not stop the others."""
        try:
            for result in run_upkeep(job, steps):
                self.add(job.name, result)
        except ConnectionFailed:
            raise
        except PenstockError as error:
            self.add(job.name, StepResult("stopped", error.what, error=error))

    def add(self, table: str, result: StepResult) -> None:
        if result.error is not None:
            several = len(self._file.pipelines) > 1
            named = result.error.pipeline if several else None
            result.error.next_step = filled(result.error.next_step, self._file.path, named, result.error.stream)
            self._codes.append(result.error.exit_code)
            self._failed.append(result.error.what)
            print_error(f"error: {table}: {result.step}: {result.error}")
        if self._as_json:
            self._print_json(table, result)
        elif result.error is None:
            print(f"{table}: {result.step}: {result.text}", flush=True)

    def end(self) -> int:
        """Return the exit code; with JSON, print an `eof` message last."""
        code = worst(self._codes)
        if self._as_json:
            eof = Eof(
                status="failed" if code else "complete",
                exit_code=code,
                has_more=False,
                reason=self._failed[0] if self._failed else None,
            )
            print(encode(eof.stamped(SystemClock().now())), flush=True)
        return code

    def _print_json(self, table: str, result: StepResult) -> None:
        error = result.error
        document = {
            "type": "upkeep",
            "_ts": stamp(SystemClock().now()),
            "table": table,
            "step": result.step,
            "text": result.text,
            "facts": dict(result.facts),
            "error": {"safe": error.safe, "next_step": error.next_step} if error else None,
        }
        print(json.dumps(document, ensure_ascii=False), flush=True)
