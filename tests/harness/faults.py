"""The fault harness: start the command, halt it at a point or let it run a while, kill or freeze it, start it again.

Every process is ended by the id it was started with.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.command import START
from tests.harness.forking import Forked, nursery

#: every named point at which a run can be killed, in the order in which a run comes to them
POINTS = (
    "engine.leased",
    "gate.started",
    "gate.compared",
    "gate.prepared",
    "gate.planned",
    "rest.page_spooled",
    "gate.gathered",
    "gate.spooled",
    "gate.intended",
    "gate.asked",
    "files.part_written",
    "lake.part_written",
    "postgres.part_written",
    "http.part_written",
    "gate.moved",
    "gate.sealed",
    "gate.seal_kept",
    "files.manifest_written",
    "files.manifest_linked",
    "files.file_visible",
    "files.link_swapped",
    "files.all_visible",
    "lake.turn_taken",
    "lake.restamped",
    "lake.prepared",
    "lake.folded",
    "lake.staged",
    "lake.merged",
    "lake.side_staged",
    "lake.lost_race",
    "lake.landed",
    "lake.forgotten",
    "postgres.prepared",
    "postgres.moved",
    "postgres.folded",
    "postgres.merged",
    "postgres.landed",
    "http.chunk_quarantined",
    "http.chunk_sent",
    "gate.unclear",
    "gate.committed",
    "gate.advanced",
    "gate.swept",
    "engine.compared",
    "engine.released",
    "engine.reset_wanted",
    "files.manifests_archived",
    "engine.archived",
    "engine.withdrawn",
    "engine.recovering",
    "files.files_withdrawn",
    "lake.stamped",
    "lake.stamp_lost_race",
    "lake.stamp_landed",
    "lake.compacted",
    "lake.compaction_lost_race",
    "lake.expired",
    "lake.purge_prepared",
    "lake.purged",
    "lake.retained",
    "lake.upkeep_lost_race",
    "lake.upkeep_turn_taken",
)
#: points of optional steps, of conflicts and of other verbs
_NOT_IN_EVERY_RUN = (
    "gate.gathered",
    "gate.spooled",
    "gate.sealed",
    "gate.seal_kept",
    "gate.unclear",
    "engine.compared",
    "engine.reset_wanted",
    "engine.archived",
    "engine.withdrawn",
    "engine.recovering",
)
#: what a run passes through, whatever its source and sink, without conflict
_EVERY_RUN = tuple(
    point for point in POINTS if point.startswith(("engine.", "gate.")) and point not in _NOT_IN_EVERY_RUN
)
_IN_FILES = ("files.part_written", "files.manifest_written", "files.manifest_linked", "files.file_visible")
_IN_LOG = ("lake.part_written", "lake.prepared", "lake.landed")
_IN_STATE = tuple(point for point in POINTS if point.startswith("postgres."))
_IN_POSTGRES = tuple(point for point in _IN_STATE if point != "postgres.folded")


def _in_order(*points: str) -> tuple[str, ...]:
    return tuple(point for point in POINTS if point in points)


#: what a run of a keyset stream into files passes through
RUN_POINTS = _in_order(*_EVERY_RUN, *_IN_FILES, "files.all_visible")
#: the same of a list of an API, which is gathered first
REST_RUN_POINTS = _in_order(*RUN_POINTS, "rest.page_spooled", "gate.gathered", "gate.spooled")
#: the same into a log and into a keyed table of the lake
LAKE_RUN_POINTS = _in_order(*_EVERY_RUN, *_IN_LOG)
MERGE_RUN_POINTS = _in_order(*_EVERY_RUN, *_IN_LOG, "lake.staged", "lake.merged")
#: the same into a Postgres table
POSTGRES_RUN_POINTS = _in_order(*_EVERY_RUN, *_IN_POSTGRES)
#: of a run of files, those around the set of seen files: it is written before the intent
FILES_IN_RUN_POINTS = _in_order(
    *("gate.planned", "gate.gathered", "gate.spooled", "gate.intended", "gate.moved", "postgres.landed"),
    *("gate.committed", "gate.advanced", "engine.released"),
)
#: the same of ops into a state table of Postgres
STATE_RUN_POINTS = _in_order(*_EVERY_RUN, *_IN_STATE)
#: the same to a receiver, for which what was staged is sealed
HTTP_RUN_POINTS = _in_order(*_EVERY_RUN, "http.part_written", "gate.sealed", "gate.seal_kept", "http.chunk_sent")
#: a command that does not end or reach its point in this many seconds hangs
PATIENCE = 180.0


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What it said, if it was asked to speak JSON."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


@dataclass
class Running:
    """A command that runs."""

    process: subprocess.Popen[str] | Forked
    folder: Path

    def reached(self) -> dict[str, Any]:
        """Wait until it halts at its point; fails if it ends before."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(FileNotFoundError):
                found: dict[str, Any] = json.loads((self.folder / "reached").read_text())
                return found
            if self.process.poll() is not None:
                out, err = self.process.communicate()
                raise AssertionError(f"ended ({self.process.returncode}) before its point:\n{out}\n{err}")
            time.sleep(0.01)
        self.kill()
        raise AssertionError("never reached its point")

    def go(self) -> None:
        """Let it go on from its point."""
        (self.folder / "go").touch()

    def kill(self) -> None:
        """SIGKILL, from outside; one that has just ended by itself keeps its own exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self, patience: float = PATIENCE) -> Outcome:
        """Wait for its end; one that does not end is killed, and what it had said is in the failure."""
        try:
            out, err = self.process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            said = "\n".join((out[-2000:], err[-2000:]))
            raise AssertionError(f"did not end within {patience:.0f} s:\n{said}") from None
        return Outcome(self.process.returncode, out, err)


@dataclass
class Command:
    """The `penstock` command in a folder of its own."""

    folder: Path
    #: loop: parts move in the command's own process, which is forked; spark: as for everyone
    mover: str = "loop"
    environment: Mapping[str, str] = field(default_factory=dict)
    _halts: int = 0

    def start(self, *arguments: str, point: str | None = None, nth: int = 1) -> Running:
        self._halts += 1
        place = self.folder / f"halt-{self._halts}"
        place.mkdir()
        how: dict[str, Any] = {"mover": self.mover}
        if point is not None:
            how |= {"point": point, "nth": nth, "folder": str(place)}
        return Running(self._process([json.dumps(how), *arguments]), place)

    def _process(self, words: Sequence[str]) -> subprocess.Popen[str] | Forked:
        environment = {**os.environ, **self.environment}
        if self.mover == "loop":
            return nursery().start(words, self.folder, environment)
        # Spark starts a JVM and workers, which inherit whatever this process has: a new interpreter, as for everyone.
        return subprocess.Popen(
            [*START, *words],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> Outcome:
        """Start a command and wait for its end."""
        return self.start(*arguments).end()

    def kill_at(self, point: str, *arguments: str, nth: int = 1) -> dict[str, Any]:
        """Start a command, kill it at a point; what the point said proves that it was reached."""
        running = self.start(*arguments, point=point, nth=nth)
        found = running.reached()
        running.kill()
        return found

    @contextlib.contextmanager
    def frozen(self, *arguments: str, point: str, nth: int = 1) -> Iterator[Running]:
        """A command frozen by SIGSTOP at a point; it is woken at the end, if it still lives."""
        running = self.start(*arguments, point=point, nth=nth)
        running.reached()
        running.signal(signal.SIGSTOP)
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.go()
                running.signal(signal.SIGCONT)
