"""`penstock verify` of a list of an API: what differs, what does not, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.doubles import LoopMover
from tests.verify.lists import CHARGES, Listed, charge

from penstock import wiring


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


@pytest.fixture
def listed(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listed]:
    with Listed.open(database, tmp_path, monkeypatch) as listed:
        yield listed


def test_an_equal_table(listed: Listed) -> None:
    listed.fill()
    code, stream = listed.verify()
    assert (code, stream["rows"], stream["complete"]) == (0, 300, True)
    assert set(stream["columns_not_compared"]) == {"amount", "json"}


def test_missing_and_deleted_objects(listed: Listed) -> None:
    listed.fill()
    listed.execute("DELETE FROM copies.charges WHERE id IN ('ch_00000003', 'ch_00000250')")
    listed.server.remove("charges", "ch_00000077")
    assert listed.differences() == {"missing": charge(3, 250), "extra": charge(77)}
    text = listed.penstock("verify").stdout
    assert text.startswith(
        "shop/charges: 299 rows compared: 2 missing, 1 extra\n  missing  created 2026-01-01 00:00:01"
    )
    listed.repair()
    assert listed.differences() == {}
    assert listed.rows() == listed.expected()
