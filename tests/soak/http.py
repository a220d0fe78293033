"""The http sink's fault run: Postgres → http sink → `penstock serve` → its log → a lake, with everything killed.

    script/soak http [--seeds 10] [--first 1] [--minutes 5] [--spark]

A proxy stands between sender and receiver: it loses answers after the receiver has taken a chunk, cuts requests, and
delays them. Rows arrive all the time. Sender, receiver and the pipeline that lands the log are killed with SIGKILL
after random times; between two runs of the sender, chunk sizes and columns change in its pipeline file. At the end the
faults stop, both pipelines run until nothing is left, and every row must be in the lake once, in the order in which it
was sent: slice by slice, chunk by chunk, row by row. Rows move in the command's own process; with `--spark` each run is
a new interpreter that starts Spark, as for users. Writes soak-results/http-<minutes>.json, ends with one line of JSON,
and exits with 1 if a row was lost, doubled or out of order, or a run ended otherwise than it should.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pyiceberg.catalog.sql import SqlCatalog

from penstock.wal import readers
from penstock.wal.folders import folder_of
from tests.harness.faults import Command, Running
from tests.harness.http_proxy import CUT, LOST_ANSWER, PASS, Exchange, Fault, HttpProxy
from tests.harness.postgres import PostgresServer

STREAM = "orders"
SHOP = """
store: .penstock/store.db
pipelines:
  shop:
    source: {{type: postgres, url: "${{DATABASE_URL}}"}}
    sink:
      type: http
      url: "${{RECEIVER}}"
      timeout: 20
      retry_seconds: 0.05
      retry_most: 0.5
      wait: {wait}
      chunk_rows: {chunk_rows}
    slice_bytes: {slice_bytes}
    streams:
      {stream}: {{cursor: id, unique: true{shape}}}
"""
INBOX = """
store: .penstock/inbox.db
pipelines:
  inbox:
    source: {{type: wal, directory: ../receiver/received}}
    sink: {{type: lake, warehouse: lake, namespace: inbox}}
    slice_bytes: {slice_bytes}
    streams:
      {stream}: {{columns: {{id: int64, note: string, extra: string}}}}
