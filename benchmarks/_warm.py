"""A process that is kept warm: it runs pipelines of one file as often as it is told to, on one Spark session.

Run by `Warm`, which tells it the pipelines' names, one a line; it answers each with one line of JSON. What it does
can be watched from outside, by the process that tells it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks import _orders as orders

from penstock import wiring
from penstock.links.spark import SharedSpark


class Kept:
    """A process that is told lines and answers each with one line of JSON. Leaving the `with` ends it."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, silent: bool = False) -> None:
        self._process = subprocess.Popen(
            command,
            env=env,
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if silent else None,
            text=True,
        )
        self.pid = self._process.pid

    def tell(self, line: str) -> dict[str, Any]:
        """What it answers. SystemExit if that is not that it has completed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(said or '{"status": "the process has ended"}')
        if answer["status"] != "complete":
            raise SystemExit(f"the run of {line} was to complete: {answer}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


class Warm(Kept):
    """A kept-warm penstock, and the JVM that it has started."""

    def __init__(self, file: Path, env: Mapping[str, str]) -> None:
        super().__init__([orders.PYTHON, "-m", "benchmarks._warm", str(file)], env)

    def run(self, pipeline: str) -> dict[str, Any]:
        """One run: its `seconds` and `rows`, and the seconds up to each of its `steps`. SystemExit if it fails."""
        return self.tell(pipeline)


def run(path: str, pipeline: str, kept: SharedSpark) -> dict[str, Any]:
    """One run from the store's opening to its closing, as the command does it."""
    said: list[tuple[float, Any]] = []
    begun = time.perf_counter()
    file = wiring.load(path)
    with closing(wiring.open_store(file)) as store:
        engine = wiring.assemble(
            file,
            pipeline,
            store=store,
            emit=lambda message: said.append((time.perf_counter(), message)),
            shared_spark=kept,
        )
        eof = engine.run()
    seconds = time.perf_counter() - begun
    steps = [
        [getattr(message, "step", None) or type(message).__name__, round(moment - begun, 3)] for moment, message in said
    ]
    return {"status": eof.status, "rows": eof.request_progress["rows"], "seconds": seconds, "steps": steps} | (
        {"why": [str(message) for _, message in said]} if eof.status != "complete" else {}
    )


def main() -> None:
    path = sys.argv[1]
    kept = wiring.shared_spark_for(wiring.load(path), ())
    try:
        for line in sys.stdin:
            print(json.dumps(run(path, line.strip(), kept)), flush=True)
    finally:
        kept.end()


if __name__ == "__main__":
    main()
