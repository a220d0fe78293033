"""The whole suite, again and again: which tests fail now and then, and how long each folder takes.

    script/soak suite [--runs 10] [--hours H] [--search 5] [pytest arguments]
    script/soak suite --runs 1 tests/links      one short round over one folder

Each run draws new examples for all property tests, where `script/test` repeats the same ones; `--search N` gives the
state machines N times as many. Writes soak-results/suite.json after every run, and exits with 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

#: read by tests/conftest.py and tests/engine/machine.py
SEARCH = "PENSTOCK_SEARCH"
#: how many of the slowest files are listed
MOST_FILES = 20


@dataclass(frozen=True)
class Report:
    """What pytest's JUnit file says of one run."""

    tests: int
    failed: list[str]
    #: the longest first
    seconds_by_folder: dict[str, float]
    #: the same of the files that took longest
    slowest_files: dict[str, float]

    @classmethod
    def read(cls, path: Path) -> Report:
        folders: defaultdict[str, float] = defaultdict(float)
        files: defaultdict[str, float] = defaultdict(float)
        failed, count = [], 0
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            place = (case.get("classname") or "").split(".")
            seconds = float(case.get("time") or 0)
            folders[place[1] if len(place) > 2 else "tests"] += seconds
            files[_file_of(place)] += seconds
            count += 1
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(f"{'/'.join(place)}::{case.get('name')}")
        return cls(count, failed, _longest_first(folders), _longest_first(files, MOST_FILES))


def _file_of(place: list[str]) -> str:
    """The file of a test: what follows the module's name is a class."""
    names = list(takewhile(lambda name: not name.startswith("Test"), place))
    return f"{'/'.join(names)}.py"


def _longest_first(seconds: Mapping[str, float], most: int | None = None) -> dict[str, float]:
    ordered = sorted(seconds.items(), key=lambda each: -each[1])
    return {name: round(value, 1) for name, value in ordered[:most]}


def run_once(search: int, words: list[str]) -> dict[str, Any]:
    """Run the suite once in a process of its own."""
    environment = os.environ | {SEARCH: str(search)}
    with tempfile.TemporaryDirectory(prefix="soak-suite-") as folder:
        report = Path(folder, "report.xml")
        # With arguments script/test leaves all of pytest's to us.
        usual = ["--numprocesses", "5", "--dist", "loadscope", "--no-loadscope-reorder", "-q"]
        begun = time.monotonic()
        ended = subprocess.run(
            ["script/test", *usual, f"--junitxml={report}", *words], env=environment, capture_output=True, text=True
        )
        took = time.monotonic() - begun
        if not report.exists():
            raise SystemExit(f"soak: script/test made no report:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        found = Report.read(report)
    return {"code": ended.returncode, "seconds": round(took, 1), **asdict(found)}


def main() -> int:
    options = argparse.ArgumentParser(
        prog="script/soak suite", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--runs", type=int, default=10)
    options.add_argument("--hours", type=float, default=None, help="begin no run after this many hours")
    options.add_argument("--search", type=int, default=5, help="times the examples of the state machines")
    given, words = options.parse_known_args()
    begun, results = time.monotonic(), []
    for number in range(1, given.runs + 1):
        if given.hours is not None and time.monotonic() - begun > given.hours * 3600:
            break
        result = run_once(given.search, words)
        results.append(result)
        failed = f"{len(result['failed'])} failed: {', '.join(result['failed'])}" if result["failed"] else "good"
        print(f"run {number}: {result['tests']} tests in {result['seconds']:.0f} s: {failed}", flush=True)
        Path("soak-results").mkdir(exist_ok=True)
        Path("soak-results/suite.json").write_text(json.dumps(results, indent=1))
    flaky = Counter(name for result in results for name in result["failed"])
    bad = sum(1 for result in results if result["code"])
    print(json.dumps({"runs": len(results), "bad": bad, "failed": dict(flaky.most_common())}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
