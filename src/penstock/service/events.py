"""Log lines of the service: on standard error, one for each event that matters, with its time. None for a request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

#: says one line
Say = Callable[[str], None]
#: characters of a name from outside that are shown
_MOST_CHARACTERS = 200


def say(text: str) -> None:
    """Print a line with the time in UTC."""
    # At once, so that threads do not write into each other's lines.
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}\n")
    sys.stderr.flush()


def shown(name: str) -> str:
    """A name that somebody sent, so that it can begin no line of its own and rules no terminal."""
    cut = name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}…"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()
