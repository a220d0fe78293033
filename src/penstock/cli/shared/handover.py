"""Hands a run over to a warm worker if there is a suitable one, and starts one after a run if the file asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import File
    from penstock.core.messages import Message

#: memory limit of a worker that a run has started
WORKER_MEMORY_BYTES = 2 << 30


def hand_over(path: str, sets: Sequence[str], arguments: Sequence[str], as_json: bool) -> int | None:
    """The exit code of a run in a worker; None if this process must run it. Prints why an existing worker is unused."""
    from penstock.warm import handover

    connection = handover.find_worker(path, lambda: _store_name(path, sets), use_alias=not _overrides_store(sets))
    if connection is None:
        return None
    from penstock.cli.shared.environment import added_variables

    result = handover.hand_over(connection, arguments, os.environ, added_variables())
    if isinstance(result, handover.NotHandedOver):
        from penstock.cli.shared.warm_worker import print_unused_worker

        print_unused_worker(result.why, as_json=as_json)
        return None
    return result


class WorkerStarter:
    """Starts a worker after a run that had to start Spark itself, if the file has `spark.keep_warm`."""

    def __init__(self) -> None:
        #: the environment this process was started with: Spark adds variables of its own
        self._environment = dict(os.environ)
        self._started_spark = False

    def observe(self, hear: Callable[[Message], None]) -> Callable[[Message], None]:
        """Wrap a listener, and note from its messages whether the run started Spark."""
        from penstock.core.messages import MoverStatus

        def both(message: Message) -> None:
            self._started_spark = self._started_spark or (isinstance(message, MoverStatus) and message.ready)
            hear(message)

        return both

    def start_if_wanted(self, file: File, sets: Sequence[str]) -> None:
        """Start a worker without waiting for it; call this after a run that ended without an error."""
        idle = file.spark.keep_warm
        if idle is None or not self._started_spark:
            return
        from penstock.warm import starting

        if starting.status(file) is None:
            arguments = starting.words_for(idle.total_seconds(), WORKER_MEMORY_BYTES, sets)
            starting.start_detached(arguments, file.path, starting.store_name(file), self._environment, None)


def _overrides_store(sets: Sequence[str]) -> bool:
    return any(each.partition("=")[0].strip() == "store" for each in sets)


def _store_name(path: str, sets: Sequence[str]) -> str | None:
    from penstock import wiring
    from penstock.errors import PenstockError
    from penstock.warm.starting import store_name

    try:
        return store_name(wiring.load(path, sets))
    except PenstockError:
        return None  # the run itself reads the file again, and reports what is wrong with it
