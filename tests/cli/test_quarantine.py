"""`penstock quarantine …` on a real pipeline into a real table."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import psycopg
import pytest
from tests.docs.pages import TOP, blocks
from tests.harness.doubles import LoopMover
from typer.testing import CliRunner, Result

from penstock import wiring
from penstock.cli import app
from penstock.cli.quarantine.listing import _next_steps

FILE = """\
pipelines:
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: postgres, url: "{url}", schema: copies}}
    streams:
      orders: {{cursor: updated_at, tiebreaker: id, newer_than: updated_at, bad_rows: quarantine}}
"""
EXPORT = """\
  export:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: files, directory: out}}
    streams:
      orders: {{cursor: updated_at, tiebreaker: id}}
"""


def penstock(*words: str) -> Result:
    return CliRunner().invoke(app, words, prog_name="penstock")


def run_sql(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(statement.encode())


@pytest.fixture
def url(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Five orders, of which two are below zero, which the target does not take."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    Path("shop.yaml").write_text((FILE + EXPORT).format(url=database))
    run_sql(database, "CREATE TABLE orders (id bigint PRIMARY KEY, amount int, updated_at timestamptz NOT NULL)")
    run_sql(
        database,
        "INSERT INTO orders SELECT g, CASE WHEN g IN (2, 4) THEN -g ELSE g END, timestamptz '2026-01-01 00:00Z' "
        "+ g * interval '1 day' FROM generate_series(1, 5) g",
    )
    run_sql(database, "CREATE INDEX ON orders (updated_at, id)")
    run_sql(database, "CREATE SCHEMA copies")
    run_sql(database, "CREATE TABLE copies.orders (LIKE orders INCLUDING ALL, CONSTRAINT positive CHECK (amount > 0))")
    return database


def test_from_the_run_to_an_empty_quarantine(url: str) -> None:
    done = penstock("run", "shop.yaml", "shop", "--plain")
    assert done.exit_code == 0, done.output
    assert "3 created, 2 quarantined" in done.output
    listed = penstock("quarantine", "list", "shop.yaml")
    assert listed.exit_code == 0, listed.output
    first, second, third, last = listed.stdout.splitlines()
    assert first == "shop/orders: 2 rows in quarantine"
    assert (second.endswith("id=2: a check constraint fails (positive)"), third[:22]) == (
        True,
        "  2  orders, slice 1, ",
    )
    assert last == "Next: fix the cause, then penstock quarantine replay shop.yaml --pipeline shop"
    document = json.loads(penstock("quarantine", "list", "shop.yaml", "shop", "--limit", "1", "--json").stdout)
    (pipeline,) = document["pipelines"]
    assert pipeline["streams"] == [{"stream": "orders", "quarantined": 2}]
    assert [(row["id"], row["key"], row["code"]) for row in pipeline["rows"]] == [(1, {"id": 2}, "23514")]

    again = penstock("quarantine", "replay", "shop.yaml", "--pipeline", "shop")
    assert again.exit_code == 1
    assert again.stdout.startswith("shop/orders: no rows written; 2 rows still in quarantine\n")
    run_sql(url, "ALTER TABLE copies.orders DROP CONSTRAINT positive")
    again = penstock("quarantine", "replay", "shop.yaml", "--pipeline", "shop", "--id", "1")
    assert (again.exit_code, again.stdout) == (0, "shop/orders: 1 created\n")

    refused = penstock("quarantine", "drop", "shop.yaml", "--pipeline", "shop")
    assert refused.exit_code == 2
    assert "there is no terminal to ask on" in refused.output
    dropped = penstock("quarantine", "drop", "shop.yaml", "--pipeline", "shop", "--yes")
    assert dropped.stdout.splitlines()[-1] == "shop: 1 row dropped from the quarantine"
    assert penstock("quarantine", "list", "shop.yaml", "shop").stdout == "shop: no rows in quarantine\n"
    with psycopg.connect(url) as db:
        assert db.execute("SELECT id, amount FROM copies.orders ORDER BY 1").fetchall() == [
            (1, 1),
            (2, -2),
            (3, 3),
            (5, 5),
        ]


def test_the_commands_of_the_page(url: str) -> None:
    Path("shop.yaml").write_text(FILE.format(url=url))
    assert penstock("run", "shop.yaml").exit_code == 0
    run_sql(url, "ALTER TABLE copies.orders DROP CONSTRAINT positive")
    (block,) = [b for b in blocks(TOP / "docs/sinks/postgres.md") if b.language == "bash"]
    for line in block.text.splitlines():
        done = penstock(*shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, done.output


def test_what_cannot_be_asked(url: str) -> None:
    none = penstock("quarantine", "list", "shop.yaml", "export")
    assert (none.exit_code, "the sink of export has no quarantine" in none.output) == (2, True)
    assert penstock("quarantine", "list", "shop.yaml", "shop").stdout == "shop: no rows in quarantine\n"
    unknown = penstock("quarantine", "replay", "shop.yaml", "--pipeline", "shop", "--stream", "order")
    assert (unknown.exit_code, "stream 'order' has no rows in quarantine" in unknown.output) == (2, True)
    which = penstock("quarantine", "drop", "shop.yaml")
    assert (which.exit_code, "--pipeline" in which.output) == (2, True)


OPS = """\
pipelines:
  images:
    source: {type: outbox, url: "postgresql://nowhere/db"}
    sink: {type: postgres, url: "postgresql://nowhere/other"}
    streams:
      images:
        mode: state
        direct: [{table: images, key: id, columns: [url], creates: true}]
      log:
        direct: [{table: images, key: id, columns: [url], creates: true}]
"""


def test_what_is_suggested_for_ops(tmp_path: Path) -> None:
    """Never what would be refused."""
    path = tmp_path / "images.yaml"
    path.write_text(OPS)
    file = wiring.load(str(path), ())
    load = f"penstock loads start {path} --pipeline images --stream images"
    of_ops = f"Next: fix the cause. Ops are not replayed; {load} reads the tables again"
    assert _next_steps(file, "images", {"images": 2}) == [of_ops]
    replay = f"Next: fix the cause, then penstock quarantine replay {path} --pipeline images"
    assert _next_steps(file, "images", {"log": 2}) == [replay]
    assert _next_steps(file, "images", {"images": 1, "log": 2}) == [f"{replay} --stream log", of_ops]
