"""The rest source's fault run: eight lists of an API that fails in every way, killed at random while objects arrive.

    script/soak rest [--seeds 3] [--first 1] [--objects 25000] [--kills 10]

Each seed syncs the lists into a lake and into Postgres. Runs are killed with SIGKILL after a random time, and objects
arrive before each restart. One list always answers 403 and one 500: the first is skipped, the second fails, the others
end complete. Then every object must be in both sinks once. Writes soak-results/rest-<objects>.json, ends with one line
of JSON, and exits with 1 if something was lost, doubled or ended otherwise.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pyiceberg.catalog.sql import SqlCatalog

from tests.acceptance.rest_shop import RestShop
from tests.harness.postgres import PostgresServer

LISTS = tuple(f"list_{number}" for number in range(8))
FORBIDDEN, FAILING = "forbidden", "failing"
#: seconds that a run lives before it is killed
LIFE = (0.3, 6.0)
FAULTS: dict[str, Any] = {"errors": 0.02, "resets": 0.02, "slow": 0.01, "truncated": 0.02}
SINKS = {
    "lake": ("{type: lake, warehouse: lake}", "{time: {lag: 0}, columns: {amount: int64}}"),
    "postgres": (
        '{type: postgres, url: "${DATABASE_URL}"}',
        "{time: {lag: 0}, columns: {amount: int64}, mode: append, create: true}",
    ),
}


@dataclass
class Result:
    """What one seed has found for one sink."""

    seed: int
    sink: str
    objects: int = 0
    kills: int = 0
    requests: int = 0
    seconds: float = 0.0
    #: objects that are missing or came more than once, and other mistakes
    wrong: list[str] = field(default_factory=list)


def soak(seed: int, sink: str, objects: int, kills: int, folder: Path, url: str) -> Result:
    """One seed into one sink."""
    chance, result, begun = random.Random(seed), Result(seed, sink), time.monotonic()
    endpoints: dict[str, dict[str, Any]] = {name: {} for name in LISTS}
    endpoints |= {FORBIDDEN: {"status": 403}, FAILING: {"status": 500}}
    with RestShop.open(folder, endpoints, environment={"DATABASE_URL": url}, seed=seed, **FAULTS) as shop:
        kind, options = SINKS[sink]
        shop.write(dict.fromkeys(endpoints, options), sink=kind, source="concurrency: 8", slice_bytes=1 << 20)
        path = folder / "shop.yaml"
        path.write_text(path.read_text().replace("retries: 2", "retries: 8"))
        for name in LISTS:
            shop.server.arrive(name, objects, in_a_second=chance.choice((1, 7, 150)))
        for _ in range(kills):
            running = shop.command.start("run", "shop.yaml")
            time.sleep(chance.uniform(*LIFE))
            if running.process.poll() is None:
                running.kill()
                result.kills += 1
            shop.server.arrive(chance.choice(LISTS), chance.randint(1, 300))
        done = shop.command.run("run", "shop.yaml", "--json")
        if done.code != 1:
            result.wrong.append(f"the last run ended with {done.code}: {done.err[-500:]}")
        last = {each["stream"]: each["status"] for each in done.messages if each["type"] == "stream_status"}
        if last != dict.fromkeys(LISTS, "complete") | {FAILING: "error"}:
            result.wrong.append(f"the streams ended as {last}")
        for name in LISTS:
            found = Counter(_ids(sink, name, folder, url))
            found.subtract(id_ for id_, _ in shop.server.objects(name))
            result.objects += len(found)
            result.wrong += [f"{name}: {id_} {count:+}" for id_, count in found.items() if count][:5]
        result.requests = len(shop.server.requests())
    result.seconds = round(time.monotonic() - begun, 1)
    return result


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--objects", type=int, default=25_000, help="objects in each list")
    parser.add_argument("--kills", type=int, default=10)
    chosen = parser.parse_args()
    results = []
    with PostgresServer() as server:
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            for sink in SINKS:
                with tempfile.TemporaryDirectory(prefix="penstock-soak-rest-") as folder:
                    result = soak(seed, sink, chosen.objects, chosen.kills, Path(folder), server.database())
                print(json.dumps(asdict(result)), flush=True)
                results.append(asdict(result))
    Path("soak-results").mkdir(exist_ok=True)
    Path(f"soak-results/rest-{chosen.objects}.json").write_text(json.dumps(results, indent=1))
    print(json.dumps({"seeds": chosen.seeds, "wrong": sum(len(each["wrong"]) for each in results)}))
    sys.exit(1 if any(result["wrong"] for result in results) else 0)


if __name__ == "__main__":
    main()
