"""A receiver's log with orders, and the pipeline that lands them in files: acceptance tests of the wal source."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from penstock.wal.folders import folder_of
from tests.harness.faults import Command, Outcome
from tests.sources.wal.logs import Orders

FILE = """\
store: .penstock/store.db
pipelines:
  inbox:
    source: {{type: wal, directory: wal}}
    sink: {{type: files, directory: out, format: ndjson}}
    slice_bytes: {slice_bytes}
    lease_seconds: {lease}
    streams:
      orders: {{columns: {{id: int64, note: string}}, primary_key: [id]{options}}}
"""


@dataclass
class Inbox:
    """Orders arrive in slices of two chunks and in batches of their own; segments are small."""

    folder: Path
    orders: Orders
    command: Command
    #: orders that were sent
    sent: int = 0

    @classmethod
    def open(cls, folder: Path) -> Inbox:
        orders = Orders(folder)
        orders.stream = "orders"
        inbox = cls(folder, orders, Command(folder))
        inbox.write()
        return inbox

    def write(self, options: str = "", *, slice_bytes: int = 4096, lease: float = 30) -> None:
        text = FILE.format(options=options, slice_bytes=slice_bytes, lease=lease)
        (self.folder / "inbox.yaml").write_text(text)

    def arrive(self, count: int) -> None:
        self.orders.arrive(count)
        self.sent += count

    def run(self, verb: str, *words: str) -> Outcome:
        return self.command.run(*verb.split(), "inbox.yaml", *words)

    def goes(self) -> str:
        """`check` and `run` end with 0; what the run said."""
        for verb in ("check", "run"):
            done = self.run(verb)
            assert done.code == 0, (verb, said_by(done))
        return said_by(done)

    def refused(self, *words: str, code: int) -> str:
        """`check`, `plan` and `run` say so and end with the code, and nothing is delivered; what `run` said."""
        before = self.ids()
        for verb in ("check", "plan", "run"):
            done = self.run(verb)
            assert done.code == code, (verb, done.code, said_by(done))
            for each in words:
                assert each in said_by(done), (verb, said_by(done))
        assert self.ids() == before
        return said_by(done)

    def ids(self) -> list[int]:
        """What was delivered, slice by slice."""
        paths = sorted((self.folder / "out" / "orders").glob("*.ndjson"))
        return [json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()]

    def differences(self) -> dict[int, int]:
        """Orders that are missing (negative) or were delivered more than once."""
        found = Counter(self.ids())
        found.subtract(range(1, self.sent + 1))
        return {id_: count for id_, count in found.items() if count}

    # ------------------------------------------------------------ the log

    @property
    def log(self) -> Path:
        return Path(folder_of(str(self.folder / "wal"), "orders"))

    def keep(self, name: str) -> None:
        """A copy of the log as it is now."""
        shutil.copytree(self.log, self.folder / name)

    def put_back(self, name: str) -> None:
        shutil.rmtree(self.log)
        shutil.copytree(self.folder / name, self.log)


def said_by(done: Outcome) -> str:
    return " ".join((done.out + done.err).split())
