"""The fault run of change ops: an outbox into state tables, while writers never stop and runs are killed.

    script/soak ops [--seeds 10] [--first 1] [--minutes 5] [--writers 8] [--lake]

Images, their tags and their posts are in a database before the triggers. Writers insert, update, tag, move, fan out,
delete and truncate from the first moment of the first load on: in transactions of several statements, with pauses
between a statement and its commit, savepoints, rollbacks and prepared transactions. Two pipelines follow them: one into
a state table of another database, one into files; with `--lake` a third one into a state table of a lake. Each is run
again and again and killed with SIGKILL after random times. With odd seeds they share one outbox. With even seeds each
has its own, and in the middle a column of one table is added to the pipeline files.

At the end the writers stop, the runs go on until nothing is left, and each copy must equal the tables, compared row by
row: the state tables as they are, the files by the reference fold of their documents, each of which must be there once.
Writes soak-results/ops-<minutes>.json, ends with one line of JSON, and exits with 1 if a copy differs or a run ended
otherwise than it should.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pyiceberg.catalog.sql import SqlCatalog

from penstock.core.ops import FanOut, Row, Shape, State, fold
from tests.harness.faults import Command
from tests.harness.postgres import PostgresServer

TABLES = """
CREATE TABLE posts (id bigint PRIMARY KEY, title text);
CREATE TABLE images (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, post_id bigint REFERENCES posts, url text, size int, stars int);
CREATE TABLE image_tags (
    image_id bigint REFERENCES images ON DELETE CASCADE, tag int, PRIMARY KEY (image_id, tag));
INSERT INTO posts SELECT n, 'post ' || n FROM generate_series(1, 40) n;
INSERT INTO images (post_id, url, size) SELECT 1 + n % 40, 'image ' || n, n FROM generate_series(1, 4000) n;
INSERT INTO image_tags SELECT n, n % 7 FROM generate_series(1, 4000) n
"""
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
}
#: columns before and after one is added
COLUMNS, MORE_COLUMNS = "[post_id, url, size]", "[post_id, url, size, stars]"
SHAPE = Shape(
    frozenset({"post_id", "url", "size", "stars", "title"}),
    frozenset({"tags"}),
    (FanOut("public.posts", ("post_id",), ("title",)),),
)
TRUTH = """
SELECT i.id, i.post_id, i.url, i.size, i.stars, p.title,
       array(SELECT t.tag FROM image_tags t WHERE t.image_id = i.id ORDER BY t.tag)
