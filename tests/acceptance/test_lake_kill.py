"""SIGKILL from outside at every point of a run into the lake; rows arrive and change before the restart."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from penstock.lake.lake import Lake
from penstock.lake.options import LakeOptions
from penstock.lake.tables import load_table
from tests.acceptance.matrix import ONCE
from tests.acceptance.shop import Shop
from tests.harness.faults import LAKE_RUN_POINTS, MERGE_RUN_POINTS
from tests.plain_spark import FOR_SMALL_TABLES

PIPELINE = """
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: lake}
    slice_bytes: 65536
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
"""


def open_shop(database: str, folder: Path) -> Shop:
    shop = Shop.open(database, folder)
    (folder / "shop.yaml").write_text(PIPELINE)
    return shop


def landed(folder: Path) -> list[tuple[int, int, object]]:
    """(number, id, version) of every row of the log, in the order of the numbers."""
    table = load_table(Lake.from_options(LakeOptions(), folder=str(folder), pipeline="shop"), "orders")
    assert table is not None
    seen = table.scan(selected_fields=("_ingest_seq", "id", "updated_at")).to_arrow().sort_by("_ingest_seq")
    return list(zip(*(seen.column(name).to_pylist() for name in ("_ingest_seq", "id", "updated_at")), strict=True))


def check(shop: Shop, folder: Path) -> None:
    """Every version at most once, the newest of every order there, and no number twice."""
    rows = landed(folder)
    assert len({number for number, _, _ in rows}) == len(rows)
    doubled = [row for row, times in Counter((id_, at) for _, id_, at in rows).items() if times > 1]
    assert doubled == []
    with psycopg.connect(shop.url) as db:
        wanted: dict[int, object] = dict(db.execute("select id, updated_at from orders").fetchall())
    assert {id_: at for _, id_, at in rows} == wanted


#: what lies between the intent and the mark; the steps around it are tried with files, whatever the sink
POINTS = LAKE_RUN_POINTS[LAKE_RUN_POINTS.index("gate.intended") :]
#: in the first slice the table is made; the second one finds it
CELLS = [(point, 1 if point in ONCE else 2) for point in POINTS]
CELLS += [(point, 1) for point in ("lake.part_written", "lake.landed")]


@pytest.mark.parametrize(("point", "nth"), CELLS)
def test_killed_at(point: str, nth: int, database: str, tmp_path: Path) -> None:
    shop = open_shop(database, tmp_path)
    found = shop.command.kill_at(point, "run", "shop.yaml", nth=nth)
    assert found["point"] == point
    shop.arrive(3001, 3500)
    shop.change(every=7, at=1)
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    check(shop, tmp_path)
    data = tmp_path / "lake" / "shop" / "orders" / "data"
    table = load_table(Lake.from_options(LakeOptions(), folder=str(tmp_path), pipeline="shop"), "orders")
    assert table is not None
    named = {Path(task.file.file_path).name for task in table.scan().plan_files()}
    assert {path.name for path in data.iterdir()} == named, "what the killed run left is swept"


def test_killed_inside_a_merge(database: str, tmp_path: Path) -> None:
    """At every point that only a merge has; each time keys that are there already change before the restart."""
    shop = Shop.open(database, tmp_path, rows=200, mover="spark")
    merging = PIPELINE.replace("tiebreaker: id", "tiebreaker: id, mode: merge")
    (tmp_path / "shop.yaml").write_text(f"spark: {{config: {json.dumps(FOR_SMALL_TABLES)}}}\n{merging}")
    first = shop.command.run("run", "shop.yaml")
    assert first.code == 0, first.err
    points = [point for point in MERGE_RUN_POINTS if point not in LAKE_RUN_POINTS]
    for number, point in enumerate(points):
        shop.change(every=3 + number, at=number)
        assert shop.command.kill_at(point, "run", "shop.yaml")["point"] == point
    shop.change(every=7, at=len(points))
    shop.arrive(201, 250)
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    rows = landed(tmp_path)
    with psycopg.connect(shop.url) as db:
        wanted = db.execute("select id, updated_at from orders order by id").fetchall()
    assert sorted((id_, at) for _, id_, at in rows) == wanted, "one row for each key, the newest one"
    assert len({number for number, _, _ in rows}) == len(rows)
