"""Takes each guard of the lake's order out of the code, one at a time, and shows that its test then fails.

    python -m tests.acceptance.lake_guards [NUMBER …]

A copy of the code is edited, never the code itself. Each test is first run without an edit, and must pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
TESTS = "tests/acceptance/test_lake_failures.py"


@dataclass(frozen=True)
class Edit:
    """One exact replacement; the old text must be there exactly once."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        found = text.count(self.old)
        if found != 1:
            raise SystemExit(f"{self.file}: the text to edit is there {found} times, not once:\n{self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Guard:
    """One guard against one of the eight failures, and how to remove it."""

    number: int
    failure: str
    test: str
    guard: str
    edits: tuple[Edit, ...]


def _guard(number: int, guard: str, *edits: tuple[str, str, str]) -> Guard:
    failure, test = FAILURES[number]
    return Guard(number, failure, f"{TESTS}::{test}", guard, tuple(Edit(*edit) for edit in edits))


FAILURES = {
    1: ("rows skipped: the scan was not in order", "test_rows_skipped_because_the_scan_was_not_in_order"),
    2: ("legacy rows exported at every tick", "test_legacy_rows_exported_again_at_every_tick"),
    3: ("writers that bypass the stamp", "test_writers_that_bypass_the_stamp"),
    4: ("two processes, the same numbers", "test_two_processes_handing_out_the_same_numbers"),
    5: ("a mark shared by two sinks", "test_a_mark_shared_by_two_instances_of_a_sink"),
    6: ("reads that grow with the table", "test_reads_that_grow_with_the_table"),
    7: ("a retried unit that grows", "test_a_retried_unit_that_grows"),
    8: ("retention passes a slow reader", "test_retention_that_deletes_what_a_slow_reader_has_not_seen"),
}

GUARDS = (
    _guard(
        1,
        "a slice ends at the highest of its rows' least numbers, not where the scan happened to be",
        (
            "lake/planning.py",
            '            order = np.argsort(numbers, kind="stable")\n            numbers, weights',
            "            order = np.arange(len(numbers))\n            numbers, weights",
        ),
    ),
    _guard(
        1,
        "files that overlap are read together, in the order of their numbers",
        ("lake/reading.py", "        yield from merge_batches(loaded)\n", "        yield from loaded\n"),
    ),
    _guard(
        2,
        "rows from before the order get a number before they are read",
        (
            "lake/foreign.py",
            "    return Numbering(lake, table, mover, probe, say).run()\n",
            "    return []\n",
        ),
    ),
    _guard(
        2,
        "rows that were numbered take the place of those that were not",
        (
            "lake/numbering.py",
            "removed=[rewrite.task.file for rewrite in rewrites],",
            "removed=[],",
        ),
    ),
    _guard(
        3,
        "a snapshot without our mark is inspected",
        (
            "lake/table_state.py",
            '        return self.kind is None and self.operation != "replace"\n',
            "        return False\n",
        ),
    ),
    _guard(
        3,
        "what others appended is numbered anew, whatever numbers it came with",
        (
            "lake/numbering.py",
            "rewrites.append(_Rewrite(task, all=True))",
            "rewrites.append(_Rewrite(task, all=False))",
        ),
    ),
    _guard(
        4,
        "a landing that lost a race is stamped again above the new head",
        (
            "lake/landing.py",
            "if staged.files and staged.start <= state.head:",
            "if staged.files and staged.start <= 0:",
        ),
    ),
    _guard(
        4,
        "PyIceberg does not put a conflicting append on top by itself",
        (
            "lake/tables.py",
            '    loaded.metadata.properties["commit.retry.num-retries"] = "0"\n',
            "",
        ),
    ),
    _guard(
        5,
        "a reader is registered by pipeline and stream",
        (
            "lake/names.py",
            '    return f"{READER}.{encode(pipeline)}.{encode(stream)}"\n',
            '    return f"{READER}.reader.{encode(stream)}"\n',
        ),
    ),
    _guard(
        5,
        "a table holds a chain for each pipeline and stream",
        (
            "lake/names.py",
            '    return f"{CHAIN}.{encode(pipeline)}.{encode(stream)}"\n',
            '    return f"{CHAIN}.chain.{encode(stream)}"\n',
        ),
    ),
    _guard(
        5,
        "every run first asks the sink which slice it holds",
        (
            "engine/look.py",
            "        if (position.id if position else None) != (last.id if last else None):\n"
            "            raise disagreement(self.pipeline, self.stream, last, position)\n",
            "",
        ),
        (
            "engine/look.py",
            "        if answer is Verdict.OTHER:\n",
            "        if answer is Verdict.OTHER and slice_.number > 1:\n",
        ),
    ),
    _guard(
        6,
        "files are chosen by the bounds of their numbers",
        ("lake/planning.py", "table.scan(row_filter=chosen or ALWAYS_TRUE, snapshot_id", "table.scan(snapshot_id"),
        (
            "lake/data_files.py",
            "        return (self.low is None or self.low <= upto) and (self.high is None or self.high > after)\n",
            "        return True\n",
        ),
    ),
    _guard(
        7,
        "a slice is read up to its own bound, whatever has arrived since",
        (
            "sources/lake/source.py",
            "        after, upto = _start_of(slice_, content), read_number(slice_.upto)\n",
            "        after, upto = _start_of(slice_, content), self._state(slice_.stream).head\n",
        ),
    ),
    _guard(
        8,
        "the slowest reader holds retention back",
        (
            "lake/upkeep/retention.py",
            "slowest.mark < wanted and not job.force else None",
            "slowest.mark < wanted and not job else None",
        ),
    ),
    _guard(
        8,
        "a reader below the floor stops",
        ("sources/lake/lost_rows.py", "    return seq < state.floor and not", "    return seq < 0 and not"),
    ),
)


def edited(guard: Guard, folder: Path) -> Path:
    """A copy of the code without a guard; the folder that it can be imported from."""
    copy = folder / "penstock"
    shutil.copytree(TOP / "src" / "penstock", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in guard.edits:
        path = copy / edit.file
        path.write_text(edit.applied(path.read_text()))
    return folder


def passes(test: str, code: Path) -> tuple[bool, str]:
    """Whether a test passes on some code; and what it said last."""
    known = os.environ.get("PYTHONPATH")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", test, "-q", "-x", "--no-header", "-p", "no:cacheprovider", "--tb=line"],
        cwd=TOP,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(code), *([known] if known else [])])},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{test} could not be run:\n{done.stdout}\n{done.stderr}")
    return done.returncode == 0, reason(done.stdout)


