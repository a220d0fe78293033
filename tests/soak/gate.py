"""The gate's fault runs in full: every cell of the kill matrix, then runs killed at random while rows keep coming.

    script/soak gate [--mover spark|loop] [--seeds 10] [--seconds 120] [--cells N]

Writes soak-results/gate-<mover>.json and exits with 1 if anything was lost, doubled or stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.acceptance.matrix import CHANGES, ONCE, STORES, Cell
from tests.acceptance.shop import Shop
from tests.harness.faults import RUN_POINTS
from tests.harness.postgres import PostgresServer


def cells(mover: str) -> list[Cell]:
    every = itertools.product(RUN_POINTS, (1, 2), CHANGES, STORES)
    return [Cell(p, n, c, s, mover) for p, n, c, s in every if n == 1 or p not in ONCE]


def killed_at_random(server: PostgresServer, seed: int, seconds: float, mover: str) -> dict[str, Any]:
    """Runs that die at any moment, rows that come and change all the while; at the end one run that may finish."""
    chance, last, kills, codes, moment = random.Random(seed), 3000, 0, [], 0
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        shop = Shop.open(server.database(), Path(folder), rows=last, mover=mover)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            running = shop.command.start("run", "shop.yaml")
            time.sleep(chance.uniform(0.2, 16.0 if mover == "spark" else 3.0))
            if running.process.poll() is None:
                running.kill()
                kills += 1
            else:
                codes.append(running.end().code)
            more = chance.randrange(400)
            moment += 1
            shop.arrive(last + 1, last + more, at=moment)
            last += more
            if chance.random() < 0.5:
                shop.change(every=chance.randrange(3, 50), at=moment)
        done = shop.command.run("run", "shop.yaml")
        compared = shop.compared() if done.code == 0 else None
    good = done.code == 0 and not any(codes) and compared is not None and compared.same
    found = {"seed": seed, "kills": kills, "whole_runs": len(codes), "rows": last, "good": good}
    return found | {"codes": codes, "err": done.err, "compared": asdict(compared) if compared else None}


def main() -> int:
    options = argparse.ArgumentParser(prog="script/soak gate", description=__doc__)
    options.add_argument("--mover", choices=("spark", "loop"), default="spark")
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--seconds", type=float, default=120.0)
    options.add_argument("--cells", type=int, default=None, help="only so many cells, chosen at random")
    given = options.parse_args()
    matrix = cells(given.mover)
    if given.cells is not None:
        matrix = random.Random(1).sample(matrix, min(given.cells, len(matrix)))
    results: dict[str, list[Any]] = {"cells": [], "random": []}
    with PostgresServer() as server:
        for number, cell in enumerate(matrix, 1):
            with tempfile.TemporaryDirectory(prefix="soak-") as folder:
                try:
                    compared = cell.run(server.database(), Path(folder))
                    result = asdict(cell) | {"good": compared.same, "compared": asdict(compared)}
                except AssertionError as error:
                    result = asdict(cell) | {"good": False, "error": str(error)}
            results["cells"].append(result)
            print(f"{number}/{len(matrix)} {cell}: {'good' if result['good'] else 'BAD'}", flush=True)
        for seed in range(1, given.seeds + 1):
            result = killed_at_random(server, seed, given.seconds, given.mover)
            results["random"].append(result)
            print(f"seed {seed}: {result['kills']} kills: {'good' if result['good'] else 'BAD'}", flush=True)
    Path("soak-results").mkdir(exist_ok=True)
    place = Path(f"soak-results/gate-{given.mover}.json")
    place.write_text(json.dumps(results, indent=1))
    bad = [result for kind in results.values() for result in kind if not result["good"]]
    print(json.dumps({"cells": len(results["cells"]), "seeds": len(results["random"]), "bad": len(bad)}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
