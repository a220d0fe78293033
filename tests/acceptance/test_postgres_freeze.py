"""A run into Postgres frozen past its lease: before its transaction, and inside it, where others wait for its locks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.acceptance.freezing import LEASE, check_replaced, frozen_while_another_goes_on, past_its_lease
from tests.acceptance.postgres_shop import check, open_shop


@pytest.mark.parametrize(("point", "mode"), [("gate.moved", "append"), ("postgres.prepared", "upsert")])
def test_frozen_past_its_lease(point: str, mode: str, database: str, tmp_path: Path) -> None:
    shop = open_shop(database, tmp_path, mode, lease=LEASE)
    frozen_while_another_goes_on(shop, point)
    shop.arrive(3001, 3100)
    assert shop.command.run("run", "shop.yaml").code == 0
    check(database, mode, tmp_path)


@pytest.mark.parametrize(("point", "killed"), [("postgres.moved", True), ("postgres.merged", False)])
def test_frozen_inside_its_transaction(point: str, killed: bool, database: str, tmp_path: Path) -> None:
    """What it has locked is waited for as long as `lock_timeout` says; once it goes, or goes on, all comes in."""
    shop = open_shop(database, tmp_path, "append", lease=LEASE, lock_timeout=0.3)
    with shop.command.frozen("run", "shop.yaml", point=point, nth=2) as first:
        past_its_lease()
        second = shop.command.run("run", "shop.yaml")
        assert second.code == 1, second.err
        assert "slice 2 was not committed by this attempt: another attempt is still committing it" in second.err
        assert re.search(
            r"process \d+ of the server \(user \w+, idle in transaction for \d+ s\)", " ".join(second.err.split())
        )
        assert "Nothing was lost: the mark has not moved." in second.err
        if killed:
            first.kill()
    if not killed:
        check_replaced(first.end())
    shop.arrive(3001, 3100)
    third = shop.command.run("run", "shop.yaml")
    assert third.code == 0, third.err
    check(database, "append", tmp_path)
