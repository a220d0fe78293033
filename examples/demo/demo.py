"""The demo: a real Postgres, real runs of the command, one of them killed, and the proof that no row is lost or double.

Called by script/demo. Ends with 1, and says why, as soon as anything is not as it should be.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import psycopg
import pyarrow as pa
import pyarrow.dataset as ds

from penstock.testing.postgres import PostgresServer

HERE = Path(__file__).parent
#: marks a folder as the demo's own, so that nothing else is ever removed
MARKER = ".penstock-demo"
#: the first run is killed once this slice of `orders` is open
KILL_AT = 3

CHANGES_WHILE_DEAD = [
    ("5,000 orders are paid", "UPDATE orders SET status = 'paid' WHERE id % 12 = 0"),
    (
        "2,000 orders arrive",
        "INSERT INTO orders (customer_id, status, amount) SELECT n, 'new', n / 7.0 FROM generate_series(1, 2000) n",
    ),
]
CHANGES_LATER = [
    ("500 customers move", "UPDATE customers SET city = 'Turin' WHERE id % 4 = 1"),
    ("3,000 orders are sent", "UPDATE orders SET status = 'sent' WHERE id <= 3000"),
    ("every price rises, and 50 products are new", "UPDATE products SET price = price + 1"),
    ("", "INSERT INTO products SELECT 'new-' || n, 'new product ' || n, 5 FROM generate_series(1, 50) n"),
]


class DemoFailed(Exception):
    """Something is not as it should be."""


@dataclass(frozen=True)
class Stream:
    """One table, and how its rows become lines that the server and Python spell alike."""

    name: str
    key: str
    #: the server's own checksum: number of rows, and the digest of their lines
    checksum: str
    columns: tuple[str, ...]
    #: a full refresh replaces what was there: its newest files are all there is
    refresh: bool = False


CUSTOMERS = Stream(
    name="customers",
    key="id",
    checksum="""
        SELECT count(*), md5(coalesce(string_agg(concat_ws('|', id, name, coalesce(city, '-'),
            (extract(epoch FROM updated_at) * 1000000)::bigint), E'\\n' ORDER BY id), '')) FROM customers""",
    columns=("id", "name", "city", "updated_at"),
)
ORDERS = Stream(
    name="orders",
    key="id",
    checksum="""
        SELECT count(*), md5(coalesce(string_agg(concat_ws('|', id, customer_id, status, amount,
            (extract(epoch FROM updated_at) * 1000000)::bigint), E'\\n' ORDER BY id), '')) FROM orders""",
    columns=("id", "customer_id", "status", "amount", "updated_at"),
)
PRODUCTS = Stream(
    name="products",
    key="sku",
    checksum="""
        SELECT count(*), md5(coalesce(string_agg(concat_ws('|', sku, title, price), E'\\n'
            ORDER BY sku COLLATE "C"), '')) FROM products""",
    columns=("sku", "title", "price"),
    refresh=True,
)
STREAMS = (CUSTOMERS, ORDERS, PRODUCTS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/demo", description="Shows penstock at work in a folder of its own.")
    parser.add_argument("folder", nargs="?", default="demo-out", help="where everything goes (default: demo-out)")
    parser.add_argument("--clean", action="store_true", help="remove the folder, and do nothing else")
    asked = parser.parse_args()
    folder = Path(asked.folder)
    try:
        if asked.clean:
            print(f"removed {folder}" if remove(folder) else f"there is no {folder}: nothing to remove")
            return 0
        began = time.monotonic()
        prepare(folder)
        say("Starting a PostgreSQL server of its own, and filling a small shop")
        with PostgresServer() as server:
            Demo(folder, server.database("shop")).show()
        print(f"\nThe PostgreSQL server is stopped and gone. The demo took {time.monotonic() - began:.0f} s.")
    except DemoFailed as reason:
        print(f"\ndemo: FAILED: {reason}", file=sys.stderr)
        return 1
    return 0


def say(heading: str) -> None:
    print(f"\n=== {heading}", flush=True)


def fail(what: str) -> NoReturn:
    raise DemoFailed(what)


def remove(folder: Path) -> bool:
    """Remove the demo's folder, if it is one; False: there is none."""
    if not folder.exists():
        return False
    if not (folder / MARKER).is_file():
        fail(f"{folder} is not a folder that the demo has made, so it is left alone; name another one")
    shutil.rmtree(folder)
    return True


