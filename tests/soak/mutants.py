"""Which seed catches each mutant of the state machines soonest.

    script/soak mutants [files] [sealed] [lake] [postgres] [--seeds 40] [--enough 0.3] [--only TEXT]

`script/test` searches for a mutant by one seed, which is quick until the machine changes. This tries seeds for every
mutant until one catches it within `--enough` seconds of CPU, and prints those for the lists in tests/engine. Exits with
1 if a mutant was caught by no seed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hypothesis import seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.harness.postgres import PostgresServer

#: the machines, and the tests whose seeds are looked for
TESTS = {
    "files": "tests.engine.test_machine",
    "sealed": "tests.engine.test_sealed_machine",
    "lake": "tests.engine.test_lake_machine",
    "postgres": "tests.engine.test_postgres_machine",
}


class TooLong(KeyboardInterrupt):
    """The search takes longer than by another seed. Hypothesis ends at once only if it is interrupted."""


@dataclass(frozen=True)
class Hunt:
    """One list of mutants, and how its test looks for them."""

    mutants: Mapping[str, Callable[[], AbstractContextManager[Any]]]
    machine_for: Callable[[str], type[RuleBasedStateMachine]]
    #: of the test: a seed finds the same examples only by the same settings
    search: settings
    #: those in use
    seeds: Mapping[str, int]

    def caught_in(self, name: str, number: int, most: float) -> float | None:
        """Seconds of CPU until the seed catches the mutant; None if that takes more."""
        end = time.process_time() + most

        class Bounded(self.machine_for(name)):  # type: ignore[misc]  # the class is chosen by the mutant
            def __init__(self) -> None:
                if time.process_time() > end:
                    raise TooLong
                super().__init__()

        begun = time.process_time()
        with self.mutants[name]():
            try:
                run_state_machine_as_test(seed(number)(Bounded), settings=self.search)
            except AssertionError:
                return time.process_time() - begun
            except (TooLong, Flaky, RecursionError):
                # The last one: a mutant may go round in a circle.
                return None
        return None


@contextmanager
def hunt(kind: str) -> Iterator[Hunt]:
    """The hunt of a test; for Postgres a server is started."""
    test = importlib.import_module(TESTS[kind])
    if kind != "postgres":
        yield Hunt(test.MUTANTS, test.machine_for, test.SEARCH, test.SEEDS)
        return
    with PostgresServer() as server:
        url = server.database()

        def machine_for(name: str) -> type[RuleBasedStateMachine]:
            machine: type[RuleBasedStateMachine] = test.machine_for(name)
            setattr(machine, "url", url)  # noqa: B010 (an attribute of one of the machines)
            return machine

        yield Hunt(test.MUTANTS, machine_for, test.SEARCH, test.SEEDS)


def quickest(kind: str, name: str, seeds: int, enough: float, most: float) -> tuple[int, float] | None:
    """The seed in use if it is quick, or else the first one that is, or else the quickest of all."""
    best: tuple[int, float] | None = None
    with hunt(kind) as one:
        used = one.seeds.get(name, 1)
        for number in (used, *(number for number in range(1, seeds + 1) if number != used)):
            seconds = one.caught_in(name, number, best[1] if best else most)
            if seconds is not None and (best is None or seconds < best[1]):
                best = (number, seconds)
            if best is not None and best[1] <= enough:
                break
    return best


def main() -> int:
    options = argparse.ArgumentParser(
        prog="script/soak mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("kinds", nargs="*", choices=[*TESTS, []], metavar="KIND", help=", ".join(TESTS))
    options.add_argument("--seeds", type=int, default=40, help="seeds to try at most")
    options.add_argument("--enough", type=float, default=0.3, help="seconds of CPU after which no other seed is tried")
    options.add_argument("--most", type=float, default=60.0, help="seconds of CPU for a seed")
    options.add_argument("--only", default="", help="mutants whose names contain this")
    given = options.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for kind in given.kinds or TESTS:
        seeds = importlib.import_module(TESTS[kind]).SEEDS
        for name in sorted(name for name in importlib.import_module(TESTS[kind]).MUTANTS if given.only in name):
            # What one search leaves behind in its process must not slow the next.
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                best = alone.submit(quickest, kind, name, given.seeds, given.enough, given.most).result()
            used = seeds.get(name, 1)
            found.setdefault(kind, {})[name] = best and {"seed": best[0], "s": round(best[1], 2)}
            said = "no seed" if best is None else f"seed {best[0]} in {best[1]:.2f} s"
            other = f" (in use: {used})" if best and best[0] != used else ""
            print(f"{kind}: {name}: {said}{other}", flush=True)
    Path("soak-results").mkdir(exist_ok=True)
    Path("soak-results/mutants.json").write_text(json.dumps(found, indent=1))
    missed = [name for names in found.values() for name, best in names.items() if best is None]
    print(json.dumps({"mutants": sum(map(len, found.values())), "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
