"""`penstock upkeep` itself: a real pipeline file, a real lake, Spark only where files are rewritten."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.harness.doubles import LoopMover, Rows
from tests.lake.upkeep.upkeep_tables import Changes
from typer.testing import CliRunner, Result

from penstock import wiring
from penstock.cli import app
from penstock.lake import readers
from penstock.lake.lake import Lake
from penstock.lake.metadata import read_state
from penstock.lake.options import LakeOptions
from penstock.lake.tables import load_table

# Spark's Python leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

FILE = """\
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://db/x"}
    sink:
      type: lake
      upkeep:
        target_file_size: 64MiB
        snapshots: {keep_for: 0s, keep_at_least: 1}
        retention: {size: 1}
    streams: {s: {}}
  out:
    source: {type: postgres, url: "postgresql://db/x"}
    sink: {type: files, directory: out}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """Six rows in six files, landed by three slices."""
    rows = Rows()
    for key in range(6):
        rows.arrive(key)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "build_source", lambda *_, **__: Changes(rows, 2))
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    Path("shop.yaml").write_text(FILE)
    done = penstock("run", "shop.yaml", "shop")
    assert done.exit_code == 0, done.output
    return rows


def penstock(*words: str) -> Result:
    return CliRunner().invoke(app, words, prog_name="penstock")


def place() -> Lake:
    return Lake.from_options(LakeOptions(), folder=str(Path.cwd()), pipeline="shop")


def state() -> Any:
    return read_state(place(), "s")


def count() -> int:
    table = load_table(place(), "s")
    assert table is not None
    return int(table.scan().to_arrow().num_rows)


def steps(done: Result) -> list[str]:
    return [line.split(": ")[1] for line in done.stdout.splitlines()]


def test_every_step_has_its_line(shop: Rows) -> None:
    readers.register(place(), "s", "slow", "s", 0)
    done = penstock("upkeep", "shop.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    assert all(line.startswith("shop.s: ") for line in done.stdout.splitlines())
    assert steps(done) == ["retention", "compaction", "expiry", "orphans"]
    assert "held back: slow/s has read up to 0" in done.stdout
    assert "rewrote 6 files as 1: 6 files (" in done.stdout
    assert "keeping 2" in done.stdout
    assert count() == 6
    again = penstock("upkeep", "shop.yaml", "--only", "compaction")
    assert (again.exit_code, steps(again)) == (0, ["compaction"])
    assert "nothing to compact in 1 file" in again.stdout


def test_dry_run(shop: Rows) -> None:
    before = dict(state().metadata)
    done = penstock("upkeep", "shop.yaml", "--dry-run")
    assert done.exit_code == 0
    assert "retention: would remove" in done.stdout
    assert "compaction: would rewrite 6 files" in done.stdout
    assert "expiry: would expire 2 snapshots" in done.stdout
    assert dict(state().metadata) == before


def test_json_ends_with_an_eof(shop: Rows) -> None:
    done = penstock("upkeep", "shop.yaml", "--only", "orphans,expiry", "--json")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["type"] for each in said] == ["upkeep", "upkeep", "eof"]
    assert [each.get("step") for each in said] == ["expiry", "orphans", None]
    assert said[0]["facts"]["expired"] == 2
    assert all("_ts" in each for each in said)
    assert (said[-1]["status"], said[-1]["exit_code"]) == ("complete", 0)


def test_force_asks_and_says_who_loses_what(shop: Rows) -> None:
    readers.register(place(), "s", "slow", "s", 0)
    words = ("upkeep", "shop.yaml", "--force", "--only", "retention")
    asked = penstock(*words)
    assert asked.exit_code == 2
    assert "shop.s: retention: would remove" in asked.stdout
    assert "slow/s (at 0) loses 6 rows" in asked.stdout
    assert "add --yes" in asked.stderr
    assert count() == 6
    done = penstock(*words, "--yes")
    assert done.exit_code == 0
    assert count() == 0
    assert state().reader("slow", "s").lost == 6


def test_abandon(shop: Rows) -> None:
    readers.register(place(), "s", "slow", "s", 0)
    wrong = penstock("upkeep", "shop.yaml", "--abandon", "slw/s")
    assert wrong.exit_code == 2
    assert "did you mean 'slow/s'?" in wrong.stderr
    done = penstock("upkeep", "shop.yaml", "--only", "retention", "--abandon", "slow/s")
    assert done.exit_code == 0
    assert "shop.s: readers: slow/s (at 0) no longer holds back the retention" in done.stdout
    assert count() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "compact"), "there is no step 'compact'; did you mean 'compaction'?"),
        (("--only", ","), "--only names no step"),
        (("--table", "ss"), "writes to a table 'ss'; did you mean 's'?"),
        (("out",), "no pipeline among out has written to a lake yet"),
        (("nope",), "there is no pipeline 'nope'"),
    ],
)
def test_bad_input(shop: Rows, words: Sequence[str], said: str) -> None:
    done = penstock("upkeep", "shop.yaml", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert count() == 6


def test_a_rolled_back_table_stops_with_the_next_step(shop: Rows) -> None:
    table = load_table(place(), "s")
    assert table is not None
    table.manage_snapshots().rollback_to_snapshot(state().main.parent).commit()
    done = penstock("upkeep", "shop.yaml", "--json")
    assert done.exit_code == 1
    assert "rolled back" in done.stderr
    assert "state recover shop.yaml --pipeline shop --stream s" in done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["type"], each.get("step")) for each in said] == [("upkeep", "stopped"), ("eof", None)]
    assert said[-1]["exit_code"] == 1


READER = """\
pipelines:
  out:
    source: {type: lake, namespace: shop}
    sink: {type: files, directory: out}
"""


def test_accept_foreign_asks_and_lets_a_reader_go_on(shop: Rows) -> None:
    """With the reader's own pipeline file, which does not keep the table."""
    Path("reader.yaml").write_text(READER)
    table = load_table(place(), "s")
    assert table is not None
    rows = table.scan().to_arrow()
    with warnings.catch_warnings(action="ignore"):
        for _ in range(3):
            table.append(rows)
    last = table.metadata.current_snapshot_id
    gone = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != last]
    table.maintenance.expire_snapshots().by_ids(gone).commit()
    words = ("upkeep", "reader.yaml", "--table", "s", "--accept-foreign")
    asked = penstock(*words)
    assert asked.exit_code == 2
    assert "12 rows in 2 files of shop.s (numbers " in asked.stdout
    assert state().gap
    done = penstock(*words, "--yes")
    assert done.exit_code == 0, done.stderr
    assert "shop.s: accepted: " in done.stdout
    assert state().orderly
    assert "nothing to accept" in penstock(*words, "--yes").stdout


def test_a_table_can_be_chosen(shop: Rows) -> None:
    done = penstock("upkeep", "shop.yaml", "shop", "--table", "shop.s", "--only", "expiry")
    assert (done.exit_code, steps(done)) == (0, ["expiry"])


def test_help_has_examples() -> None:
    text = penstock("upkeep", "--help").stdout
    assert "penstock upkeep shop.yaml --abandon export/orders" in text
