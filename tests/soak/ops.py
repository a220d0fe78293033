"""The fault run of change ops: an outbox into state tables, while writers never stop and runs are killed.

    script/soak ops [--seeds 10] [--first 1] [--minutes 5] [--writers 8] [--pgbench] [--into postgres,files]

Images, their tags and their posts are in a database before the triggers. Writers insert, update, tag, move, fan out,
delete and truncate from the first moment of the first load on: in transactions of several statements, with pauses
between a statement and its commit, savepoints, rollbacks and prepared transactions; with `--pgbench` it writes beside
them. A pipeline for each word of `--into` follows them:

- `postgres`: into a state table of another database;
- `files`: a log of documents;
- `lake`: into a state table of a lake, whose fold starts Spark;
- `http`: to `penstock serve`, and from its log into a state table of Postgres. The receiver is killed too, and stays
  down for some seconds.

Each is run again and again and killed with SIGKILL after random times. With odd seeds they share one outbox. With even
seeds each has its own, and in the middle a column of one table is added to the pipeline files.

At the end the writers stop, the runs go on until nothing is left, and each copy must equal the tables, compared row by
row: state tables as they are, files by the reference fold of their documents, each of which must be there once.
The receiver's log must have as many documents as were delivered to it. Writes soak-results/ops-<minutes>-<into>.json,
ends with one line of JSON, and exits with 1 if a copy differs or a run ended otherwise than it should.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.harness.faults import Command
from tests.harness.postgres import PostgresServer, free_port
from tests.soak import ops_copies as copies
from tests.soak.http import Receiver
from tests.soak.ops_copies import COLUMNS, MORE_COLUMNS
from tests.soak.ops_writers import TABLES, pgbench, writing

FILE = """\
store: .penstock/store.db
pipelines:
  {name}:
    source: {{type: outbox, url: "${{DATABASE_URL}}", keep_hours: 0, outbox_schema: {outbox}}}
    sink: {sink}
    slice_bytes: {slice_bytes}
    streams:
      images:
        {mode}
        direct: [{{table: images, key: id, columns: {columns}, creates: true}}]
        multi_value: [{{table: image_tags, key: image_id, field: tags, value: tag}}]
        fan_out: [{{table: posts, match: "post_id eq {{id}}", columns: [title]}}]
"""
SINKS = {
    "postgres": '{type: postgres, url: "${STORE_URL}"}',
    "files": "{type: files, directory: out, format: ndjson}",
    "lake": "{type: lake, warehouse: lake}",
    "http": '{type: http, url: "${RECEIVER}", timeout: 20, retry_seconds: 0.05, retry_most: 0.5, wait: 2}',
}
INBOX = """\
store: .penstock/store.db
pipelines:
  inbox:
    source: {{type: wal, directory: ../receiver/received}}
    sink: {{type: postgres, url: "${{STORE_URL}}", schema: inbox}}
    slice_bytes: {slice_bytes}
    streams:
      images:
        mode: state
        entities:
          key: {{id: int64}}
          fields: {{post_id: int64, url: string, size: int64, stars: int64, title: string}}
          multi_value: {{tags: int64}}
          fan_out: [{{table: public.posts, match: [post_id], fields: [title]}}]
