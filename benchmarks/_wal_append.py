"""The log's append with fsync by clients in one process, beside plain write and fsync of the same bytes.

Each client waits for the answer to a batch before it sends the next one, so batches that come while one sync is under
way make the next group. Plain writes have the same bytes in groups of the same size, each followed by one fsync.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.links.http.protocol import digest_of
from penstock.wal.batches import Batch
from penstock.wal.group_commit import GroupCommit
from penstock.wal.ledger import Chunk, Take
from penstock.wal.log import Log, LogOptions
from penstock.wal.opening import open_log

CLIENTS = 8
#: batches of one client, and bytes of one, as they are stored
BATCHES, BODY_BYTES = 150, 128 << 10


def measure_append(folder: Path, runs: int) -> tuple[float, float]:
    """Median seconds of plain write and fsync, and of the log, in turns."""
    folder.mkdir()
    plain, log = [], []
    seconds, groups = append(folder / "log")
    for run in range(-1, runs):
        # A disk that still works on what was written before slows down the second: each is first in turn.
        if run % 2:
            seconds, groups = append(folder / f"log{run}")
        beside = write_plainly(folder / f"plain{run}", groups)
        if run % 2 == 0:
            seconds, groups = append(folder / f"log{run}")
        if run >= 0:
            log.append(seconds)
            plain.append(beside)
            print(f"  run {run + 1:2} {len(groups)} syncs: log {seconds:.3f} s, plain {beside:.3f} s", flush=True)
    return statistics.median(plain), statistics.median(log)


def append(folder: Path) -> tuple[float, list[int]]:
    """Seconds in which all clients have sent all batches, and the bytes of each group. SystemExit if one is refused."""
    log = open_log(str(folder), LogOptions(), _now)
    groups = _count_groups(log)
    bodies = [os.urandom(BODY_BYTES) for _ in range(CLIENTS)]
    with GroupCommit() as group, ThreadPoolExecutor(CLIENTS) as pool:

        def send(client: int) -> None:
            before = ""
            for number in range(1, BATCHES + 1):
                name = digest_of(f"{client} {number}".encode())
                sender = Chunk(f"client{client}", name, number, before, 1, 1, name, 1000, "bounds")
                outcome = group.submit(log, Batch(sender, 1000, bodies[client])).result()
                if not isinstance(outcome, Take):
                    raise SystemExit(f"a batch was not taken: {outcome}")
                before = name

        begun = time.perf_counter()
        for each in [pool.submit(send, client) for client in range(CLIENTS)]:
            each.result()
        seconds = time.perf_counter() - begun
    log.close()
    return seconds, groups


def _count_groups(log: Log) -> list[int]:
    """The bytes that each sync of this log will have made durable."""
    groups, original = list[int](), log.sync

    def sync() -> None:
        before = log.size
        original()
        if log.size > before:
            groups.append(log.size - before)

    setattr(log, "sync", sync)  # noqa: B010 (a method is no variable to mypy)
    return groups


def write_plainly(path: Path, groups: Sequence[int]) -> float:
    """Seconds in which one file has been given as many bytes, with a sync after each group."""
    data = os.urandom(max(groups))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        begun = time.perf_counter()
        for size in groups:
            if os.write(descriptor, data[:size]) != size:
                raise SystemExit(f"{path} could not be written")
            os.fsync(descriptor)
        return time.perf_counter() - begun
    finally:
        os.close(descriptor)


def _now() -> int:
    return time.time_ns() // 1000