def prepare(folder: Path) -> None:
    empty = folder.is_dir() and not any(folder.iterdir())
    if not empty and remove(folder):
        print(f"demo: {folder} was there from an earlier demo; it begins anew")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("made by script/demo; script/demo --clean removes it\n")
    (folder / ".gitignore").write_text("*\n")
    shutil.copy(HERE / "shop.yaml", folder)


class Demo:
    """One showing."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.file = folder / "shop.yaml"
        self.out = folder / "out"
        self.environment = os.environ | {"DATABASE_URL": url}
        self.database = psycopg.connect(url, autocommit=True)

    def show(self) -> None:
        with self.database:
            self.database.execute((HERE / "shop.sql").read_bytes())
            print("2,000 customers, 60,000 orders, 300 products. The pipeline file:\n")
            print("\n".join(f"    {line}" for line in self.file.read_text().splitlines()[1:]))
            self.kill_a_run()
            say("Meanwhile, with nobody running, rows change")
            self.change(CHANGES_WHILE_DEAD)
            say("The same command again: the open slice first, with its old bounds, then what is new")
            self.penstock("run")
            self.compare()
            say("More changes, and another run: only they move, and products is replaced as a whole")
            self.change(CHANGES_LATER)
            self.penstock("run")
            self.compare()
            self.nothing_new()
            self.penstock("status")
        self.where_it_lies()

    # ------------------------------------------------------------ the steps

    def kill_a_run(self) -> None:
        say(f"The first run, killed with SIGKILL once slice {KILL_AT} of orders is open")
        words = self.words("run", "--json")
        print(f"$ penstock {' '.join(words)}", flush=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words], env=self.environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if message["type"] == "state":
                print(f"    {message['stream']}: slice {message['number']} done, {message['rows']:,} rows", flush=True)
            opened = message.get("step") == "intend" and message.get("stream") == "orders"
            if opened and message["number"] == KILL_AT:
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.close()
        ended = process.wait()
        if ended != -signal.SIGKILL:
            fail(f"the run should have been killed in slice {KILL_AT} of orders, but it ended with {ended}")
        print(f"    killed: kill -9 {process.pid}\n")
        self.penstock("status")
        delivered, seen = self.delivered("orders"), self.rows_in_files(ORDERS)
        if delivered != seen:
            fail(f"{delivered} orders were delivered, but readers see {seen}")
        print(f"\nReaders see {seen:,} orders: the slices that are done, and nothing of the open one.")

    def change(self, changes: list[tuple[str, str]]) -> None:
        for words, statement in changes:
            self.database.execute(statement.encode())
            if words:
                print(f"    {words}")

    def compare(self) -> None:
        """Source and files agree: by checksum of the newest version of each key, and by count of all versions."""
        print("\nNewest version of each key, SQL on the server against PyArrow on the files:")
        for stream in STREAMS:
            rows, digest = self.database.execute(stream.checksum.encode()).fetchone() or (0, "")
            found = newest(self.table(stream), stream)
            lines = "\n".join(line(row) for row in found)
            theirs = hashlib.md5(lines.encode(), usedforsecurity=False).hexdigest()
            if (rows, digest) != (len(found), theirs):
                fail(f"{stream.name}: the source has {rows} rows ({digest}), the files {len(found)} ({theirs})")
            print(f"    {stream.name:<10} {rows:>7,} rows  {digest}  =  {theirs}")
        for stream in (CUSTOMERS, ORDERS):
            self.each_once(stream)

    def each_once(self, stream: Stream) -> None:
        table = self.table(stream)
        versions = set(zip(table[stream.key].to_pylist(), table["updated_at"].to_pylist(), strict=True))
        delivered = self.delivered(stream.name)
        if not len(versions) == table.num_rows == delivered:
            fail(f"{stream.name}: {table.num_rows} rows, {len(versions)} versions, {delivered} delivered")
        print(f"    {stream.name:<10} {table.num_rows:>7,} rows in all files, each version of each row once")

    def nothing_new(self) -> None:
        say("Nothing new: no Spark, no slice, no byte written (products is left out: it is read whole in every run)")
        before = self.files()
        began = time.monotonic()
        self.penstock("run", "--stream", "customers", "--stream", "orders")
        took = time.monotonic() - began
        if self.files() != before:
            fail("a run with nothing new has written something")
        print(f"    {took:.1f} s; no file in {self.folder} was added, removed or changed\n")

    def where_it_lies(self) -> None:
        say("Where everything lies")
        places = {
            f"{self.file}": "the pipeline file",
            f"{self.folder}/store.db": "how far each stream is",
            f"{self.out}/orders/*.parquet": "what readers see; a name begins with its slice's number",
            f"{self.out}/products/current/": "the newest full refresh",
            f"{self.out}/_penstock/shop/orders/manifests/": "one manifest per slice: the commits",
        }
        wide = max(map(len, places))
        print("\n".join(f"    {place:<{wide}}  {what}" for place, what in places.items()))
        say("What to try next")
        clean = "script/demo --clean" + ("" if str(self.folder) == "demo-out" else f" {self.folder}")
        print(f"    .venv/bin/penstock status {self.file}")
        print(f"    .venv/bin/penstock state show {self.file} --stream orders")
        print("    docs/quickstart.md: the same with a database of your own")
        print(f"    {clean}: removes {self.folder}")

    # ------------------------------------------------------------ asking the command, the store and the files

    def words(self, verb: str, *more: str) -> list[str]:
        return [verb, str(self.file), *more]

    def penstock(self, verb: str, *more: str) -> None:
        words = self.words(verb, *more)
        print(f"$ penstock {' '.join(words)}", flush=True)
        ended = subprocess.run([sys.executable, "-m", "penstock", *words], env=self.environment)
        if ended.returncode != 0:
            fail(f"`penstock {' '.join(words)}` ended with {ended.returncode}")

    def delivered(self, stream: str) -> int:
        """Rows of a stream that the store says are delivered."""
        words = self.words("status", "--json")
        asked = subprocess.run(
            [sys.executable, "-m", "penstock", *words], env=self.environment, capture_output=True, check=True
        )
        [pipeline] = json.loads(asked.stdout)["pipelines"]
        return cast(int, pipeline["streams"][stream]["rows"])

    def table(self, stream: Stream) -> Any:
        """All rows of a stream as a reader sees them, each with the name of its file."""
        place = self.out / stream.name / ("current" if stream.refresh else "")
        found: Any = ds.dataset(str(place), format="parquet").to_table(columns=[*stream.columns, "__filename"])
        return found

    def rows_in_files(self, stream: Stream) -> int:
        return int(self.table(stream).num_rows)

    def files(self) -> dict[Path, tuple[int, int]]:
        return {
            path: (found.st_size, found.st_mtime_ns)
            for path in self.folder.rglob("*")
            if not path.is_dir() and (found := path.lstat())
        }


def newest(table: Any, stream: Stream) -> list[tuple[object, ...]]:
    """The newest version of each key, in the order of the key: the highest slice, then the highest cursor."""
    columns = [table[name].to_pylist() for name in stream.columns]
    slices = [Path(name).name.partition("-")[0] for name in table["__filename"].to_pylist()]
    cursors = columns[-1] if not stream.refresh else slices
    rows = sorted(zip(slices, cursors, range(table.num_rows), strict=True))
    at = stream.columns.index(stream.key)
    last = {columns[at][index]: index for _, _, index in rows}
    return [tuple(column[last[key]] for column in columns) for key in sorted(last)]


def line(row: tuple[object, ...]) -> str:
    """A row as the server's checksum spells it."""
    return "|".join(spelt(value) for value in row)


def spelt(value: object) -> str:
    if value is None:
        return "-"
    stamp: Callable[[], float] | None = getattr(value, "timestamp", None)
    if stamp is None:
        return str(value)
    return str(pa.scalar(value, pa.timestamp("us", "UTC")).value)


if __name__ == "__main__":
    sys.exit(main())
