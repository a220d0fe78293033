"""`penstock verify --repair`: what differs goes through the gate, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.harness.doubles import LoopMover
from tests.verify.tables import CURSOR, Copied

from penstock import wiring
from penstock.engine import repairing

REPAIR = ("--repair", "--yes")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


@pytest.fixture(params=["", "newer_than: updated_at"])
def copied(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Copied:
    return Copied.make(database, tmp_path, sink=request.param)


def spoil(copied: Copied) -> None:
    """Rows 3 and 50 are missing, 8 is stale and 77 is extra."""
    copied.execute("DELETE FROM copies.orders WHERE id IN (3, 50); UPDATE copies.orders SET note = 'x' WHERE id = 8")
    copied.execute("DELETE FROM public.orders WHERE id = 77")


def test_missing_stale_and_extra_rows_are_repaired(copied: Copied) -> None:
    spoil(copied)
    done = copied.penstock("verify", *REPAIR)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "shop/orders: 3 rows will be read from the source and delivered; 1 row will be deleted in the" in done.stdout
    assert copied.is_copied()
    assert copied.differences() == {}
    # Nothing moved the mark, and a run finds nothing new.
    assert "nothing new" in copied.penstock("run").stdout
    copied.execute("SELECT fill(101, 105)")
    assert copied.penstock("run").exit_code == 0
    assert copied.is_copied()


def test_the_history_names_the_repair(copied: Copied) -> None:
    spoil(copied)
    before = json.loads(copied.penstock("state show", "--json").stdout)
    assert copied.verify(*REPAIR)[1]["left_after_repair"] == 0
    after = json.loads(copied.penstock("state show", "--json").stdout)
    assert "repair" in copied.penstock("state history").stdout
    assert "  repair" in copied.penstock("status").stdout
    [stream] = before["pipelines"][0]["streams"]
    assert after["pipelines"][0]["streams"][0]["at"] == stream["at"]


def test_without_a_confirmation_nothing_is_written(copied: Copied) -> None:
    spoil(copied)
    done = copied.penstock("verify", "--repair")
    assert (done.exit_code, "add --yes" in done.stderr) == (2, True)
    assert not copied.is_copied()


def test_a_row_that_changes_meanwhile_is_left_to_the_next_run(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found stale, then updated above the mark before the slice is read: the old value is not delivered."""
    spoil(copied)
    look = repairing._look
    asked: list[object] = []

    def change_first(comparison: object, keys: object) -> object:
        found = look(comparison, keys)  # type: ignore[arg-type]  # passed on
        if not asked:
            asked.append(keys)
            copied.execute("UPDATE orders SET note = 'newest', updated_at = '2027-01-01' WHERE id = 8")
        return found

    monkeypatch.setattr(repairing, "_look", change_first)
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.rows("SELECT note FROM copies.orders WHERE id = 8") == [("x",)]
    assert copied.penstock("run").exit_code == 0
    assert copied.is_copied()


def test_a_key_that_comes_back_meanwhile_is_not_deleted(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(copied)
    look = repairing._look
    asked: list[object] = []

    def insert_first(comparison: object, keys: object) -> object:
        found = look(comparison, keys)  # type: ignore[arg-type]  # passed on
        if keys == [("77",)] and not asked:
            asked.append(keys)
            copied.execute(
                "SELECT fill(77, 77); UPDATE orders SET note = 'again', updated_at = '2027-01-01' WHERE id = 77"
            )
        return found

    monkeypatch.setattr(repairing, "_look", insert_first)
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.rows("SELECT count(*) FROM copies.orders WHERE id = 77") == [(1,)]
    assert copied.penstock("run").exit_code == 0
    assert copied.is_copied()


def test_a_newer_row_in_the_sink_stays_and_is_said(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, sink="newer_than: updated_at")
    copied.execute("UPDATE copies.orders SET note = 'x', updated_at = '2030-01-01' WHERE id = 8")
    done = copied.penstock("verify", *REPAIR)
    assert done.exit_code == 5
    assert "1 stale after the repair: the sink does not take them, or has a newer row" in done.stderr
    assert copied.rows("SELECT note FROM copies.orders WHERE id = 8") == [("x",)]


def test_rows_of_others_are_not_deleted_unless_asked_for(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path)
    copied.execute("INSERT INTO copies.orders (id, note) VALUES (5000, 'mine')")
    done = copied.penstock("verify", *REPAIR)
    assert done.exit_code == 5
    assert "extra rows may be someone else's: the table copies.orders has more rows than this stream" in done.stdout
    assert copied.rows("SELECT note FROM copies.orders WHERE id = 5000") == [("mine",)]
    assert copied.penstock("verify", *REPAIR, "--delete-extra").exit_code == 0
    assert copied.is_copied()


def test_into_a_sink_that_appends_only_what_is_missing(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, sink="mode: append")
    copied.execute("DELETE FROM orders WHERE id = 9; DELETE FROM copies.orders WHERE id = 20")
    # Above the mark: the next run brings it, and a repair must not bring it too.
    copied.execute("DELETE FROM copies.orders WHERE id = 21; UPDATE orders SET updated_at = '2027-01-01' WHERE id = 21")
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.rows("SELECT count(*), count(DISTINCT id) FROM copies.orders") == [(99, 99)]
    assert copied.penstock("run").exit_code == 0
    assert copied.rows("SELECT count(*), count(DISTINCT id) FROM copies.orders") == [(100, 100)]


def test_shaped_rows_are_repaired_in_their_shape(database: str, tmp_path: Path) -> None:
    shape = "shape: {rename: {note: remark, id: number}, hash: {code: sha256}}"
    copied = Copied.make(database, tmp_path, stream=f"{CURSOR}, {shape}")
    before = copied.rows("SELECT * FROM copies.orders ORDER BY number")
    copied.execute("DELETE FROM copies.orders WHERE number = 3; UPDATE copies.orders SET remark = 'x' WHERE number = 8")
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.rows("SELECT * FROM copies.orders ORDER BY number") == before
    copied.execute("DELETE FROM orders WHERE id = 5")
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.rows("SELECT * FROM copies.orders ORDER BY number") == [row for row in before if row[0] != 5]


def test_many_keys_are_several_slices(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "SLICE_KEYS", 7)
    copied = Copied.make(database, tmp_path)
    copied.execute("DELETE FROM copies.orders WHERE id < 20; DELETE FROM orders WHERE id > 90")
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.is_copied()
    [[slices]] = copied.rows("SELECT count(*) FROM penstock_sink.slices WHERE kind = 'repair'")
    assert slices == 3 + 2
