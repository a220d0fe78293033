"""Tables that refer to each other: what is referred to comes first, however the file names the streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.harness.doubles import LoopMover
from typer.testing import CliRunner

from penstock import wiring
from penstock.cli import app

FILE = """\
pipelines:
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: postgres, url: "{url}", schema: copies}}
    slice_bytes: 4096
    streams:
      orders: {{cursor: id, unique: true}}
      customers: {{cursor: id, unique: true}}
"""
TABLES = """
    CREATE TABLE {schema}customers (id bigint PRIMARY KEY, name text NOT NULL);
    CREATE TABLE {schema}orders (id bigint PRIMARY KEY, customer bigint NOT NULL REFERENCES {schema}customers);
"""


class Busy:
    """The shop goes on: with every slice that is in comes a new customer with an order."""

    def __init__(self, url: str) -> None:
        self.url, self.next = url, 10_001

    def at(self, point: str, **_: Any) -> None:
        if point == "postgres.landed":
            with psycopg.connect(self.url) as db:
                db.execute("INSERT INTO customers VALUES (%s, 'new')", [self.next])
                db.execute("INSERT INTO orders VALUES (%s, %s)", [self.next, self.next])
            self.next += 1


@pytest.mark.usefixtures("in_folder")
def test_what_is_referred_to_comes_first(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(database)
    monkeypatch.setattr(wiring, "make_probe", lambda: busy)
    Path("shop.yaml").write_text(FILE.format(url=database))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(TABLES.format(schema="").encode())
        db.execute(b"CREATE SCHEMA copies;" + TABLES.format(schema="copies.").encode())
        db.execute("INSERT INTO customers SELECT g, 'old' FROM generate_series(1, 500) g")
        # The first orders are of the last customers.
        db.execute("INSERT INTO orders SELECT g, 501 - g FROM generate_series(1, 500) g")
    checked = CliRunner().invoke(app, ["check", "shop.yaml", "--verbose"])
    assert checked.stdout.count("begins when nothing is left of customers: its table refers to them") == 1
    done = CliRunner().invoke(app, ["run", "shop.yaml", "--plain"])
    assert done.exit_code == 0, done.output
    assert busy.next > 10_003, "there were several slices"
    with psycopg.connect(database) as db:
        counts = db.execute("SELECT (SELECT count(*) FROM copies.customers), (SELECT count(*) FROM copies.orders)")
        customers, orders = counts.fetchone() or (0, 0)
    assert (customers >= 500, orders >= 500) == (True, True)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
