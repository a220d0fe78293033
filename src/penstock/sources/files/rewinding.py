"""Places that a user names: `now`, with every file that is there as seen, or a time."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.core.marks import Mark
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.sources.files.looking import Look
from penstock.sources.files.marks import make_mark
from penstock.sources.files.seen import Seen, SeenStore

NOW = "now"


def find_mark(store: SeenStore, look: Look, to: str, stream: str) -> Mark | None:
    """The mark for a place; None: the beginning. StreamRefused if the text names none."""
    files = look.files
    if to != NOW:
        before = _read_time(to, stream)
        files = [file for file in files if file.version.mtime < before]
    if not files:
        return None
    seen = store.add(Seen(), files)
    # Durable before an intent names it.
    store.write(seen)
    return make_mark(seen)


def _read_time(to: str, stream: str) -> int:
    """Nanoseconds since 1970."""
    try:
        if not to[:4].isdigit() or "-" not in to:
            raise ValueError(to)
        found = datetime.fromisoformat(to)
    except ValueError:
        raise StreamRefused(
            f"{to!r} is no place in a stream of files",
            safe=UNTOUCHED,
            next_step="use a time such as 2026-01-31 (files that were modified since are read again), or `now` (every "
            "file that is there counts as delivered)",
            stream=stream,
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000_000) * 1000
