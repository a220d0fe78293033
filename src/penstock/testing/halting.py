"""The probe that halts a process at a point: in a module of its own, because workers must find it by its name."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
        # Written whole under another name first: the waiting process must not read half of it.
        temporary = Path(self.folder, f"reached-{os.getpid()}")
        temporary.write_text(json.dumps({"point": point, "pid": os.getpid(), **about}))
        temporary.replace(Path(self.folder, "reached"))
        while not Path(self.folder, "go").exists():
            time.sleep(0.01)
