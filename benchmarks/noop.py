"""A run with nothing new on a table of a million rows, beside the import of its driver; help, beside Typer's import.

Such a run must start no JVM, write nothing but its report (a row or two of the store), and take at most 4 times as long
as `python -c "import psycopg"`; `penstock --help` at most 2.5 times as long as `python -c "import typer"`. All four
run in turns in one environment; the ratios are of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from benchmarks import _orders as orders
from tests.harness.postgres import PostgresServer

NOOP_BOUND, HELP_BOUND = 4.0, 2.5

#: stands in for java, notes that it was called, and becomes the real one
SHIM = '#!/bin/sh\necho started >> "{record}"\nexec "{java}" "$@"\n'

#: a file as it was: its contents, and when it was last written
Tree = Mapping[str, tuple[bytes, int]]


class JavaWatch:
    """A `java` before the real one, on the path and in JAVA_HOME, that keeps a record of every start."""

    def __init__(self, folder: Path) -> None:
        real = Path(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else shutil.which("java")
        if real is None:
            raise SystemExit("there is no java here; run script/setup")
        self._record = folder / "java-starts"
        self._home = folder / "java"
        shim = self._home / "bin" / "java"
        shim.parent.mkdir(parents=True)
        shim.write_text(SHIM.format(record=self._record, java=real))
        shim.chmod(0o755)

    def watched(self, env: Mapping[str, str]) -> dict[str, str]:
        path = f"{self._home / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
        # The JVM that makes an archive behind a run would be counted too.
        return {**env, "JAVA_HOME": str(self._home), "PATH": path, "PENSTOCK_TRAINING": "off"}

    def starts(self) -> int:
        return len(self._record.read_text().splitlines()) if self._record.exists() else 0


def tree(*tops: Path) -> Tree:
    """Every file below some folders."""
    files = (path for top in tops for path in sorted(top.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def store_rows(store: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of a store, without the reports of runs."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        kept = [name for name in tables if name not in ("failures", "looks", "days")]
        return {name: db.execute(f'SELECT * FROM "{name}" ORDER BY rowid').fetchall() for name in kept}


def measured(
    commands: Mapping[str, list[str]], env: dict[str, str], folder: Path, *, rounds: int
) -> dict[str, list[float]]:
    """Seconds of each command, in turns; the first two rounds only warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for round_ in range(rounds + 2):
        for name, command in commands.items():
            begun = time.perf_counter()
            said = orders.run_once(command, env, folder)
            if round_ >= 2:
                seconds[name].append(time.perf_counter() - begun)
            if name == "noop" and "nothing new" not in said:
                raise SystemExit(f"the run was to find nothing new, and said:\n{said}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=15, help="rounds that count, at least 11")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-noop-") as name, PostgresServer() as server:
        folder = Path(name)
        java = JavaWatch(folder)
        url = server.database("shop")
        env = java.watched(orders.environment(url))
        orders.make_orders(url, chosen.rows)
        file = orders.write_pipeline(folder)
        commands = {
            "import psycopg": [orders.PYTHON, "-c", "import psycopg"],
            "noop": [orders.COMMAND, "run", str(file)],
            "import typer": [orders.PYTHON, "-c", "import typer"],
            "help": [orders.COMMAND, "--help"],
        }
        orders.run_once(commands["noop"], env, folder)
        if orders.rows_in(folder / "out") != chosen.rows:
            raise SystemExit("the first run did not bring every row in")
        if not java.starts():
            raise SystemExit("the first run started no java that was noticed, so its absence would mean nothing")
        out, store = folder / "out", folder / ".penstock" / "store.db"
        started, before = java.starts(), (tree(out), store_rows(store))
        seconds = measured(commands, env, folder, rounds=max(11, chosen.rounds))
        jvm_started, untouched = java.starts() > started, (tree(out), store_rows(store)) == before
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    print(f"{chosen.rows:,} rows brought in; then {len(seconds['noop'])} rounds with nothing new, in turns")
    for name, taken in seconds.items():
        print(f"  {name:<15} median {medians[name] * 1000:6.0f} ms   from {min(taken):.3f} to {max(taken):.3f} s")
    noop_ratio = round(medians["noop"] / medians["import psycopg"], 2)
    help_ratio = round(medians["help"] / medians["import typer"], 2)
    print(
        f"  noop is {noop_ratio} (at most {NOOP_BOUND}) and help {help_ratio} (at most {HELP_BOUND}) times its import"
    )
    if not untouched:
        raise SystemExit("a run with nothing new changed the output folder, or more of the store than its report")
    print(json.dumps({"noop_ratio": noop_ratio, "help_ratio": help_ratio, "jvm_started": jvm_started}))
    if noop_ratio > NOOP_BOUND or help_ratio > HELP_BOUND or jvm_started:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
