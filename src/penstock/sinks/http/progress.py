"""Which chunks of a staged slice are acknowledged, in a file beside them: a failure re-sends only the others."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from penstock.links.durable import sync, write_durably

_FILE = "_acknowledged"


@dataclass(frozen=True)
class Progress:
    """Of one staged attempt, in its folder."""

    folder: str

    def acknowledged(self) -> int:
        """Chunks that the receiver has acknowledged, from the first on; 0 if it is not known."""
        try:
            with open(os.path.join(self.folder, _FILE), encoding="utf-8") as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def note(self, chunk: int) -> None:
        """Remember that this chunk is acknowledged, and all before it."""
        path = os.path.join(self.folder, _FILE)
        written = f"{path}.{os.getpid()}-{os.urandom(4).hex()}"
        # A folder that was swept meanwhile: another process has finished the slice.
        with suppress(FileNotFoundError):
            write_durably(written, str(chunk))
            os.replace(written, path)
            sync(self.folder)
