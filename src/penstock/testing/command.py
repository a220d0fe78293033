"""The real command with a probe that halts at a named point: what the fault harness starts as a subprocess.

    python -m penstock.testing.command '{"point": "gate.moved", "nth": 2, "folder": "…"}' run FILE

At the point it leaves a file `reached` in the folder and waits: to be killed, or for a file `go`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from penstock import wiring
from penstock.testing.halting import HaltAt


def main() -> None:
    how: dict[str, Any] = json.loads(sys.argv.pop(1))
    if how.get("mover") == "loop":
        from penstock.testing.doubles import LoopMover

        wiring.make_mover = lambda _house: LoopMover()
    if "point" in how:
        wiring.make_probe = lambda: HaltAt(how["point"], how.get("nth", 1), how["folder"])
    from penstock.cli import main as command

    command()


if __name__ == "__main__":
    main()
