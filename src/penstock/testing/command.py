"""The real command with a probe that halts at a named point: what the fault harness starts as a subprocess.

    python -m penstock.testing.command '{"point": "gate.moved", "nth": 2, "folder": "…"}' run FILE

At the point it leaves a file `reached` in the folder and waits: to be killed, or for a file `go`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import wiring


@dataclass
class HaltAt:
    """Halts the process at the nth time it comes to a point. Picklable: a point may lie in a worker."""

    point: str
    nth: int
    folder: str
    seen: int = field(default=0)

    def at(self, point: str, **about: Any) -> None:
        if point != self.point:
            return
        self.seen += 1
        if self.seen != self.nth:
            return
        # Written whole under another name first: the one who waits must not read half of it.
        temporary = Path(self.folder, f"reached-{os.getpid()}")
        temporary.write_text(json.dumps({"point": point, "pid": os.getpid(), **about}))
        temporary.replace(Path(self.folder, "reached"))
        while not Path(self.folder, "go").exists():
            time.sleep(0.01)


def main() -> None:
    how: dict[str, Any] = json.loads(sys.argv.pop(1))
    if how.get("mover") == "loop":
        from penstock.testing.doubles import LoopMover

        wiring.make_mover = lambda _options: LoopMover()
    if "point" in how:
        wiring.make_probe = lambda: HaltAt(how["point"], how.get("nth", 1), how["folder"])
    from penstock.cli import main as command

    command()


if __name__ == "__main__":
    main()
