"""Files into Postgres: files arrive without pause, one in five in small pieces, while runs are killed at random.

    script/soak files_in [--kills 40] [--seed 1]

At the end every row of every file must be in the table once. Writes soak-results/files_in-SEED.json, and exits with 1
if a row was lost or doubled, or a run failed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg

from tests.harness.faults import Command
from tests.harness.postgres import PostgresServer
from tests.sources.files.folders import table, write

PIPELINE = """\
store: store.db
pipelines:
  inbox:
    source: {type: files, directory: in, settle: 1s}
    sink: {type: postgres, url: "${DATABASE_URL}", schema: copies}
    slice_bytes: 20000
    streams:
      things: {path: "**/*.parquet", columns: {id: int64, note: string}, mode: append}
"""
#: rows of one file
ROWS = 50
#: bytes that are written at once of a file that is written in pieces, and the pause between two
PIECE_BYTES, PIECE_SECONDS = 200, 0.05


class Arrivals:
    """Writes files into folders until it is over."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder, self._chance = folder, chance
        #: ids of the rows that were written
        self.ids: list[int] = []
        self.files = self.in_pieces = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write_all)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _write_all(self) -> None:
        while not self._over.wait(self._chance.random() * 0.1):
            ids = list(range(len(self.ids), len(self.ids) + ROWS))
            path = self._folder / "in" / str(self.files % 5) / f"{self.files:06}.parquet"
            if self._chance.random() < 0.2:
                self._write_in_pieces(path, ids)
            else:
                write(path, table(ids))
            self.ids += ids
            self.files += 1

    def _write_in_pieces(self, path: Path, ids: list[int]) -> None:
        self.in_pieces += 1
        write(self._folder / "whole.parquet", table(ids))
        whole = (self._folder / "whole.parquet").read_bytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for at in range(0, len(whole), PIECE_BYTES):
                file.write(whole[at : at + PIECE_BYTES])
                file.flush()
                time.sleep(PIECE_SECONDS)


def soak(folder: Path, url: str, kills: int, chance: random.Random) -> dict[str, object]:
    """Kill runs at random until enough were killed; what became of the rows."""
    (folder / "inbox.yaml").write_text(PIPELINE)
    (folder / "in").mkdir()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE SCHEMA copies")
    command, arrivals = Command(folder, environment={"DATABASE_URL": url}), Arrivals(folder, chance)
    codes: Counter[int] = Counter()
    killed = 0
    try:
        while killed < kills and sum(codes.values()) < 10 * kills:
            run = command.start("run", "inbox.yaml")
            time.sleep(chance.random() * 4)
            if run.process.poll() is None:
                run.kill()
                killed += 1
            else:
                codes[run.end().code] += 1
    finally:
        arrivals.end()
    for _ in range(2):
        codes[command.run("run", "inbox.yaml").code] += 1
    with psycopg.connect(url) as db:
        found = Counter(id_ for (id_,) in db.execute("SELECT id FROM copies.things"))
    found.subtract(arrivals.ids)
    return {
        "kills": killed,
        "failed_runs": sum(count for code, count in codes.items() if code),
        "files": arrivals.files,
        "files_in_pieces": arrivals.in_pieces,
        "rows": len(arrivals.ids),
        "lost": -sum(count for count in found.values() if count < 0),
        "doubled": sum(count for count in found.values() if count > 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40, help="how many runs are killed")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-files-in-") as folder, PostgresServer() as server:
        result = soak(Path(folder), server.database(), chosen.kills, random.Random(chosen.seed))
    result["seed"] = chosen.seed
    Path("soak-results").mkdir(exist_ok=True)
    Path(f"soak-results/files_in-{chosen.seed}.json").write_text(json.dumps(result))
    print(json.dumps(result))
    sys.exit(1 if result["lost"] or result["doubled"] or result["failed_runs"] else 0)


if __name__ == "__main__":
    main()