FROM images i LEFT JOIN posts p ON p.id = i.post_id ORDER BY i.id
"""
COPY = "SELECT id, post_id, url, size, stars, title, tags FROM images ORDER BY id"
#: seconds that a run lives; one that starts Spark lives longer
LIFE = {"postgres": (0.6, 4.0), "files": (0.6, 4.0), "lake": (6.0, 20.0)}
#: bounds of a factor on it: on a busy machine nothing would be reached before the kill
LEAST_STRETCH, MOST_STRETCH = 0.3, 10.0
SLICE_BYTES, LAST_SLICE_BYTES = (20_000, 200_000), 8 << 20
FINAL_RUNS, FINAL_PATIENCE = 6, 900.0

#: what one transaction of a writer may do, each with its weight; %(n)s is a random number
STATEMENTS: Sequence[tuple[int, str]] = (
    (
        6,
        "INSERT INTO images (post_id, url, size) SELECT 1 + %(n)s %% 40, 'new', k FROM generate_series(1, 3) k",
    ),
    (8, "UPDATE images SET size = %(n)s, url = url || '!' WHERE id %% 400 = %(n)s %% 400"),
    (4, "UPDATE images SET stars = %(n)s %% 6 WHERE id %% 300 = %(n)s %% 300"),
    (5, "UPDATE images SET post_id = 1 + %(n)s %% 40 WHERE id %% 500 = %(n)s %% 500"),
    (
        6,
        "INSERT INTO image_tags SELECT id, %(n)s %% 9 FROM images WHERE id %% 350 = %(n)s %% 350 ON CONFLICT "
        "DO NOTHING",
    ),
    (5, "DELETE FROM image_tags WHERE image_id %% 450 = %(n)s %% 450"),
    (3, "UPDATE posts SET title = 'title ' || %(n)s WHERE id = 1 + %(n)s %% 40"),
    (3, "DELETE FROM images WHERE id %% 900 = %(n)s %% 900"),
)
#: of transactions: rolled back; rolled back in part; prepared; with a pause before the commit
ROLLED_BACK, IN_PART, PREPARED, SLOW = 0.08, 0.08, 0.05, 0.3
#: seconds between two truncations
TRUNCATED = (20.0, 60.0)
#: the server's answers to writers that are in each other's way
CONFLICTS = (psycopg.errors.DeadlockDetected, psycopg.errors.ForeignKeyViolation, psycopg.errors.LockNotAvailable)


@dataclass(frozen=True)
class Plan:
    """What is done with each seed."""

    #: seconds with faults
    seconds: float
    writers: int = 8
    sinks: Sequence[str] = ("postgres", "files")


@dataclass
class Result:
    """What one seed has found."""

    seed: int
    images: int = 0
    #: transactions of the writers, by how they ended
    transactions: dict[str, int] = field(default_factory=dict)
    #: documents in the files
    documents: int = 0
    #: runs, by pipeline and how they ended
    ends: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    #: where a copy differs, and other mistakes
    wrong: list[str] = field(default_factory=list)


# ------------------------------------------------------------ writers


@contextmanager
def writing(url: str, plan: Plan, seed: int, counted: Counter[str]) -> Iterator[None]:
    """Writers at work until the block ends; every transaction has ended then."""
    end = threading.Event()
    with ThreadPoolExecutor(plan.writers + 1) as pool:
        going = [pool.submit(_write, url, random.Random(seed * 100 + n), end, counted) for n in range(plan.writers)]
        going.append(pool.submit(_truncate, url, random.Random(seed * 100 + 99), end, counted))
        try:
            yield
        finally:
            end.set()
        for each in going:
            each.result()


def _write(url: str, chance: random.Random, end: threading.Event, counted: Counter[str]) -> None:
    statements, weights = [text for _, text in STATEMENTS], [weight for weight, _ in STATEMENTS]
    with psycopg.connect(url, autocommit=True) as db:
        while not end.wait(chance.uniform(0.0, 0.05)):
            db.execute("BEGIN")
            try:
                db.execute("SET LOCAL lock_timeout = '5s'")
                for text in chance.choices(statements, weights, k=chance.randint(1, 4)):
                    with_savepoint = chance.random() < IN_PART
                    if with_savepoint:
                        db.execute("SAVEPOINT before")
                    db.execute(text, {"n": chance.randint(1, 1_000_000)})
                    if with_savepoint:
                        db.execute("ROLLBACK TO SAVEPOINT before")
                    if chance.random() < SLOW:
                        time.sleep(chance.uniform(0.0, 0.5))
                counted[_end_transaction(db, chance)] += 1
            except CONFLICTS:
                db.execute("ROLLBACK")
                counted["conflict"] += 1


def _end_transaction(db: psycopg.Connection[Any], chance: random.Random) -> str:
    drawn = chance.random()
    if drawn < ROLLED_BACK:
        db.execute("ROLLBACK")
        return "rolled back"
    if drawn < ROLLED_BACK + PREPARED:
        name = f"soak {chance.getrandbits(64):x}"
        db.execute(f"PREPARE TRANSACTION '{name}'")
        time.sleep(chance.uniform(0.0, 1.0))
        db.execute(f"COMMIT PREPARED '{name}'")
        return "prepared"
    db.execute("COMMIT")
    return "committed"


def _truncate(url: str, chance: random.Random, end: threading.Event, counted: Counter[str]) -> None:
    """Empty the tags from time to time; once in four times, all images."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET lock_timeout = '2s'")
        while not end.wait(chance.uniform(*TRUNCATED)):
            tables = "images, image_tags" if chance.random() < 0.25 else "image_tags"
            with suppress(*CONFLICTS):
                db.execute(f"TRUNCATE {tables}".encode())
                counted[f"truncated {tables}"] += 1


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

    def write(self, slice_bytes: int) -> None:
        text = FILE.format(
            name=self.name,
            sink=SINKS[self.name],
            mode="mode: state" if self.name != "files" else "",
            slice_bytes=slice_bytes,
            columns=self.columns,
            outbox=self.outbox,
        )
        (self.command.folder / "images.yaml").write_text(text)

    def apply(self) -> list[str]:
        done = self.command.run("triggers", "apply", "images.yaml", "--set", "source.lock_timeout=60")
        return [] if done.code == 0 else [f"{self.name}: triggers apply ended with {done.code}: {done.err[-800:]}"]


