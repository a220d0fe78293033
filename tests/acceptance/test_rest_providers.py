"""What providers do, through the real command: endpoints that move, a shared account, a table with rows of others."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.rest_shop import CHARGES, RestShop
from tests.harness.faults import Command


@pytest.mark.parametrize("status", [301, 308])
def test_an_endpoint_that_moves_fails_the_stream_and_names_the_new_place(status: int, tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write()
        shop.server.arrive("charges", 300)
        shop.command.kill_at("gate.advanced", "run", "shop.yaml")
        shop.server.change("charges", status=status, moved_to="https://elsewhere.example/v2/charges?key=secret")
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 1, done.err
        assert f"status {status}" in done.err
        assert "which leads to /v2/charges" in done.err
        assert "secret" not in done.err + done.out
        shop.server.change("charges", status=0)
        assert shop.command.run("run", "shop.yaml").code == 0
        assert shop.differences() == {}


@pytest.mark.parametrize("status", [403, 404, 410])
def test_an_endpoint_that_refuses_what_it_gave_before_fails_the_stream(status: int, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, {"charges": {}, "refunds": {}}) as shop:
        shop.write({**CHARGES, "refunds": "{time: {lag: 0}}"})
        for name in ("charges", "refunds"):
            shop.server.arrive(name, 300)
        shop.command.kill_at("gate.advanced", "run", "shop.yaml", nth=2)
        shop.server.change("charges", status=status)
        shop.server.arrive("refunds", 10)
        before = shop.command.run("status", "shop.yaml", "--json")
        for verb in ("check", "plan", "run"):
            done = shop.command.run(verb, "shop.yaml")
            assert f"status {status} (charges always answers {status})" in done.out + done.err
            assert done.code == 2, (verb, done.err)
        assert shop.differences("refunds") == {}, "the other stream goes on"
        marks = [
            {each["stream"]: each["at"] for each in json.loads(said.out)["pipelines"][0]["streams"]}["charges"]
            for said in (before, shop.command.run("status", "shop.yaml", "--json"))
        ]
        assert marks[0] == marks[1]
        shop.server.change("charges", status=0)
        assert shop.command.run("run", "shop.yaml").code == 0
        assert shop.differences() == shop.differences("refunds") == {}


@pytest.mark.parametrize("status", [403, 404, 410])
def test_an_endpoint_that_never_gave_anything_is_skipped_with_the_reason(status: int, tmp_path: Path) -> None:
    with RestShop.open(tmp_path, {"charges": {"status": status}, "refunds": {}}) as shop:
        shop.write({**CHARGES, "refunds": "{time: {lag: 0}}"})
        shop.server.arrive("refunds", 10)
        for verb in ("check", "run", "run"):
            done = shop.command.run(verb, "shop.yaml")
            assert f"status {status} (charges always answers {status})" in done.out + done.err
            assert done.code == 0, (verb, done.err)
        assert shop.differences("refunds") == {}


def test_an_endpoint_that_says_so_late_is_skipped_too(tmp_path: Path) -> None:
    """It asks to wait at first, and the run goes on with the other list meanwhile."""
    with RestShop.open(tmp_path, {"charges": {"status": 403, "busy": 1}, "refunds": {}}) as shop:
        shop.write({**CHARGES, "refunds": "{time: {lag: 0}}"})
        shop.server.arrive("refunds", 10)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert "shop/charges: skipped: GET charges" in done.out
        assert "; skipped: charges; 10 rows" in done.out.splitlines()[-1]
        assert shop.differences("refunds") == {}


def test_two_pipelines_on_one_account_are_both_right_and_wait_when_told_to(tmp_path: Path) -> None:
    with RestShop.open(tmp_path, rate=15, retry_after="0.2") as shop:
        shop.server.arrive("charges", 1000)
        commands = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            shop.write(slice_bytes=1 << 20, name=f"{name}/shop.yaml")
            path = tmp_path / name / "shop.yaml"
            path.write_text(path.read_text().replace("retries: 2", "retries: 20"))
            commands.append(Command(tmp_path / name, "loop", shop.command.environment))
        running = [command.start("run", "shop.yaml") for command in commands]
        for each in running:
            ended = each.end()
            assert ended.code == 0, ended.err
        assert 429 in {each["status"] for each in shop.server.requests()}
        for name in ("one", "two"):
            shop.folder = tmp_path / name
            assert shop.differences() == {}


TABLE = "CREATE TABLE charges (id text PRIMARY KEY, created timestamptz, amount bigint, json jsonb, note text)"
THEIRS = "INSERT INTO charges SELECT 'theirs_' || g, now(), g, '{}', 'theirs' FROM generate_series(1, 50) g"
#: an object of the API, delivered by someone else, with another amount
OURS_BY_OTHERS = "INSERT INTO charges VALUES ('ch_00000007', now(), -1, '{}', 'theirs')"


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_with_rows_of_others(mode: str, database: str, tmp_path: Path) -> None:
    """Their rows stay. A row of theirs with the id of an object stops an append, and counts as updated by an upsert."""
    with RestShop.open(tmp_path, environment={"DATABASE_URL": database}) as shop, psycopg.connect(database) as db:
        db.autocommit = True
        for statement in (TABLE, THEIRS, OURS_BY_OTHERS):
            db.execute(statement.encode())
        how = ", mode: append" if mode == "append" else ""
        shop.write(
            {"charges": f"{{time: {{lag: 0}}, columns: {{amount: int64}}{how}}}"},
            sink='{type: postgres, url: "${DATABASE_URL}"}',
        )
        shop.server.arrive("charges", 300)
        done = shop.command.run("run", "shop.yaml")
        if mode == "append":
            assert done.code == 1
            assert (
                "duplicate value for a unique constraint (charges_pkey), in the row with key id=ch_00000007" in done.err
            )
            assert db.execute("SELECT count(*) FROM charges").fetchone() == (51,)
            db.execute("DELETE FROM charges WHERE amount = -1")
            done = shop.command.run("run", "shop.yaml")
        else:
            assert "(299 created, 1 updated)" in done.out
        assert done.code == 0, done.err
        assert db.execute("SELECT count(*) FROM charges WHERE id LIKE 'theirs%'").fetchone() == (50,)
        found = {id_ for (id_,) in db.execute("SELECT id FROM charges WHERE id LIKE 'ch%' AND amount >= 0")}
        assert found == {id_ for id_, _ in shop.server.objects("charges")}
