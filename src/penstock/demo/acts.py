"""The story, act by act. Every number that is told is measured or asked for; a surprise ends it with exit code 1."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg

from penstock import wiring
from penstock.config import File
from penstock.demo import checksums, shop, writer
from penstock.demo.checksums import Agreement
from penstock.demo.folder import Folder
from penstock.demo.server import LocalServer
from penstock.demo.shop import CUSTOMERS, EVENTS, ORDERS, TABLES
from penstock.demo.stage import DemoFailed, Stage, near

#: the run is killed once this slice of `orders` is open
KILL_AT = 3
#: seconds that a run may take to come there
PATIENCE = 300.0


class Demo:
    """One showing, on a server that runs."""

    def __init__(self, folder: Folder, server: LocalServer, stage: Stage, *, orders: int) -> None:
        self.folder = folder
        self.server = server
        self.stage = stage
        self.orders = orders
        self.file = near(folder.file)
        self.url = ""

    def show(self) -> list[Agreement]:
        """All acts; what was compared at the end."""
        began = time.monotonic()
        self.open_the_shop()
        self.show_the_pipelines()
        self.first_run()
        self.kill_a_run()
        self.resume()
        self.read_on()
        compared = self.compare()
        moved = sum(self.rows(pipeline) for pipeline in ("shop", "archive", "report"))
        self.stage.pause()
        self.stage.good(f"{moved:,} rows moved, none lost, none twice, in {time.monotonic() - began:.0f} s.")
        return compared

    # ------------------------------------------------------------ the acts

    def open_the_shop(self) -> None:
        self.stage.act(1, "A shop on a real PostgreSQL")
        began = time.monotonic()
        self.url = shop.fill(self.server, self.orders)
        self.stage.environment["DATABASE_URL"] = self.url
        self.folder.say_url(self.url, path_to_penstock())
        self.stage.say(f"PostgreSQL {version(self.url)} on port {self.server.port}, in {near(self.folder.postgres)}:")
        counts = shop.counts(self.url)
        self.stage.show("\n".join(f"{name:<12} {rows:>8,} rows" for name, rows in counts.items()))
        self.stage.say(f"{sum(counts.values()):,} rows, filled in {time.monotonic() - began:.1f} s.")

    def show_the_pipelines(self) -> None:
        self.stage.act(2, "The pipeline file: from Postgres into a lake, into files, and from the lake into files")
        self.stage.show(self.folder.file.read_text())
        self.stage.say("`penstock check` connects to both sides and says what will be moved, how, and what is sure.")
        self.stage.penstock("check", self.file, "archive", "--verbose")

    def first_run(self) -> None:
        self.stage.act(3, "The first run: Postgres → lake, and on into files, while the shop goes on")
        self.stage.say(
            "Another connection changes rows all the time. A stream is read up to where it stood when its turn came: "
            "what changes after that is for the next run."
        )
        with writer.Writer(self.url) as busy:
            self.stage.penstock("run", self.file, "shop", "report")
        self.stage.pause()
        self.stage.say(f"Meanwhile in the shop: {writer.told(busy.done)}.")

    def kill_a_run(self) -> None:
        self.stage.act(4, f"Postgres → files, killed with SIGKILL in the middle of slice {KILL_AT}")
        self.stage.say("Look at `orders`: a slice is written down as open before it is moved.")
        with self.stage.running("run", self.file, "archive") as process:
            number = self.stopped_inside_a_slice(process)
            self.stage.kill(process)
        self.stage.say(
            f"kill -9 {process.pid}: the run is gone in the middle of slice {number} of orders. Look for `open:`"
        )
        self.stage.penstock("status", self.file)
        seen, delivered = checksums.in_files(self.folder.archive, ORDERS).num_rows, self.rows("archive", "orders")
        if seen != delivered:
            raise failed(f"{delivered:,} orders were delivered, but readers see {seen:,}")
        self.stage.pause()
        self.stage.good(f"Readers of the files see {seen:,} orders: the slices that are done, nothing of the open one.")
        self.stage.say("With nobody running, the shop goes on:")
        self.stage.show(writer.told(writer.meanwhile(self.url)))

    def resume(self) -> None:
        self.stage.act(5, "The same command again")
        self.stage.say("It finishes the open slice first, with its old bounds, then goes on to what is new.")
        self.stage.penstock("run", self.file, "archive")

    def read_on(self) -> None:
        self.stage.act(6, "What is new: into the lake, and from the lake into files")
        self.stage.say(
            "Only what changed since the first run moves; products has no cursor and is replaced as a whole."
        )
        self.stage.penstock("run", self.file, "shop", "report")
        self.stage.pause()
        self.stage.say("Now nothing is new in the lake:")
        before = self.files()
        ended = self.stage.penstock("run", self.file, "report")
        if self.files() != before:
            raise failed("a run with nothing new has written something")
        if "java" in ended.started:
            raise failed("a run with nothing new has started Spark")
        self.stage.good(f"{ended.seconds:.1f} s with Python's start: no JVM was started, no file was touched.")

    def compare(self) -> list[Agreement]:
        self.stage.act(7, "Do source and sinks agree?")
        self.stage.say(
            "The newest version of each row: its checksum by SQL on the server, and by PyIceberg from the lake or by "
            "PyArrow from the Parquet files. `twice`: versions of a row that are there more than once."
        )
        compared = agreements(self.folder, self.url)
        print(f"\n{table_of(compared)}\n", flush=True)
        wrong = [
            f"{one.table} in {one.sink}: {one.differs or 'nothing differs'}; {one.twice:,} twice"
            for one in compared
            if not one.same
        ]
        if wrong:
            raise failed("source and sink disagree:\n  " + "\n  ".join(wrong))
        self.stage.good("They agree: every row is there, each version once.")
        return compared

    # ------------------------------------------------------------ asking the store and the folder

    def stopped_inside_a_slice(self, process: subprocess.Popen[bytes]) -> int:
        """Wait until a slice far enough is open and freeze the run in it; the slice's number."""
        file = wiring.load(str(self.folder.file))
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            if (open_slice(file) or 0) >= KILL_AT:
                # Frozen, it cannot finish the slice between our look and our shot.
                process.send_signal(signal.SIGSTOP)
                number = open_slice(file)
                if number is not None:
                    return number
                process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        raise failed(f"the run ended with {process.poll()} before slice {KILL_AT} of orders was open")

    def rows(self, pipeline: str, stream: str | None = None) -> int:
        """Rows that the store says are delivered."""
        with closing(wiring.open_store(wiring.load(str(self.folder.file)))) as store:
            return sum(state.rows for name, state in store.streams(pipeline).items() if stream in (None, name))

    def files(self) -> dict[Path, tuple[int, int]]:
        """Everything that readers see, with size and time."""
        places: list[Path] = [self.folder.lake, self.folder.archive, self.folder.report]
        return {
            path: (found.st_size, found.st_mtime_ns)
            for place in places
            for path in place.rglob("*")
            if not path.is_dir() and (found := path.lstat())
        }


