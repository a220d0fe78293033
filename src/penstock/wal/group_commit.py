"""Group commit: batches of many clients are synced together, log by log.

One thread judges and writes what arrives, another syncs what was written: while one sync is under way, the batches of
the next are written. A log that fails holds up no other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from penstock.wal.log import Answer, Entry, Log, Outcome, Outcomes


@dataclass(frozen=True, slots=True)
class _Waiting:
    log: Log
    entry: Entry
    answer: Future[Outcome]


class GroupCommit:
    """Belongs to one process. Leaving the `with` waits for what was submitted."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        #: logs with something that was written and is to be synced, in order
        self._unsynced: dict[int, Log] = {}
        self._lock = threading.Lock()
        self._arrived, self._written = threading.Condition(self._lock), threading.Condition(self._lock)
        self._is_closed = self._is_all_written = False
        self._threads = _start("penstock-wal-write", self._write), _start("penstock-wal-sync", self._sync)

    def submit(self, log: Log, entry: Entry) -> Future[Outcome]:
        """Have an entry written; the answer comes once it is on disk, or is known not to be."""
        answer: Future[Outcome] = Future()
        # A client that has gone away takes nothing back.
        answer.set_running_or_notify_cancel()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the group commit was closed")
            self._waiting.append(_Waiting(log, entry, answer))
            self._arrived.notify()
        return answer

    def _write(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._is_closed:
                    self._arrived.wait()
                if not self._waiting:
                    self._is_all_written = True
                    self._written.notify()
                    return
                taken = [*self._waiting]
                self._waiting.clear()
            by_log: dict[int, list[_Waiting]] = {}
            for each in taken:
                by_log.setdefault(id(each.log), []).append(each)
            for waiting in by_log.values():
                log, answer = waiting[0].log, _answer_to([each.answer for each in waiting])
                try:
                    log.write([each.entry for each in waiting], answer)
                except Exception as error:  # noqa: BLE001 (it is passed on to every client)
                    # A defect is answered as one: nobody may wait for ever, or take it for durable.
                    answer(error)
                    continue
                with self._lock:
                    self._unsynced[id(log)] = log
                    self._written.notify()

    def _sync(self) -> None:
        while True:
            with self._lock:
                while not self._unsynced and not self._is_all_written:
                    self._written.wait()
                if not self._unsynced:
                    return
                logs = [*self._unsynced.values()]
                self._unsynced.clear()
            for log in logs:
                log.sync()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._arrived.notify()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> GroupCommit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _answer_to(futures: list[Future[Outcome]]) -> Answer:
    def answer(outcomes: Outcomes) -> None:
        if isinstance(outcomes, Exception):
            for future in futures:
                future.set_exception(outcomes)
            return
        for future, outcome in zip(futures, outcomes, strict=True):
            future.set_result(outcome)

    return answer
