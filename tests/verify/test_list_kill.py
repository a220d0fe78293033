"""SIGKILL at every point of a repair of a list: the next run finishes the same slice, with the rows of its spool."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.harness.doubles import LoopMover
from tests.verify.lists import CHARGES, Listed, charge

from penstock import wiring
from penstock.core.slices import Kind, Slice
from penstock.ports import StreamState
from penstock.store import open_store

#: around each step that a repair passes through
POINTS = (
    "gate.compared",
    "rest.page_spooled",
    "gate.gathered",
    "gate.spooled",
    "gate.intended",
    "postgres.part_written",
    "gate.moved",
    "postgres.merged",
    "gate.committed",
    "gate.advanced",
)
#: killed here, the repair has not begun, or has ended
WITHOUT_INTENT = ("gate.compared", "rest.page_spooled", "gate.gathered", "gate.spooled", "gate.advanced")
OPTIONS = {
    "upsert": CHARGES,
    "append": f"{CHARGES}, mode: append",
    "changes": f"{CHARGES}, changes: {{deleted: gone}}",
}
CELLS = [
    *(("upsert", point) for point in POINTS),
    *(("append", point) for point in ("gate.moved", "gate.committed")),
    *(("changes", point) for point in ("gate.intended", "gate.moved", "gate.committed")),
]
REPAIR = ("verify", "shop.yaml", "--repair", "--yes")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


@pytest.fixture
def listed(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listed]:
    with Listed.open(database, tmp_path, monkeypatch) as listed:
        yield listed


def read_state(folder: Path) -> StreamState:
    with closing(open_store(".penstock/store.db", folder=str(folder))) as store:
        return store.state("shop", "charges")


def find_intent(folder: Path) -> Slice | None:
    return read_state(folder).intent


@pytest.mark.parametrize(("kind", "point"), CELLS)
def test_killed_at(kind: str, point: str, listed: Listed) -> None:
    listed.fill(40, OPTIONS[kind])
    listed.execute("DELETE FROM copies.charges WHERE id IN ('ch_00000003', 'ch_00000007')")
    assert listed.command.kill_at(point, *REPAIR)["point"] == point
    intent = find_intent(listed.folder)
    assert (intent is None) == (point in WITHOUT_INTENT)
    if intent is not None:
        assert intent.kind is Kind.REPAIR
        assert [key[1] for key in json.loads(intent.plan)["keys"]] == charge(3, 7)
    # Another repair would have other objects now, and new ones arrive.
    listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000011'")
    listed.server.arrive("charges", 20)
    listed.wait()
    listed.server.forget_requests()
    done = listed.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    if intent is not None:
        with_id = f"SELECT kind FROM penstock_sink.slices WHERE id = '{intent.id}'"
        assert listed.query(with_id) == [("repair",)]
    done = listed.command.run(*REPAIR)
    assert done.code == 0, done.err
    assert listed.rows() == listed.expected(), "each object once"


@pytest.mark.parametrize("point", ["gate.intended", "gate.moved", "postgres.merged", "gate.committed"])
def test_killed_while_it_deletes(point: str, listed: Listed) -> None:
    listed.fill(40)
    listed.server.remove("charges", "ch_00000005")
    listed.server.remove("charges", "ch_00000039")
    assert listed.command.kill_at(point, *REPAIR)["point"] == point
    assert listed.command.run("run", "shop.yaml").code == 0
    assert listed.rows() == listed.expected()
    assert listed.differences() == {}


def test_a_spool_that_is_gone_stops_the_stream(listed: Listed) -> None:
    listed.fill(40)
    listed.execute("DELETE FROM copies.charges WHERE id = 'ch_00000003'")
    listed.command.kill_at("gate.intended", *REPAIR)
    shutil.rmtree(listed.folder / ".penstock" / "spools")
    done = listed.command.run("run", "shop.yaml")
    assert (done.code, "is gone" in done.err) == (1, True), done.err
    assert read_state(listed.folder).stopped, "no run tries again before somebody has looked"
    assert listed.command.run("state", "recover", "shop.yaml", "--yes").code == 0
    listed.repair()
    assert listed.rows() == listed.expected()
