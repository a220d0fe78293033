"""The real command with a probe that halts at a named point: what the fault harness starts as a subprocess.

    python tests/harness/command.py '{"point": "gate.moved", "nth": 2, "folder": "…"}' run FILE

At the point it leaves a file `reached` in the folder and waits: to be killed, or for a file `go`. A warm worker is told
the same in a file, `{"halts": PATH}`, which each run in it reads anew; with `"spark": "none"` it starts no JVM, with
`"describes": {"version": …}` it takes itself for another one, and with `"poll_seconds"` it looks at its store so often.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from penstock import wiring
from penstock.ports import NoProbe, Probe
from penstock.testing.halting import HaltAt

#: starts it in any folder: `[*START, JSON, *WORDS]`
START = (sys.executable, __file__)


def main() -> None:
    how: dict[str, Any] = json.loads(sys.argv.pop(1))
    if how.get("mover") == "loop":
        from tests.harness.doubles import LoopMover

        wiring.make_mover = lambda _provider: LoopMover()
    if "point" in how:
        wiring.make_probe = lambda: HaltAt(how["point"], how.get("nth", 1), how["folder"])
    if "halts" in how:
        wiring.make_probe = lambda: _told_in(Path(how["halts"]))
    if how.get("spark") == "none":
        from tests.harness.no_spark import PipedProcess

        from penstock.warm import starting

        starting.make_spark = PipedProcess
    if "describes" in how:
        _describe_otherwise(how["describes"])
    if "poll_seconds" in how:
        from penstock.warm import store_watch, worker

        store_watch.SERVER_POLL_SECONDS = worker.STORE_POLL_SECONDS = how["poll_seconds"]
    from penstock.cli import main as command

    command()


def _describe_otherwise(parts: dict[str, Any]) -> None:
    from penstock.warm import compatibility

    describe_process = compatibility.describe_process
    compatibility.describe_process = lambda environment: describe_process(environment) | parts


def _told_in(path: Path) -> Probe:
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return NoProbe()
    return HaltAt(told["point"], told["nth"], told["folder"])


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    main()
