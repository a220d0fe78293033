"""The acts of the demo. Every printed number is measured; an unexpected result ends the demo with exit code 1."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg
from tests.harness.postgres import LocalServer

from demo import checksums, shop, writer
from demo.checksums import Agreement
from demo.folder import Folder
from demo.gallery import DELETE, FAN_OUT, Gallery
from demo.shop import ORDERS, TABLES
from demo.stage import DemoFailed, Stage, short_path
from penstock import wiring
from penstock.config import File

#: the run is killed while this slice of `orders` is open
KILL_AT_SLICE = 2
#: seconds to wait for that slice
SLICE_TIMEOUT_SECONDS = 300.0


class Demo:
    """One demo on a running server."""

    def __init__(self, folder: Folder, server: LocalServer, stage: Stage, *, orders: int) -> None:
        self.folder = folder
        self.server = server
        self.stage = stage
        self.orders = orders
        self.file = short_path(folder.file)
        self.url = ""

    def show(self) -> list[Agreement]:
        """Run all acts, and return the comparison of source and sinks."""
        began = time.monotonic()
        self.open_the_shop()
        self.show_the_pipelines()
        self.first_run()
        self.kill_a_run()
        self.resume()
        self.run_with_nothing_new()
        self.keep_a_state_table()
        compared = self.compare()
        moved = sum(self.rows(pipeline) for pipeline in ("shop", "archive", "report"))
        self.stage.good(f"{moved:,} rows moved, none lost, none duplicated, in {time.monotonic() - began:.0f} s.")
        return compared

    # ------------------------------------------------------------ the acts

    def open_the_shop(self) -> None:
        self.stage.act(1, "A shop on a real PostgreSQL")
        self.url = shop.fill(self.server, self.orders)
        self.stage.environment["DATABASE_URL"] = self.url
        self.folder.write_environment(self.url, path_to_penstock())
        counts = ", ".join(f"{rows:,} {name}" for name, rows in shop.counts(self.url).items())
        self.stage.print_text(f"PostgreSQL {version(self.url)} on port {self.server.port}: {counts}.")

    def show_the_pipelines(self) -> None:
        self.stage.act(2, "The pipeline file, and how `penstock check` says a stream is synced")
        self.stage.show(self.folder.file.read_text().rstrip())
        self.stage.penstock("check", self.file, "archive", last_lines=3)

    def first_run(self) -> None:
        self.stage.act(3, "The first run: Postgres → lake, while another connection keeps changing rows")
        with writer.Writer(self.url) as busy:
            self.stage.penstock("run", self.file, "shop", last_lines=4)
        self.stage.print_text(f"Changes meanwhile, for the next run: {writer.describe(busy.done)}.")

    def kill_a_run(self) -> None:
        self.stage.act(4, f"Postgres → files, killed with SIGKILL in the middle of slice {KILL_AT_SLICE}")
        with self.stage.running("run", self.file, "archive") as process:
            number = self.freeze_inside_a_slice(process)
            self.stage.kill(process)
        self.stage.print_text(f"kill -9 {process.pid}, in the middle of slice {number}. Look for `open:`")
        self.stage.penstock("state", "show", self.file, "--pipeline", "archive")
        seen, delivered = checksums.in_files(self.folder.archive, ORDERS).num_rows, self.rows("archive", "orders")
        if seen != delivered:
            raise failed(f"{delivered:,} orders were delivered, but readers see {seen:,}")
        self.stage.good(f"Readers of the files see {seen:,} orders: the finished slices, and no row of the open one.")

    def resume(self) -> None:
        changes = writer.describe(writer.change_many(self.url))
        self.stage.act(5, "All pipelines: the open slice is finished first, with the same bounds; then new rows move")
        self.stage.print_text(f"The shop has changed again: {changes}.")
        # Without the lines of the lake, which the first run has shown.
        self.stage.penstock("run", self.file, last_lines=16)

    def run_with_nothing_new(self) -> None:
        self.stage.act(6, "A run with nothing new")
        before = self.files()
        ended = self.stage.penstock("run", self.file, "report")
        if self.files() != before:
            raise failed("a run with nothing new has written a file")
        if "java" in ended.started:
            raise failed("a run with nothing new has started Spark")
        self.stage.good(f"{ended.seconds:.1f} s including Python's start: no JVM was started and no file was written.")

    def keep_a_state_table(self) -> None:
        self.stage.act(7, "A state table: one row for each image, from six tables, by triggers and an outbox")
        environment = dict(self.stage.environment)
        shown = Gallery(self.folder, self.server, self.stage)
        shown.apply_triggers()
        self.stage.print_text(f"Each image with its model: {shown.run()}. Now: {DELETE}; {FAN_OUT}")
        shown.execute(DELETE, FAN_OUT)
        after = shown.run()
        self.stage.environment = environment
        if not shown.agrees():
            raise failed("the state table is not what the six tables say")
        self.stage.good(f"The delete and the fan-out have arrived: {after}.")

    def compare(self) -> list[Agreement]:
        self.stage.act(8, "Do source and sinks agree? Checksums by SQL, by PyIceberg and by PyArrow")
        compared = agreements(self.folder, self.url)
        print(table_of(compared), flush=True)
        wrong = [
            f"{one.table} in {one.sink}: {one.differs or 'nothing differs'}; {one.twice:,} twice"
            for one in compared
            if not one.same
        ]
        if wrong:
            raise failed("source and sink disagree:\n  " + "\n  ".join(wrong))
        self.stage.good("They agree: every row is present, and each version exactly once.")
        return compared

    # ------------------------------------------------------------ reading the store and the folder

    def freeze_inside_a_slice(self, process: subprocess.Popen[bytes]) -> int:
        """Wait until the slice is open, freeze the run in it, and return the slice's number."""
        file = wiring.load(str(self.folder.file))
        end = time.monotonic() + SLICE_TIMEOUT_SECONDS
        while process.poll() is None and time.monotonic() < end:
            if (open_slice(file) or 0) >= KILL_AT_SLICE:
                # A frozen run cannot finish the slice before it is killed.
                process.send_signal(signal.SIGSTOP)
                number = open_slice(file)
                if number is not None:
                    return number
                process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        raise failed(f"the run ended with {process.poll()} before slice {KILL_AT_SLICE} of orders was open")

    def rows(self, pipeline: str, stream: str | None = None) -> int:
        """The number of delivered rows in the store."""
        with closing(wiring.open_store(wiring.load(str(self.folder.file)))) as store:
            return sum(state.rows for name, state in store.streams(pipeline).items() if stream in (None, name))

    def files(self) -> dict[Path, tuple[int, int]]:
        """Every file of the sinks, with size and time."""
        places: list[Path] = [self.folder.lake, self.folder.archive, self.folder.report]
        return {
            path: (stat.st_size, stat.st_mtime_ns)
            for place in places
            for path in place.rglob("*")
            if not path.is_dir() and (stat := path.lstat())
        }


