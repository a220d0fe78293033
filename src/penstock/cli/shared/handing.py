"""Hands a run over to a warm worker, if there is one that may run it, and leaves one behind if the file asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.core.messages import Message

#: bytes after which a worker that a run has left behind ends
MEMORY_LIMIT = 2 << 30


def handed_over(path: str, sets: Sequence[str], words: Sequence[str], as_json: bool) -> int | None:
    """The exit code of a run in a worker; None: this process must run it, and has said so if a worker is there."""
    from penstock.warm import handover

    connection = handover.find(path, lambda: _store_name(path, sets), use_alias=not _moves_store(sets))
    if connection is None:
        return None
    from penstock.cli.shared.environment import added_variables

    found = handover.hand_over(connection, words, os.environ, added_variables())
    if isinstance(found, handover.Unused):
        from penstock.cli.shared.workers import say_unused

        say_unused(found.why, as_json=as_json)
        return None
    return found


class WorkerLeft:
    """Leaves a worker behind after a run that had to start Spark itself, if the file has `spark.keep_warm`."""

    def __init__(self) -> None:
        #: what this process was started with: Spark adds variables of its own
        self._environment = dict(os.environ)
        self._started_spark = False

    def beside(self, hear: Callable[[Message], None]) -> Callable[[Message], None]:
        """Hear every message too."""
        from penstock.core.messages import MoverStatus

        def both(message: Message) -> None:
            self._started_spark = self._started_spark or (isinstance(message, MoverStatus) and message.ready)
            hear(message)

        return both

    def leave(self, file: File, sets: Sequence[str]) -> None:
        """Start a worker and do not wait for it; the run that found something to move has ended well."""
        kept = file.spark.keep_warm
        if kept is None or not self._started_spark:
            return
        from penstock.warm import starting

        if starting.status(file) is None:
            words = starting.words_for(kept.total_seconds(), MEMORY_LIMIT, sets)
            starting.start_detached(words, file.path, starting.store_name(file), self._environment, None)


def _moves_store(sets: Sequence[str]) -> bool:
    return any(each.partition("=")[0].strip() == "store" for each in sets)


def _store_name(path: str, sets: Sequence[str]) -> str | None:
    from penstock import wiring
    from penstock.errors import PenstockError
    from penstock.warm.starting import store_name

    try:
        return store_name(wiring.load(path, sets))
    except PenstockError:
        return None  # the run itself reads the file again, and reports what is wrong with it