def reason(said: str) -> str:
    """Why a test failed, in a line."""
    found = [line for line in said.splitlines() if line.startswith(("E ", "/")) and ":" in line]
    return found[-1].rpartition(": ")[2][:60] if found else ""


def imported_from(code: Path) -> str:
    """Where Python finds penstock when a folder comes first: the edit must be what runs."""
    return subprocess.run(
        [sys.executable, "-c", "import penstock; print(penstock.__file__)"],
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def main(words: Sequence[str]) -> int:
    wanted = {int(word) for word in words} or set(FAILURES)
    chosen = [guard for guard in GUARDS if guard.number in wanted]
    whole: dict[str, bool] = {}
    rows = []
    for guard in chosen:
        began = time.monotonic()
        if guard.test not in whole:
            whole[guard.test] = passes(guard.test, TOP / "src")[0]
        with tempfile.TemporaryDirectory() as folder:
            code = edited(guard, Path(folder))
            if not imported_from(code).startswith(folder):
                raise SystemExit("the edited copy is not what would be run")
            still, why = passes(guard.test, code)
        good = whole[guard.test] and not still
        rows.append((guard, whole[guard.test], still, good))
        print(f"{guard.number} {guard.guard}: {'shown' if good else 'NOT SHOWN'} ({why})", flush=True)
        print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print("\n| failure | guard taken out | test as it is | test without it |\n|---|---|---|---|")
    for guard, with_it, without, _ in rows:
        words_ = ["passes" if each else "fails" for each in (with_it, without)]
        print(f"| {guard.number}. {guard.failure} | {guard.guard} | {words_[0]} | {words_[1]} |")
    return 0 if all(good for *_, good in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
