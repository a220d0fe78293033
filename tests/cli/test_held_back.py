"""Rows that wait for a transaction: `run`, `status`, `plan` and `check` say so and name it."""

from __future__ import annotations

from pathlib import Path

import psycopg
from tests.acceptance.shop import Shop
from tests.cli.looked import Looking, document

TRIGGER = """
create function stamp() returns trigger language plpgsql as 'begin new.updated_at := now(); return new; end';
create trigger stamp before insert or update on orders for each row execute function stamp();
"""


def test_whoever_holds_rows_back_is_named_everywhere(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=50)
    assert shop.command.run("run", "shop.yaml").code == 0
    looking = Looking(tmp_path, database)
    with (
        psycopg.connect(database, autocommit=True, application_name="billing") as late,
        psycopg.connect(database, autocommit=True) as other,
    ):
        other.execute(TRIGGER)
        late.execute("begin")
        late.execute("update orders set note = 'mine' where id = 1")
        other.execute("update orders set note = 'x' where id in (2, 3)")
        who = f"process {late.info.backend_pid} (user penstock, billing), idle in a transaction for "

        # Nothing can be read: that is said, it is no failure, and the run has a record.
        run = shop.command.run("run", "shop.yaml")
        assert run.code == 0
        assert f"shop/orders: held back: 2 rows, by {who}" in run.out
        assert "shop: nothing that can be read yet in 1 stream" in run.out
        said = shop.command.run("run", "shop.yaml", "--json")
        [left] = [message for message in said.messages if message["type"] == "remaining"]
        assert (left["rows"], left["held_back"], left["proven"]) == (0, 2, True)
        assert left["blocker"].startswith(who)
        assert left["blocker"].endswith("last with update orders set note = '…' where id = 1")
        assert left["horizon"].endswith(" (proven)")

        status = looking.run("status", "shop.yaml").out
        assert f"    held back: 2 rows, by {who}" in status
        assert "    horizon: below 2" in status
        stream = document(looking.run("status", "shop.yaml", "--json"))["pipelines"][0]["streams"][0]
        assert (stream["held_back"], stream["proven"]) == (2, True)
        assert f"0 rows to read; 2 rows held back by {who}" in looking.run("plan", "shop.yaml").out
        late.execute("commit")

    run = shop.command.run("run", "shop.yaml")
    assert "done: 3 rows in 1 slice" in run.out
    assert "held back" not in looking.run("status", "shop.yaml").out
    assert shop.compared().same
    check = looking.run("check", "shop.yaml", "--verbose").out
    assert "a row that commits late is not lost: its trigger proves how updated_at is set" in check


def test_what_would_prove_it_is_advised(database: str, tmp_path: Path) -> None:
    Shop.open(database, tmp_path, rows=50)
    check = Looking(tmp_path, database).run("check", "shop.yaml", "--verbose").out
    assert "! a row that commits late is not lost, provided that the application stamps updated_at not earlier" in check
    _, _, advice = check.partition("so that this is proven:\n")
    with psycopg.connect(database, autocommit=True) as db:
        for statement in advice.splitlines()[:2]:
            db.execute(statement.encode())
    check = Looking(tmp_path, database).run("check", "shop.yaml", "--verbose").out
    assert "its trigger proves how updated_at is set" in check
    file = tmp_path / "shop.yaml"
    file.write_text(file.read_text().replace("tiebreaker: id}", "tiebreaker: id, horizon: {method: off}}"))
    check = Looking(tmp_path, database).run("check", "shop.yaml", "--verbose").out
    assert "! a row whose transaction commits late, below the mark, is lost" in check
