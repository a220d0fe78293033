"""Group commit: batches of many clients are written and synced together, log by log, by one thread.

While one sync is under way, what arrives waits for the next. A log that fails holds up no other.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from penstock.wal.log import Entry, Log, Outcome


@dataclass(frozen=True, slots=True)
class _Waiting:
    log: Log
    entry: Entry
    answer: Future[Outcome]


class GroupCommit:
    """Belongs to one process. Leaving the `with` waits for what was submitted."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="penstock-wal", daemon=True)
        self._thread.start()

    def submit(self, log: Log, entry: Entry) -> Future[Outcome]:
        """Have an entry written; the answer comes once it is on disk, or is known not to be."""
        answer: Future[Outcome] = Future()
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the group commit was closed")
            self._waiting.append(_Waiting(log, entry, answer))
            self._changed.notify()
        return answer

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                taken = [*self._waiting]
                self._waiting.clear()
            by_log: dict[int, list[_Waiting]] = {}
            for each in taken:
                by_log.setdefault(id(each.log), []).append(each)
            for waiting in by_log.values():
                self._commit(waiting)

    def _commit(self, waiting: list[_Waiting]) -> None:
        try:
            outcomes = waiting[0].log.append([each.entry for each in waiting])
        except Exception as error:  # noqa: BLE001 (it is passed on to every client)
            # A defect is answered as one: nobody may wait for ever, or take it for durable.
            for each in waiting:
                each.answer.set_exception(error)
            return
        for each, outcome in zip(waiting, outcomes, strict=True):
            each.answer.set_result(outcome)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def __enter__(self) -> GroupCommit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
