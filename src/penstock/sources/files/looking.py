"""A look at a stream's files: which are there, and which have been the same in two looks a set time apart."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock.links.pause import refuse_cancelled
from penstock.sources.files.places import File, Place, Version

_POLL_SECONDS = 0.1


@dataclass
class Look:
    """The files of a stream at one time: what a run reads."""

    #: every file that matches, the one that was modified first at the beginning
    files: list[File]
    #: symbolic links that match
    links: list[str]
    #: paths of files that are still being written
    unsettled: set[str] = field(default_factory=set)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)


def list_files(place: Place, patterns: Sequence[str], exclude: Sequence[str], since: datetime | None) -> Look:
    """List the files in the order in which they are read: by time of modification, then by name."""
    listing = place.listing(patterns, exclude)
    least = int(since.timestamp() * 1_000_000) * 1000 if since is not None else None
    files = [file for file in listing.files if least is None or file.version.mtime >= least]
    files.sort(key=lambda file: (file.version.mtime, file.path))
    return Look(files, listing.links)


class Settling:
    """Remembers which version of a file a process has seen, and since when."""

    def __init__(self, seconds: float, is_cancelled: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._is_cancelled = is_cancelled
        self._since: dict[str, tuple[Version, float]] = {}

    @property
    def has_begun(self) -> bool:
        """Whether files were seen before."""
        return bool(self._since)

    def begin(self, files: Sequence[File]) -> None:
        """See files, and forget all others: from now on, the time runs for those that were not there before."""
        now, known = time.monotonic(), self._since
        self._since = {}
        for file in files:
            before = known.get(file.path)
            self._since[file.path] = before if before and before[0] == file.version else (file.version, now)

    def must_wait(self) -> bool:
        """Whether no file has settled yet."""
        now = time.monotonic()
        return bool(self._since) and all(now - since < self._seconds for _, since in self._since.values())

    def settle(self, place: Place, files: Sequence[File]) -> set[str]:
        """Paths of those files that are still being written. Waits only if no file has settled yet."""
        if not self._seconds:
            return set()
        if self.must_wait():
            self._wait(min(since for _, since in self._since.values()) + self._seconds)
        return {file.path for file in files if not self._is_settled(place, file)}

    def _is_settled(self, place: Place, file: File) -> bool:
        version, since = self._since[file.path]
        if time.monotonic() - since < self._seconds:
            return False
        found = place.version(file.path)
        if found == version:
            return True
        if found is not None:
            self._since[file.path] = (found, time.monotonic())
        return False

    def _wait(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0:
            refuse_cancelled(self._is_cancelled)
            time.sleep(min(left, _POLL_SECONDS))
