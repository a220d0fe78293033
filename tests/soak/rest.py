"""The rest source's fault run: eight lists of an API that fails in every way, killed at random while objects arrive.

    script/soak rest [--seeds 1] [--first 1] [--objects 25000] [--kills 10] [--hours 2] [--sink lake] [--spark]

Each seed syncs the lists into a lake and into Postgres. The API answers with 429 and Retry-After above its rate limit,
with errors, resets, slow and truncated bodies, and objects arrive while runs fetch. Runs are killed with SIGKILL after
a random time until that many kills have ended a run. One list always answers 403 and one 500: the first is skipped, the
second fails, the others end complete, and the exit code and the closing table say so. Then every object must be in both
sinks once. `--hours` goes on with new seeds until the time is over. Rows move in the command's own process; with
`--spark` each run is a new interpreter that starts Spark, as for users. Writes soak-results/rest-<objects>.json, ends
with one line of JSON, and exits with 1 if something was lost, doubled or ended otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pyiceberg.catalog.sql import SqlCatalog

from tests.acceptance.rest_shop import RestShop
from tests.harness.faults import Outcome
from tests.harness.postgres import PostgresServer
from tests.harness.rest_server import RestServer

LISTS = tuple(f"list_{number}" for number in range(8))
FORBIDDEN, FAILING = "forbidden", "failing"
#: of more requests than these, some are reset for certain
MANY_REQUESTS = 1000
#: seconds that a run lives before it is killed: with rows moved by a loop, and on Spark
LIFE = (0.3, 6.0)
LIFE_ON_SPARK = (4.0, 25.0)
FAULTS: dict[str, Any] = {
    "errors": 0.02,
    "resets": 0.02,
    "slow": 0.01,
    "truncated": 0.02,
    "retry_after": "0.5",
}
SINKS = {
    "lake": ("{type: lake, warehouse: lake}", "{time: {lag: 0}, columns: {amount: int64}}"),
    "postgres": (
        '{type: postgres, url: "${DATABASE_URL}"}',
        "{time: {lag: 0}, columns: {amount: int64}, mode: append, create: true}",
    ),
}


@dataclass(frozen=True)
class Plan:
    """What is done with each seed."""

    #: objects in each list at the start
    objects: int
    #: runs that are ended by SIGKILL
    kills: int
    on_spark: bool = False
    #: seconds that a run lives before it is killed
    life: tuple[float, float] = LIFE
    retries: int = 8
    #: requests in a second, above which the API answers with 429
    rate: int = 120


@dataclass
class Result:
    """What one seed has found for one sink."""

    seed: int
    sink: str
    on_spark: bool = False
    #: objects in the sink
    objects: int = 0
    #: of them, arrived while a run was under way
    arrived: int = 0
    kills: int = 0
    #: runs that ended before they were to be killed
    spared: int = 0
    requests: int = 0
    #: how many requests were answered with each status; 0: the connection was reset
    statuses: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    #: objects that are missing or came more than once, and other mistakes
    wrong: list[str] = field(default_factory=list)


@contextmanager
def arrivals(server: RestServer, chance: random.Random) -> Iterator[list[int]]:
    """Add objects to random lists in a thread until the block ends; the list says how many each time."""
    end, counts = threading.Event(), list[int]()

    def add() -> None:
        while not end.wait(chance.uniform(0.02, 0.4)):
            counts.append(chance.randint(1, 60))
            server.arrive(chance.choice(LISTS), counts[-1])

    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(add)
        try:
            yield counts
        finally:
            end.set()
        adding.result()


def soak(seed: int, sink: str, plan: Plan, folder: Path, url: str) -> Result:
    """One seed into one sink."""
    chance, result, begun = random.Random(seed), Result(seed, sink, plan.on_spark), time.monotonic()
    endpoints: dict[str, dict[str, Any]] = {name: {} for name in LISTS}
    endpoints |= {FORBIDDEN: {"status": 403}, FAILING: {"status": 500}}
    mover = "spark" if plan.on_spark else "loop"
    environment = {"DATABASE_URL": url}
    with RestShop.open(
        folder, endpoints, mover=mover, environment=environment, seed=seed, rate=plan.rate, **FAULTS
    ) as shop:
        kind, options = SINKS[sink]
        shop.write(dict.fromkeys(endpoints, options), sink=kind, source="concurrency: 8", slice_bytes=1 << 20)
        path = folder / "shop.yaml"
        path.write_text(path.read_text().replace("retries: 2", f"retries: {plan.retries}"))
        for name in LISTS:
            shop.server.arrive(name, plan.objects, in_a_second=chance.choice((1, 7, 150)))
        with arrivals(shop.server, random.Random(seed + 1)) as arrived:
            _kill_runs(shop, plan, chance, result)
        result.arrived = sum(arrived)
        shop.server.arrive(LISTS[0], 10)  # so that the last run has something to do
        result.wrong += _check_end(shop, folder)
        for name in LISTS:
            found = Counter(_ids(sink, name, folder, url))
            result.objects += found.total()
            found.subtract(id_ for id_, _ in shop.server.objects(name))
            result.wrong += [f"{name}: {id_} {count:+}" for id_, count in found.items() if count][:5]
        requests = shop.server.requests()
    statuses = Counter(str(each.get("status")) for each in requests)
    result.requests, result.statuses = len(requests), dict(sorted(statuses.items()))
    # Of a few requests, perhaps none is reset.
    expected = ("0", "429", "500") if len(requests) > MANY_REQUESTS else ("429", "500")
    result.wrong += [f"no request was answered with {status}" for status in expected if not statuses[status]]
    if not result.arrived:
        result.wrong.append("no object arrived while a run was under way")
    result.seconds = round(time.monotonic() - begun, 1)
    return result


def _kill_runs(shop: RestShop, plan: Plan, chance: random.Random, result: Result) -> None:
    """Start runs until SIGKILL has ended as many as the plan says; one that ended by itself does not count."""
    while result.kills < plan.kills:
        running = shop.command.start("run", "shop.yaml")
        time.sleep(chance.uniform(*plan.life))
        if running.process.poll() is None:
            running.kill()
        else:
            running.end()
        if running.process.returncode == -signal.SIGKILL:
            result.kills += 1
            continue
        result.spared += 1
        if running.process.returncode != 1:  # one list fails in every run
            result.wrong.append(f"a run ended with {running.process.returncode}: {running.end().err[-500:]}")
        if result.spared > 5 * plan.kills:
            result.wrong.append(f"{result.spared} runs ended before they were to be killed: make the lists longer")
            return


def _check_end(shop: RestShop, folder: Path) -> list[str]:
    """What the last run does otherwise than it should: its exit code, its streams, its closing table."""
    done = shop.command.run("run", "shop.yaml", "--json")
    wrong = []
    if done.code != 1:
        wrong.append(f"the last run ended with {done.code}: {done.err[-500:]}")
    last = {each["stream"]: each["status"] for each in done.messages if each["type"] == "stream_status"}
    if last != dict.fromkeys(LISTS, "complete") | {FAILING: "error"}:
        wrong.append(f"the streams ended as {last}")
    (folder / "last.ndjson").write_text(done.out)
    return wrong + _check_table(shop.command.run("log", "last.ndjson"))


def _check_table(shown: Outcome) -> list[str]:
    """Where the closing table does not name the two streams with their reasons, and none but them."""
    lines = shown.out.splitlines()
    heading = next((number for number, line in enumerate(lines) if line.startswith("stream ")), len(lines))
    table = list(itertools.takewhile(lambda line: not line.startswith("shop: "), lines[heading + 1 :]))
    below = dict(itertools.pairwise(table))
    wrong = []
    for name, state, reasons in (
        (FORBIDDEN, "skipped", [f"status 403 ({FORBIDDEN} always answers 403)"]),
        # The API may have cut off the last try, as it does with any request.
        (FAILING, "failed", [f"GET {FAILING}", "retries did not help"]),
    ):
        rows = [line for line in table if line.split()[:2] == [name, state]]
        if len(rows) != 1 or any(reason not in below.get(rows[0], "") for reason in reasons):
            wrong.append(f"the closing table does not say that {name} was {state}: {table}")
    others = [line for line in table if line.split()[1:2] in (["skipped"], ["failed"])]
    if len(others) != 2:
        wrong.append(f"the closing table has other streams that were skipped or failed: {others}")
    return wrong


def _ids(sink: str, stream: str, folder: Path, url: str) -> list[str]:
    if sink == "postgres":
        with psycopg.connect(url) as db:
            return [id_ for (id_,) in db.execute(f"SELECT id FROM {stream}".encode()).fetchall()]
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        found: list[str] = catalog.load_table(f"shop.{stream}").scan().to_arrow().column("id").to_pylist()
    finally:
        catalog.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--objects", type=int, default=25_000, help="objects in each of the eight lists")
    parser.add_argument("--kills", type=int, default=10, help="runs that are ended by SIGKILL")
    parser.add_argument("--hours", type=float, help="go on with new seeds for so long, instead of --seeds")
    parser.add_argument("--sink", choices=SINKS, action="append", help="only this sink; may be repeated")
    parser.add_argument("--spark", action="store_true", help="move rows on Spark")
    chosen = parser.parse_args()
    life = LIFE_ON_SPARK if chosen.spark else LIFE
    plan = Plan(chosen.objects, chosen.kills, chosen.spark, life)
    until = None if chosen.hours is None else time.monotonic() + chosen.hours * 3600
    results: list[dict[str, Any]] = []
    path = Path(f"soak-results/rest-{chosen.objects}{'-spark' if chosen.spark else ''}.json")
    path.parent.mkdir(exist_ok=True)
    seeds = 0
    with PostgresServer() as server:
        for seed in itertools.count(chosen.first):
            if seeds >= chosen.seeds if until is None else time.monotonic() >= until:
                break
            seeds += 1
            for sink in chosen.sink or SINKS:
                with tempfile.TemporaryDirectory(prefix="penstock-soak-rest-") as folder:
                    result = soak(seed, sink, plan, Path(folder), server.database())
                print(json.dumps(asdict(result)), flush=True)
                results.append(asdict(result))
                path.write_text(json.dumps(results, indent=1))
    done = {name: sum(each[name] for each in results) for name in ("objects", "kills", "requests")}
    print(json.dumps({"seeds": seeds, **done, "wrong": sum(len(each["wrong"]) for each in results)}))
    sys.exit(1 if any(result["wrong"] for result in results) else 0)


if __name__ == "__main__":
    main()
