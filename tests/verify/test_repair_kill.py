"""SIGKILL from outside at every point of a repair: the next run finishes the same slice, with the same keys."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.harness.doubles import LoopMover
from tests.harness.faults import Command
from tests.verify.tables import CURSOR, Copied

from penstock import wiring
from penstock.core.marks import Mark
from penstock.core.slices import Kind, Slice
from penstock.store import open_store

#: around each step that a repair passes through
POINTS = (
    "gate.compared",
    "gate.intended",
    "postgres.part_written",
    "gate.moved",
    "postgres.merged",
    "gate.committed",
    "gate.advanced",
)
#: killed here, the repair has not begun, or has ended
WITHOUT_INTENT = ("gate.compared", "gate.advanced")
CELLS = [*(("upsert", point) for point in POINTS), ("append", "gate.moved"), ("append", "gate.committed")]
REPAIR = ("verify", "shop.yaml", "--repair", "--yes")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


def find_intent(folder: Path) -> Slice | None:
    with closing(open_store(".penstock/store.db", folder=str(folder))) as store:
        return store.state("shop", "orders").intent


@pytest.mark.parametrize(("mode", "point"), CELLS)
def test_killed_at(mode: str, point: str, database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, rows=40, sink=f"mode: {mode}")
    command = Command(tmp_path)
    copied.execute("DELETE FROM copies.orders WHERE id IN (3, 7)")
    assert command.kill_at(point, *REPAIR)["point"] == point
    intent = find_intent(tmp_path)
    assert (intent is None) == (point in WITHOUT_INTENT)
    if intent is not None:
        assert intent.kind is Kind.REPAIR
        assert json.loads(intent.plan)["keys"] == [["3"], ["7"]]
    # Another repair would have other keys now; 7 has a newer version above the mark.
    copied.execute("DELETE FROM copies.orders WHERE id = 11; SELECT fill(41, 50)")
    copied.execute("UPDATE orders SET note = 'newest', updated_at = '2027-01-01' WHERE id = 7")
    done = command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    if intent is not None:
        assert copied.rows(f"SELECT kind FROM penstock_sink.slices WHERE id = '{intent.id}'") == [("repair",)]
    done = command.run(*REPAIR)
    assert done.code == 0, done.err
    rows = "SELECT DISTINCT ON (id) id, note FROM {}.orders ORDER BY id, updated_at DESC"
    assert copied.rows(rows.format("copies")) == copied.rows(rows.format("public"))
    [[doubled]] = copied.rows("SELECT count(*) - count(DISTINCT (id, updated_at)) FROM copies.orders")
    assert doubled == 0


def test_a_repair_of_other_keys_is_another_slice() -> None:
    """The marks are the same; without the digest of the keys, so would the ids be."""
    mark = Mark.of({"key": ["7"]})
    first = Slice("shop", "orders", 8, mark, mark, "{}", "p", Kind.REPAIR, '{"keys":[["3"]]}', spool="a")
    second = Slice("shop", "orders", 8, mark, mark, "{}", "p", Kind.REPAIR, '{"keys":[["4"]]}', spool="b")
    assert first.id != second.id


def test_a_frozen_repair_that_was_dropped_is_not_taken_for_a_later_one(database: str, tmp_path: Path) -> None:
    """`state recover` drops it, a repair of other keys is intended in its place, and then the first one wakes up.

    It commits, unless it notices before that its lease is over. What it commits is not taken for the later repair.
    """
    copied = Copied.make(database, tmp_path, rows=40, stream=CURSOR)
    text = (tmp_path / "shop.yaml").read_text().replace("    streams:", "    lease_seconds: 1\n    streams:")
    (tmp_path / "shop.yaml").write_text(text)
    command = Command(tmp_path)
    copied.execute("UPDATE copies.orders SET note = 'x' WHERE id = 3")
    with command.frozen(*REPAIR, point="gate.moved") as frozen:
        time.sleep(1.1)  # its lease ends
        assert command.run("state", "recover", "shop.yaml", "--yes").code == 0
        copied.execute(
            "UPDATE copies.orders SET note = 'y' WHERE id = 5; UPDATE copies.orders SET note = o.note "
            "FROM orders o WHERE o.id = 3 AND copies.orders.id = 3"
        )
        command.kill_at("gate.intended", *REPAIR)
    assert frozen.end().code == 4
    has_committed = copied.rows("SELECT count(*) FROM penstock_sink.slices WHERE kind = 'repair'") == [(1,)]
    done = command.run("run", "shop.yaml")
    assert (done.code, "sink and store disagree" in done.err) == (int(has_committed), has_committed), done.err
    assert command.run("state", "recover", "shop.yaml", "--yes").code == 0
    assert command.run(*REPAIR).code == 0
    assert copied.is_copied()
