"""Where penstock keeps this user's caches."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """penstock's folder in the user's cache; RuntimeError if the user has no home."""
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "penstock"