def open_slice(file: File) -> int | None:
    """The number of the slice of orders that the archive has open."""
    if wiring.missing_store(file) is not None:
        return None
    with closing(wiring.open_store(file)) as store:
        state = store.streams("archive").get("orders")
    return state.intent.number if state is not None and state.intent is not None else None


def failed(what: str) -> DemoFailed:
    return DemoFailed(what, safe="", next_step="this is a defect in penstock: please report it, with the output above")


def agreements(folder: Folder, url: str) -> list[Agreement]:
    """Every table in every sink that holds it."""
    asked = [(table, "lake", checksums.in_lake(folder.lake, "shop", table)) for table in TABLES]
    asked += [(table, "archive", checksums.in_files(folder.archive, table)) for table in (CUSTOMERS, ORDERS)]
    asked += [(table, "report", checksums.in_files(folder.report, table)) for table in (ORDERS, EVENTS)]
    with psycopg.connect(url, autocommit=True) as connection:
        return [checksums.agreement(connection, *one) for one in asked]


def table_of(compared: list[Agreement]) -> str:
    """Both sides side by side."""
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
    """The folder that a shell needs in its PATH to find this penstock; None if it finds it already."""
    ours = Path(sys.executable).parent
    found = shutil.which("penstock")
    return None if found is not None and Path(found).parent == ours else str(ours)