"""
#: seconds that a run lives before it is killed: with rows moved by a loop, and on Spark
LIFE = {"send": (0.2, 4.0), "land": (0.05, 1.2)}
LIFE_ON_SPARK = (4.0, 25.0)
#: a process whose runs reach nothing lives as many times longer
MOST_STRETCH = 20.0
#: and one whose runs end by themselves as many times as long
LEAST_STRETCH = 0.1
#: seconds that the receiver lives, and that it stays down
RECEIVER_LIFE = (1.0, 6.0)
RECEIVER_DOWN = (0.0, 1.0)
#: seconds in which the receiver must answer after its start
START_SECONDS = 60.0
#: of slices while runs are killed, and at the end, when a long backlog may be left
SLICE_BYTES, LAST_SLICE_BYTES = (4096, 65536), (1 << 20,)
#: runs that may fail at the end, once the faults have stopped
FINAL_RUNS = 5
#: seconds for each of them: on a busy machine a long backlog is left
FINAL_PATIENCE = 900.0


@dataclass(frozen=True)
class Plan:
    """What is done with each seed."""

    #: seconds with faults
    seconds: float
    on_spark: bool = False
    #: at least as many kills of each of the three processes; the seed goes on until then
    kills: int = 1

    def life(self, name: str) -> tuple[float, float]:
        return LIFE_ON_SPARK if self.on_spark else LIFE[name]


@dataclass
class Result:
    """What one seed has found."""

    seed: int
    on_spark: bool = False
    #: rows in the lake
    rows: int = 0
    #: of them, arrived while faults happened
    arrived: int = 0
    #: SIGKILLs that ended a process, by process
    kills: dict[str, int] = field(default_factory=dict)
    #: runs that ended by themselves, by command and exit code
    ends: dict[str, int] = field(default_factory=dict)
    #: what the proxy did with requests that were not passed on
    faults: dict[str, int] = field(default_factory=dict)
    #: chunks that were sent more than once
    repeated: int = 0
    seconds: float = 0.0
    #: rows that are missing, doubled or out of order, and other mistakes
    wrong: list[str] = field(default_factory=list)


class Receiver:
    """`penstock serve` on a port of its own, which a thread kills and starts again."""

    def __init__(self, command: Command, port: int) -> None:
        self.command, self.port, self.kills = command, port, 0
        self.running: Running | None = None

    def start(self) -> None:
        self.running = self.command.start("serve", "--directory", "received", "--port", str(self.port))
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.running.process.poll() is not None:
                raise AssertionError(f"the receiver ended: {self.running.end()}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=1):
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(0.02)
        raise AssertionError("the receiver does not answer")

    def kill(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.kills += self.running.process.returncode == -signal.SIGKILL
            self.running = None

    def stop(self) -> int:
        """The exit code of a clean stop."""
        assert self.running is not None
        self.running.signal(signal.SIGTERM)
        return self.running.end().code

    @contextmanager
    def trouble(self, chance: random.Random, down: tuple[float, float] = RECEIVER_DOWN) -> Iterator[None]:
        """Kill it and start it again until the block ends; then it runs."""
        end = threading.Event()

        def go_on() -> None:
            while not end.wait(chance.uniform(*RECEIVER_LIFE)):
                self.kill()
                end.wait(chance.uniform(*down))
                self.start()

        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(go_on)
            try:
                yield
            finally:
                end.set()
            going.result()


@contextmanager
def arrivals(url: str, chance: random.Random) -> Iterator[list[int]]:
    """Insert rows in a thread until the block ends; the list says how many each time."""
    end, counts = threading.Event(), list[int]()

    def add() -> None:
        with psycopg.connect(url, autocommit=True) as db:
            while not end.wait(chance.uniform(0.02, 0.4)):
                counts.append(_insert(db, chance.randint(1, 400)))

    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(add)
        try:
            yield counts
        finally:
            end.set()
        adding.result()


def _insert(db: psycopg.Connection[Any], count: int) -> int:
    db.execute(
        "INSERT INTO orders (note, extra) SELECT 'note ' || n, repeat('x', n %% 50) FROM generate_series(1, %s) n",
        (count,),
    )
    return count


def _choose_fault(chance: random.Random, faults: Counter[str], exchange: Exchange) -> Fault:
    """Most requests pass; of the others, most lose the answer to a chunk that was taken."""
    drawn = chance.random()
    for name, share, fault in (
        ("answer lost", 0.12, LOST_ANSWER),
        ("cut", 0.05, CUT),
        ("half an answer", 0.03, Fault(answered=0.6)),
        ("delayed", 0.10, Fault(delay=chance.uniform(0.0, 0.5))),
    ):
        if drawn < share:
            faults[name] += 1
            return fault
        drawn -= share
    return PASS


def soak(seed: int, plan: Plan, folder: Path, url: str) -> Result:
    """One seed."""
    result, begun = Result(seed, plan.on_spark), time.monotonic()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text, extra text)")
        _insert(db, 3000)
    port = _free_port()
    faults = Counter[str]()
    mover = "spark" if plan.on_spark else "loop"
    receiver = Receiver(Command(_made(folder / "receiver"), "loop"), port)
    receiver.start()
    at_proxy = random.Random(seed + 1)
    with HttpProxy(f"http://127.0.0.1:{port}", lambda each: _choose_fault(at_proxy, faults, each)) as proxy:
        sender = Command(_made(folder / "sender"), mover, {"DATABASE_URL": url, "RECEIVER": proxy.url})
        lander = Command(_made(folder / "lander"), mover)
        with (
            receiver.trouble(random.Random(seed + 2)),
            arrivals(url, random.Random(seed + 3)) as arrived,
            ThreadPoolExecutor(2) as pool,
        ):
            until = begun + plan.seconds
            sending = _Killed("send", sender, _write_shop, lambda: (len(proxy.posts), faults["answer lost"] > 0))
            log = folder_of(str(folder / "receiver" / "received"), STREAM)
            landing = _Killed("land", lander, _write_inbox, lambda: (_slices_read(log), True))
            both = [
                pool.submit(_kill_runs, sending, until, plan, random.Random(seed + 4), result),
                pool.submit(_kill_runs, landing, until, plan, random.Random(seed + 5), result),
            ]
            for each in both:
                each.result()
        result.arrived = sum(arrived)
        result.kills["receive"] = receiver.kills
        result.faults = dict(faults)
        proxy.choose = lambda _: PASS
        _write_shop(sender.folder, random.Random(seed), wait=60, sizes=LAST_SLICE_BYTES)
        _write_inbox(lander.folder, random.Random(seed), sizes=LAST_SLICE_BYTES)
        result.wrong += _run_to_the_end(sender, "shop.yaml") + _run_to_the_end(lander, "inbox.yaml")
        result.repeated = sum(len(tries) > 1 for tries in proxy.by_key().values())
        result.wrong += _compare_tries(proxy)
    if (code := receiver.stop()) != 0:
        result.wrong.append(f"the receiver ended with {code} after SIGTERM")
    result.wrong += _compare_rows(url, lander.folder, _sent_ids(proxy), result)
    if not all(result.kills.get(name, 0) >= plan.kills for name in ("send", "land", "receive")):
        result.wrong.append(f"too few kills: {result.kills}")
    if not result.faults.get("answer lost"):
        result.wrong.append("no answer was lost")
    result.seconds = round(time.monotonic() - begun, 1)
    return result


def _write_shop(folder: Path, chance: random.Random, wait: float = 1.0, sizes: Sequence[int] = SLICE_BYTES) -> None:
    # A column less, and other sizes: what is sealed must be sent as it was.
    shape = chance.choice(("", "", ", shape: {drop: [extra]}"))
    text = SHOP.format(
        wait=wait,
        stream=STREAM,
        shape=shape,
        chunk_rows=chance.choice((50, 170, 1000)),
        slice_bytes=chance.choice(sizes),
    )
    (folder / "shop.yaml").write_text(text)


def _write_inbox(folder: Path, chance: random.Random, sizes: Sequence[int] = SLICE_BYTES) -> None:
    text = INBOX.format(stream=STREAM, slice_bytes=chance.choice(sizes))
    (folder / "inbox.yaml").write_text(text)


@dataclass(frozen=True)
class _Killed:
    """A command that is run and killed."""

    name: str
    command: Command
    #: writes its pipeline file anew
    write: Callable[[Path, random.Random], None]
    #: how far it has come, and whether it has met what it must meet
    progress: Callable[[], tuple[int, bool]]


def _slices_read(folder: str) -> int:
    """The number of slices that pipelines have delivered from a log."""
    return sum(each.number for each in readers.read_registry(folder).readers.values())


def _kill_runs(killed: _Killed, until: float, plan: Plan, chance: random.Random, result: Result) -> None:
    """Run again and again, and kill most runs after a random time."""
    name, command = killed.name, killed.command
    file = {"send": "shop.yaml", "land": "inbox.yaml"}[name]
    kills, ends, stretch = 0, Counter[int](), 1.0

    def goes_on() -> bool:
        # A seed that had few kills, or met too little, goes on for four times its time.
        is_due = kills < plan.kills or not killed.progress()[1]
        return time.monotonic() < until or (is_due and time.monotonic() < until + 3 * plan.seconds)

    while goes_on():
        killed.write(command.folder, chance)
        before, _ = killed.progress()
        running = command.start("run", file)
        time.sleep(chance.uniform(*plan.life(name)) * stretch)
        if running.process.poll() is None:
            running.kill()
        ended = running.end()
        # On a machine that is busy, nothing would be reached before the kill; a run that ends by itself lives too long.
        is_too_short = ended.code == -signal.SIGKILL and killed.progress()[0] == before
        stretch = min(stretch * 1.5, MOST_STRETCH) if is_too_short else max(stretch / 1.5, LEAST_STRETCH)
        if ended.code == -signal.SIGKILL:
            kills += 1
            continue
        ends[ended.code] += 1
        # 3: the receiver stayed down for longer than `wait`.
        if ended.code not in ((0, 3) if name == "send" else (0,)):
            result.wrong.append(f"{name}: a run ended with {ended.code}: {(ended.err or ended.out)[-800:]}")
            return
    result.kills[name] = kills
    result.ends |= {f"{name} {code}": count for code, count in sorted(ends.items())}


def _run_to_the_end(command: Command, file: str) -> list[str]:
    for _ in range(FINAL_RUNS):
        ended = command.start("run", file, "--json").end(FINAL_PATIENCE)
        if ended.code != 0:
            return [f"{file}: ended with {ended.code} without a fault: {(ended.err or ended.out)[-800:]}"]
        if ended.messages[-1]["type"] == "eof" and not ended.messages[-1]["has_more"]:
            return []
    return [f"{file}: not at its end after {FINAL_RUNS} runs"]


def _compare_tries(proxy: HttpProxy) -> list[str]:
    """A chunk that was sent again must have had the same bytes."""
    tries = proxy.by_key()
    return [
        f"chunk {key} was sent with other bytes the second time"
        for key, exchanges in tries.items()
        if len({each.body for each in exchanges}) > 1
    ]


def _sent_ids(proxy: HttpProxy) -> list[int]:
    """The ids of all rows in the order of their slices and chunks."""
    chunks: dict[tuple[int, int], Exchange] = {}
    for each in proxy.posts:
        number = int(each.headers["penstock-slice-number"])
        chunks[number, int(each.headers["penstock-chunk"].partition("/")[0])] = each
    return [int(str(row["id"])) for _, each in sorted(chunks.items()) for row in each.rows]


def _compare_rows(url: str, folder: Path, sent: Sequence[int], result: Result) -> list[str]:
    """Rows that are missing, doubled, changed, or out of order."""
    with psycopg.connect(url) as db:
        expected = db.execute("SELECT id, note FROM orders ORDER BY id").fetchall()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        found = catalog.load_table(f"inbox.{STREAM}").scan().to_arrow().sort_by("_ingest_seq")
    finally:
        catalog.close()
    rows = [*zip(found.column("id").to_pylist(), found.column("note").to_pylist(), strict=True)]
    result.rows = len(rows)
    counts = Counter(rows)
    counts.subtract(expected)
    wrong = [f"id {id_}: {count:+}" for (id_, _), count in counts.items() if count][:10]
    ids = [id_ for id_, _ in rows]
    if not wrong and ids != sent:
        at = next((at for at, pair in enumerate(zip(ids, sent, strict=False)) if pair[0] != pair[1]), len(sent))
        wrong.append(f"the rows are not in the order in which they were sent: at {at}, ids {ids[at : at + 5]}")
    return wrong


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes with faults, for each seed")
    parser.add_argument("--spark", action="store_true", help="move rows on Spark")
    chosen = parser.parse_args()
    plan = Plan(chosen.minutes * 60, chosen.spark, kills=3)
    results: list[dict[str, Any]] = []
    path = Path(f"soak-results/http-{chosen.minutes:g}{'-spark' if chosen.spark else ''}.json")
    path.parent.mkdir(exist_ok=True)
    with PostgresServer() as server:
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            with tempfile.TemporaryDirectory(prefix="penstock-soak-http-") as folder:
                result = soak(seed, plan, Path(folder), server.database())
            print(json.dumps(asdict(result)), flush=True)
            results.append(asdict(result))
            path.write_text(json.dumps(results, indent=1))
    kills = Counter[str]()
    for each in results:
        kills.update(each["kills"])
    done = {name: sum(each[name] for each in results) for name in ("rows", "arrived", "repeated")}
    wrong = sum(len(each["wrong"]) for each in results)
    print(json.dumps({"seeds": len(results), **done, "kills": dict(kills), "wrong": wrong}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