def open_slice(file: File) -> int | None:
    """The number of the open slice of orders in the archive pipeline; None if there is none."""
    if wiring.missing_store(file) is not None:
        return None
    with closing(wiring.open_store(file)) as store:
        state = store.streams("archive").get("orders")
    return state.intent.number if state is not None and state.intent is not None else None


def failed(what: str) -> DemoFailed:
    return DemoFailed(what, safe="", next_step="this is a bug in penstock: please report it with the output above")


def agreements(folder: Folder, url: str) -> list[Agreement]:
    """Compare every table with every sink that has it."""
    asked = [(table, "lake", checksums.in_lake(folder.lake, "shop", table)) for table in TABLES]
    asked.append((ORDERS, "archive", checksums.in_files(folder.archive, ORDERS)))
    asked.append((ORDERS, "report", checksums.in_files(folder.report, ORDERS)))
    with psycopg.connect(url, autocommit=True) as connection:
        return [checksums.agreement(connection, *one) for one in asked]


def table_of(compared: list[Agreement]) -> str:
    """Format the comparison as a table."""
    lines = [
        f"    {'table':<12} {'sink':<8} {'in Postgres':>14} {'by SQL':<16}    {'in the sink':>14} {'':<16} {'twice':>6}"
    ]
    for one in compared:
        sign = "=" if one.same else "≠"
        lines.append(
            f"    {one.table:<12} {one.sink:<8} {one.rows:>9,} rows {one.checksum[:16]}  {sign} "
            f"{one.rows_in_sink:>9,} rows {one.checksum_in_sink[:16]} {one.twice:>6,}"
        )
    return "\n".join(lines)


def version(url: str) -> str:
    with psycopg.connect(url) as connection:
        return str(connection.info.server_version // 10000)


def path_to_penstock() -> str | None:
    """The folder that must be added to PATH to find this penstock; None if it is already there."""
    ours = Path(sys.executable).parent
    program = shutil.which("penstock")
    return None if program is not None and Path(program).parent == ours else str(ours)