def _kill_runs(each: Pipeline, until: Callable[[], bool], chance: random.Random, result: Result) -> None:
    """Run again and again, and kill most runs after a random time."""
    stretch, ends = 1.0, Counter[str]()
    while not until():
        each.write(chance.choice(SLICE_BYTES))
        running = each.command.start("run", "images.yaml", "--plain")
        end = time.monotonic() + chance.uniform(*LIFE[each.name]) * stretch
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
        if ended.code != 0:
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
    environment = {"DATABASE_URL": url, "STORE_URL": store}
    shares = seed % 2 == 1
    pipelines = [
        Pipeline(name, Command(_made(folder / name), "loop", environment), "outbox" if shares else f"outbox_of_{name}")
        for name in plan.sinks
    ]
    stages = (MORE_COLUMNS, MORE_COLUMNS) if shares else (COLUMNS, MORE_COLUMNS)
    with writing(url, plan, seed, counted):
        for columns in stages:
            for each in pipelines:
                each.columns = columns
                each.write(SLICE_BYTES[0])
                result.wrong += each.apply()
            if not result.wrong:
                _for_a_while(pipelines, plan.seconds / 2, seed, result)
            if result.wrong:
                break
    if not result.wrong:
        for each in pipelines:
            result.wrong += _run_to_the_end(each)
    if not result.wrong:
        with psycopg.connect(url) as db:
            truth = db.execute(TRUTH.encode()).fetchall()
        result.images = len(truth)
        for each in pipelines:
            result.wrong += _compare(each.name, truth, _copy_of(each, store, result))
    result.transactions = dict(sorted(counted.items()))
    result.seconds = round(time.monotonic() - begun, 1)
    return result


def _copy_of(each: Pipeline, store: str, result: Result) -> list[tuple[Any, ...]]:
    if each.name == "postgres":
        with psycopg.connect(store) as db:
            return db.execute(COPY.encode()).fetchall()
    if each.name == "files":
        return _fold_files(each.command.folder / "out" / "images", result)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{each.command.folder}/lake/catalog.db")
    try:
        rows = catalog.load_table("lake.images").scan().to_arrow().to_pylist()
    finally:
        catalog.close()
    names = ("id", "post_id", "url", "size", "stars", "title")
    return sorted((*(row[name] for name in names), sorted(row["tags"] or [])) for row in rows if not row["_tombstone"])


def _fold_files(folder: Path, result: Result) -> list[tuple[Any, ...]]:
    """What the documents lead to, in the order in which they were delivered."""
    paths = sorted(folder.rglob("*.ndjson"), key=_place)
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    result.documents = len(found)
    twice = [id_ for id_, count in Counter(each["id"] for each in found).items() if count > 1]
    if twice:
        result.wrong.append(f"files: {len(twice)} documents came twice, such as {twice[:5]}")
    state = fold(State(), SHAPE, (Row(each["id"], json.loads(each["document"])) for each in found)).state
    names = ("post_id", "url", "size", "stars", "title")
    return sorted(
        (
            json.loads(key),
            *(record.scalars.get(name) for name in names),
            sorted(json.loads(value) for value in record.multi.get("tags", ())),
        )
        for key, record in state.entities.items()
    )


def _place(path: Path) -> tuple[int, ...]:
    """The slice, the part and the number of a file."""
    number, _, *rest = path.stem.split("-")
    return (int(number), *map(int, rest))


def _compare(name: str, truth: Sequence[tuple[Any, ...]], found: Sequence[tuple[Any, ...]]) -> list[str]:
    wanted, there = {row[0]: row for row in truth}, {row[0]: row for row in found}
    missing, extra = sorted(wanted.keys() - there.keys()), sorted(there.keys() - wanted.keys())
    other = [(wanted[key], there[key]) for key in wanted.keys() & there.keys() if wanted[key] != there[key]]
    said = []
    for what, items in (("missing", missing), ("too many", extra), ("other (true, found)", other)):
        if items:
            said.append(f"{name}: {len(items)} of {len(truth)} images are {what}: {items[:3]}")
    return said


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes with faults, for each seed")
    parser.add_argument("--writers", type=int, default=8, help="connections that write")
    parser.add_argument("--lake", action="store_true", help="a state table of a lake too; its fold starts Spark")
    chosen = parser.parse_args()
    sinks = ("postgres", "files", "lake") if chosen.lake else ("postgres", "files")
    plan = Plan(chosen.minutes * 60, chosen.writers, sinks)
    results: list[dict[str, Any]] = []
    path = Path(f"soak-results/ops-{chosen.minutes:g}{'-lake' if chosen.lake else ''}.json")
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