"""
#: seconds that a run lives; one that starts Spark lives longer
LIFE, LIFE_ON_SPARK = (0.6, 4.0), (6.0, 20.0)
#: seconds that the receiver stays down
RECEIVER_DOWN = (0.0, 8.0)
#: writers beside which triggers are applied: each locks the tables in an order of its own, and with more there is a
#: deadlock each time
MOST_BESIDE_APPLY = 20
#: bounds of a factor on it: on a busy machine nothing would be reached before the kill
LEAST_STRETCH, MOST_STRETCH = 0.3, 10.0
SLICE_BYTES, LAST_SLICE_BYTES = (20_000, 200_000), 8 << 20
FINAL_RUNS, FINAL_PATIENCE = 6, 900.0


@dataclass(frozen=True)
class Plan:
    """What is done with each seed."""

    #: seconds with faults
    seconds: float
    writers: int = 8
    into: Sequence[str] = ("postgres", "files")
    with_pgbench: bool = False


@dataclass
class Result:
    """What one seed has found."""

    seed: int
    images: int = 0
    #: transactions of the writers, by how they ended
    transactions: dict[str, int] = field(default_factory=dict)
    #: documents in the files
    documents: int = 0
    #: documents in the receiver's log
    in_log: int = 0
    #: runs, by pipeline and how they ended
    ends: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    #: where a copy differs, and other mistakes
    wrong: list[str] = field(default_factory=list)


# ------------------------------------------------------------ runs


@dataclass
class Pipeline:
    """One pipeline, with a folder and a store of its own."""

    name: str
    command: Command
    #: the schema of its outbox
    outbox: str
    #: the columns that its file has now
    columns: str = COLUMNS

    @property
    def life(self) -> tuple[float, float]:
        return LIFE_ON_SPARK if self.name == "lake" else LIFE

    @property
    def codes(self) -> tuple[int, ...]:
        """The exit codes of a run that goes well; 3: the receiver was down for longer than `wait`."""
        return (0, 3) if self.name == "http" else (0,)

    def write(self, slice_bytes: int) -> None:
        if self.name == "inbox":
            text = INBOX.format(slice_bytes=slice_bytes)
        else:
            text = FILE.format(
                name=self.name,
                sink=SINKS[self.name],
                mode="mode: state" if self.name in ("postgres", "lake") else "",
                slice_bytes=slice_bytes,
                columns=self.columns,
                outbox=self.outbox,
            )
        (self.command.folder / "images.yaml").write_text(text)

    def apply(self) -> list[str]:
        if self.name == "inbox":
            return []
        done = self.command.run("triggers", "apply", "images.yaml", "--set", "source.lock_timeout=60")
        return [] if done.code == 0 else [f"{self.name}: triggers apply ended with {done.code}: {done.err[-800:]}"]


def _kill_runs(each: Pipeline, until: Callable[[], bool], chance: random.Random, result: Result) -> None:
    """Run again and again, and kill most runs after a random time."""
    stretch, ends = 1.0, Counter[str]()
    while not until():
        each.write(chance.choice(SLICE_BYTES))
        running = each.command.start("run", "images.yaml", "--plain")
        end = time.monotonic() + chance.uniform(*each.life) * stretch
        while time.monotonic() < end and running.process.poll() is None:
            time.sleep(0.05)
        if running.process.poll() is None:
            running.kill()
        ended = running.end()
        if ended.code == -signal.SIGKILL:
            is_too_short = "done:" not in ended.out + ended.err
            stretch = min(stretch * 1.5, MOST_STRETCH) if is_too_short else stretch
            ends[f"{each.name} killed"] += 1
            continue
        stretch = max(stretch / 1.5, LEAST_STRETCH)
        ends[f"{each.name} {ended.code}"] += 1
        if ended.code not in each.codes:
            result.wrong.append(f"{each.name}: a run ended with {ended.code}: {(ended.err or ended.out)[-800:]}")
            break
    result.ends |= dict(sorted(ends.items()))


def _for_a_while(pipelines: Sequence[Pipeline], seconds: float, seed: int, result: Result) -> None:
    """Kill runs of all pipelines for so long, and until each has ended by itself once."""
    until, limit = time.monotonic() + seconds, time.monotonic() + 5 * seconds

    def is_over(each: Pipeline) -> Callable[[], bool]:
        return lambda: time.monotonic() > (until if f"{each.name} killed" in result.ends else min(until, limit))

    with ThreadPoolExecutor(len(pipelines)) as pool:
        going = [
            pool.submit(_kill_runs, each, is_over(each), random.Random(seed * 10 + n), result)
            for n, each in enumerate(pipelines)
        ]
        for future in going:
            future.result()


def _run_to_the_end(each: Pipeline) -> list[str]:
    each.write(LAST_SLICE_BYTES)
    for _ in range(FINAL_RUNS):
        ended = each.command.start("run", "images.yaml", "--json").end(FINAL_PATIENCE)
        if ended.code != 0:
            return [f"{each.name}: ended with {ended.code} without a fault: {(ended.err or ended.out)[-800:]}"]
        last = ended.messages[-1]
        if last["type"] == "eof" and not last["has_more"] and not last["request_progress"]["rows"]:
            return []
    return [f"{each.name}: still has something after {FINAL_RUNS} runs without a writer"]


# ------------------------------------------------------------ one seed


def soak(seed: int, plan: Plan, folder: Path, url: str, store: str) -> Result:
    """One seed."""
    result, begun, counted = Result(seed), time.monotonic(), Counter[str]()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(TABLES.encode())
    receiver = Receiver(Command(_made(folder / "receiver"), "loop"), free_port())
    environment = {"DATABASE_URL": url, "STORE_URL": store, "RECEIVER": f"http://127.0.0.1:{receiver.port}"}
    shares, has_receiver = seed % 2 == 1, "http" in plan.into
    pipelines = [
        Pipeline(name, Command(_made(folder / name), "loop", environment), "outbox" if shares else f"outbox_of_{name}")
        for name in (*plan.into, *(["inbox"] if has_receiver else []))
    ]
    stages = (MORE_COLUMNS, MORE_COLUMNS) if shares else (COLUMNS, MORE_COLUMNS)
    if has_receiver:
        receiver.start()
        with psycopg.connect(store, autocommit=True) as db:
            db.execute("CREATE SCHEMA inbox")
    with ExitStack() as trouble:
        if plan.with_pgbench:
            trouble.enter_context(pgbench(url, counted))
        if has_receiver:
            trouble.enter_context(receiver.trouble(random.Random(seed), RECEIVER_DOWN))
        for columns in stages:
            with ExitStack() as writers:
                if plan.writers <= MOST_BESIDE_APPLY:
                    writers.enter_context(writing(url, plan.writers, seed, counted))
                for each in pipelines:
                    each.columns = columns
                    each.write(SLICE_BYTES[0])
                    result.wrong += each.apply()
                if plan.writers > MOST_BESIDE_APPLY:
                    writers.enter_context(writing(url, plan.writers, seed, counted))
                if not result.wrong:
                    _for_a_while(pipelines, plan.seconds / 2, seed, result)
            if result.wrong:
                break
    if not result.wrong:
        for each in pipelines:
            result.wrong += _run_to_the_end(each)
    if not result.wrong:
        result.wrong += _compare(pipelines, url, store, result)
    if has_receiver:
        result.ends["receiver killed"] = receiver.kills
        if (code := receiver.stop()) != 0:
            result.wrong.append(f"the receiver ended with {code} after SIGTERM")
    result.transactions = dict(sorted(counted.items()))
    result.seconds = round(time.monotonic() - begun, 1)
    return result


def _compare(pipelines: Sequence[Pipeline], url: str, store: str, result: Result) -> list[str]:
    """Where copies differ from the tables, and what was delivered twice."""
    with psycopg.connect(url) as db:
        truth = db.execute(copies.TRUTH.encode()).fetchall()
    result.images = len(truth)
    wrong = []
    for each in pipelines:
        folder = each.command.folder
        if each.name == "http":
            result.in_log = copies.rows_in_log(folder.parent / "receiver" / "received")
            if result.in_log != (sent := copies.rows_sent(folder / ".penstock" / "store.db")):
                wrong.append(f"http: {sent} documents were delivered, and {result.in_log} are in the log")
            continue
        if each.name == "files":
            documents = copies.documents_in(folder / "out" / "images")
            result.documents = len(documents)
            if twice := copies.twice(documents):
                wrong.append(f"files: {len(twice)} documents came twice, such as {twice[:5]}")
            found = copies.folded(documents)
        elif each.name == "lake":
            found = copies.in_lake(folder / "lake")
        else:
            found = copies.in_postgres(store, "inbox" if each.name == "inbox" else "public")
        wrong += copies.differences(each.name, truth, found)
    return wrong


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes with faults, for each seed")
    parser.add_argument("--writers", type=int, default=8, help="connections that write")
    parser.add_argument("--into", default="postgres,files", help="comma-separated: postgres, files, lake, http")
    parser.add_argument("--pgbench", action="store_true", help="pgbench writes into tables of its own beside them")
    chosen = parser.parse_args()
    into = chosen.into.split(",")
    if unknown := set(into) - set(SINKS):
        parser.error(f"--into: {', '.join(sorted(unknown))} is not one of {', '.join(SINKS)}")
    plan = Plan(chosen.minutes * 60, chosen.writers, into, chosen.pgbench)
    results: list[dict[str, Any]] = []
    path = Path(f"soak-results/ops-{chosen.minutes:g}-{'-'.join(into)}.json")
    path.parent.mkdir(exist_ok=True)
    with PostgresServer({"max_prepared_transactions": "64", "max_connections": "300"}) as server:
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            with tempfile.TemporaryDirectory(prefix="penstock-soak-ops-") as folder:
                result = soak(seed, plan, Path(folder), server.database(), server.database())
            print(json.dumps(asdict(result)), flush=True)
            results.append(asdict(result))
            path.write_text(json.dumps(results, indent=1))
    kills = sum(count for each in results for name, count in each["ends"].items() if name.endswith("killed"))
    wrong = sum(len(each["wrong"]) for each in results)
    documents = sum(each["documents"] for each in results)
    print(json.dumps({"seeds": len(results), "documents": documents, "kills": kills, "wrong": wrong}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
