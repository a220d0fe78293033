"""A first load by the command, and going back by a value of the cursor: a real table, a real store and real files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from tests.harness.doubles import LoopMover
from typer.testing import CliRunner, Result

from penstock import wiring
from penstock.cli import app

FILE = """\
pipelines:
  shop:
    source: {{type: postgres, url: "{url}", horizon: {{method: off}}}}
    sink: {{type: files, directory: out, format: ndjson}}
    slice_bytes: 4 KiB
    streams:
      orders: {{cursor: at, tiebreaker: id, first_load: keys, columns: [id]}}
"""
TABLE = """
CREATE TABLE orders (id int PRIMARY KEY, at timestamptz NOT NULL); CREATE INDEX ON orders (at, id);
INSERT INTO orders SELECT g, '2026-01-01Z'::timestamptz - g * interval '1 minute' FROM generate_series(1, 1500) g;
"""


@pytest.fixture(autouse=True)
def _shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(TABLE.encode())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    Path("shop.yaml").write_text(FILE.format(url=database))


def penstock(*words: str) -> Result:
    done = CliRunner().invoke(app, words, prog_name="penstock")
    assert done.exit_code == 0, done.output
    return done


def delivered() -> Counter[int]:
    lines = [line for path in Path("out", "orders").glob("*.ndjson") for line in path.read_text().splitlines()]
    return Counter(json.loads(line)["id"] for line in lines)


def test_a_load_in_slices_and_back_to_a_value_of_the_cursor() -> None:
    shown = penstock("plan", "shop.yaml").stdout
    assert "first load, up to id 1024" in shown
    assert penstock("run", "shop.yaml", "--max-rows", "700").exit_code == 0
    assert delivered() == Counter(range(1, 701))
    assert "first load, up to id 700" in penstock("status", "shop.yaml").stdout
    penstock("run", "shop.yaml")
    assert delivered() == Counter(range(1, 1501))
    done = penstock("rewind", "shop.yaml", "--to", "2025-12-31 22:00Z", "--stream", "orders", "--yes")
    assert done.stdout.splitlines()[0] == (
        "shop/orders: from up to at 2025-12-31 23:59:00+00, id 1 to up to at 2025-12-31 21:59:00+00, id 121; "
        "the next run continues from there"
    )
    penstock("run", "shop.yaml")
    assert delivered() == Counter(range(1, 1501)) + Counter(range(1, 121))


def test_back_to_the_beginning_is_a_first_load_again() -> None:
    penstock("run", "shop.yaml")
    done = penstock("rewind", "shop.yaml", "--to", "-infinity", "--yes")
    assert "to the beginning; the next run continues from there" in done.stdout
    penstock("run", "shop.yaml", "--max-rows", "700")
    assert "first load, up to id 700" in penstock("status", "shop.yaml").stdout
    penstock("run", "shop.yaml")
    assert delivered() == Counter(list(range(1, 1501)) * 2)
