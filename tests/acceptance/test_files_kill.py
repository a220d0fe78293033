"""SIGKILL at points of a run that reads files into Postgres; files arrive, grow and change meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.matrix import ONCE
from tests.harness.faults import FILES_IN_RUN_POINTS, Command, Outcome
from tests.sources.files.folders import table, write

PIPELINE = """\
store: .penstock/store.db
pipelines:
  inbox:
    source: {type: files, directory: in, settle: 1s}
    sink: {type: postgres, url: "${DATABASE_URL}", schema: copies}
    slice_bytes: 32768
    streams:
      orders: {path: "orders/**/*.parquet", mode: append}
"""
#: rows of one file
ROWS = 50


class Inbox:
    """Files with rows of their own, and the table that they are delivered into."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.command = Command(folder, environment={"DATABASE_URL": url})
        (folder / "inbox.yaml").write_text(PIPELINE)
        #: by file, the ids of its rows
        self.files: dict[str, range] = {}
        self._ids = 0

    def path(self, name: str) -> Path:
        return self.folder / "in" / "orders" / name

    def take_ids(self) -> range:
        self._ids += ROWS
        return range(self._ids - ROWS + 1, self._ids + 1)

    def write(self, name: str) -> None:
        """Write a file, or another one in its place."""
        self.files[name] = self.take_ids()
        write(self.path(name), table(self.files[name]), time=int(name[-11:-8]) if name[-11:-8].isdigit() else 0)

    def remove(self, name: str) -> None:
        del self.files[name]
        self.path(name).unlink()

    @contextmanager
    def growing(self, name: str) -> Iterator[None]:
        """A file that is being written, with pauses, and is whole at the end of the block."""
        ids = self.take_ids()
        write(self.folder / "whole.parquet", table(ids))
        whole, over = (self.folder / "whole.parquet").read_bytes(), threading.Event()

        def grow() -> None:
            with self.path(name).open("wb") as file:
                for at in range(len(whole)):
                    file.write(whole[at : at + 1])
                    file.flush()
                    if over.wait(0.1):
                        file.write(whole[at + 1 :])
                        return

        writer = threading.Thread(target=grow)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()
            self.files[name] = ids

    def run(self) -> Outcome:
        return self.command.run("run", "inbox.yaml")

    def differences(self) -> Counter[int]:
        """Ids that are missing (negative) or there too often."""
        with psycopg.connect(self.url) as db:
            found = Counter(id_ for (id_,) in db.execute("SELECT id FROM copies.orders"))
        found.subtract(id_ for ids in self.files.values() for id_ in ids)
        return Counter({id_: count for id_, count in found.items() if count})


@pytest.fixture
def inbox(database: str, tmp_path: Path) -> Inbox:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE SCHEMA copies")
    inbox = Inbox(database, tmp_path)
    for at in range(100):
        # More than a mark lists itself are in the set after the first run.
        inbox.write(f"{at % 3}/{at:03}.parquet")
    return inbox


@pytest.mark.parametrize("point", FILES_IN_RUN_POINTS)
def test_killed_at(point: str, inbox: Inbox) -> None:
    with inbox.growing("growing.parquet"):
        found = inbox.command.kill_at(point, "run", "inbox.yaml", nth=1 if point in ONCE else 2)
        assert found["point"] == point
    if point != "engine.released":
        # The last ones in the order: no slice has them yet.
        inbox.write("0/099.parquet")
        inbox.remove("2/098.parquet")
    for at in range(100, 104):
        inbox.write(f"{at}.parquet")
    done = inbox.run()
    assert done.code == 0, done.err
    assert inbox.differences() == {}
    assert inbox.run().code == 0
    assert inbox.differences() == {}
