"""Columns that change at the source: each change, under each policy, into files and into the lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from psycopg.rows import dict_row

from penstock import wiring
from penstock.lake.lake import Lake
from penstock.lake.options import LakeOptions
from penstock.lake.tables import load_table
from penstock.links.spark.runtime import SparkRuntime
from penstock.links.spark.session_provider import SparkSessionProvider
from tests.acceptance.drifting import Ground, same
from tests.harness.doubles import LoopMover


@pytest.fixture(autouse=True)
def _moving_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())


@pytest.fixture(params=["files", "lake"])
def ground(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Ground:
    return Ground(database, tmp_path, request.param)


#: a change, the lines that a run says about it, the type of a column afterwards in the sink
EVOLVED: dict[str, tuple[str, list[tuple[str, str]], tuple[str, str]]] = {
    "added": (
        "ALTER TABLE orders ADD COLUMN tag text DEFAULT 'tag ' || random()",
        [("info", "column tag is new (text): the sink gets it")],
        ("tag", "string"),
    ),
    "dropped": (
        "ALTER TABLE orders DROP COLUMN note",
        [("warning", "column note (text) is gone: it stays in the sink, and rows from now on bring no value for it")],
        ("note", "string"),
    ),
    "renamed": (
        "ALTER TABLE orders RENAME COLUMN label TO remark",
        [
            (
                "warning",
                "column label (text) is gone: it stays in the sink, and rows from now on bring no value for it",
            ),
            ("info", "column remark is new (text): the sink gets it"),
        ],
        ("remark", "string"),
    ),
    "widened": (
        "ALTER TABLE orders ALTER COLUMN amount TYPE bigint, ALTER amount SET DEFAULT 5000000000 + random() * 1000",
        [
            (
                "info",
                "column amount was integer and is bigint now, which is wider: the sink's column becomes wider",
            )
        ],
        ("amount", "int64"),
    ),
    "narrowed": (
        "ALTER TABLE orders ALTER COLUMN big TYPE integer",
        [
            (
                "warning",
                "column big was bigint and is integer now, which is narrower: the sink's column stays as wide as it is",
            )
        ],
        ("big", "int64"),
    ),
}


def test_evolve_follows_every_change(ground: Ground) -> None:
    ground.write("evolve", dropped=["label"])
    ground.ran()
    before = ground.landed()
    same(before, ground.source(range(1, 6)))
    for statement, lines, (column, type_) in EVOLVED.values():
        ground.sql(statement)
        ids = ground.arrive(3)
        assert ground.ran().logs == lines
        found = ground.landed()
        same(found, before)
        same(found, ground.source(ids))
        assert ground.type(column) == type_
        before = found
    ids = ground.arrive(3)
    assert ground.ran().logs == [], "said once"
    same(ground.landed(), before)
    same(ground.landed(), ground.source(ids))


def test_a_change_is_shown_before_it_comes(ground: Ground) -> None:
    ground.ran()
    ground.sql("ALTER TABLE orders DROP COLUMN note")
    assert ground.ran().logs == [], "without a new row there is no slice"
    ground.arrive(1)
    line = "column note (text) is gone: it stays in the sink, and rows from now on bring no value for it"
    assert line in ground.command("plan").out
    assert line in ground.command("check").out
    ground.ran()
    assert line not in ground.command("plan").out


def test_freeze_stops_until_a_change_is_accepted(ground: Ground) -> None:
    ground.ran()
    before = ground.landed()
    for change in ("added", "renamed", "narrowed"):
        statement, lines, _ = EVOLVED[change]
        ground.write("freeze")
        ids = ground.arrive(1)
        assert ground.ran().logs == [], "frozen against what was accepted last"
        before |= ground.source(ids)
        ground.sql(statement)
        ids = ground.arrive(2)
        refused = ground.run()
        assert refused.code == 2
        for _, line in lines:
            assert line.rpartition(": ")[0] in refused.error["reason"]
        assert "drift: evolve" in refused.error["next_step"]
        same(ground.landed(), before)
        ground.write("evolve", dropped=["label"])
        assert ground.ran().logs == lines
        same(ground.landed(), ground.source(ids))
        before = ground.landed()
    ground.write("freeze")
    ground.sql("ALTER TABLE orders ADD COLUMN other int")
    assert "column other is new (integer)" in ground.run().error["reason"], "even without a new row"
    assert "column other is new (integer)" in ground.command("check").out


@pytest.mark.parametrize(
    ("statement", "words", "shape"),
    [
        (
            "ALTER TABLE orders ALTER COLUMN amount DROP DEFAULT, ALTER COLUMN amount TYPE text",
            "column amount was integer and is text now",
            {"cast": {"amount": "int32"}},
        ),
        (
            "ALTER TABLE orders ALTER COLUMN big DROP DEFAULT, ALTER big TYPE timestamptz USING now()",
            "column big was bigint and is timestamp with time zone now",
            {"rename": {"big": "moment"}},
        ),
    ],
)
def test_another_type_is_refused_and_a_shape_is_the_way_out(
    ground: Ground, statement: str, words: str, shape: dict[str, Any]
) -> None:
    ground.ran()
    before = ground.landed()
    ground.sql(statement)
    ids = (
        ground.arrive(3, amount="(100 + g)::int") if "cast" not in shape else ground.arrive(3, amount="(100 + g)::text")
    )
    refused = ground.run()
    assert refused.code == 2
    assert words in refused.error["reason"]
    assert "shape: {cast: …}" in refused.error["next_step"]
    assert words in ground.command("check").out
    assert ground.landed() == before
    ground.write("evolve", shape=shape)
    ground.ran()
    found, wanted = ground.landed(), ground.source(ids)
    same(found, before)
    for row in wanted.values():
        row["amount"] = int(row["amount"])
        if "rename" in shape:
            row["moment"] = row.pop("big")
    same(found, wanted)


def test_a_column_that_comes_back_has_no_old_values(ground: Ground) -> None:
    ground.ran()
    before = ground.landed()
    ground.sql("ALTER TABLE orders DROP COLUMN note")
    without = ground.arrive(3)
    ground.ran()
    ground.sql("ALTER TABLE orders ADD COLUMN note int DEFAULT 7")
    ground.arrive(3)
    refused = ground.run()
    assert refused.code == 2
    assert "column note was text and is integer now" in refused.error["reason"]
    ground.sql("ALTER TABLE orders DROP COLUMN note", "ALTER TABLE orders ADD COLUMN note text DEFAULT 'back'")
    again = ground.arrive(3)
    ground.ran()
    found = ground.landed()
    same(found, before)
    assert {found[id_]["note"] for id_ in without} == {None}
    assert {found[id_]["note"] for id_ in again} == {"back"}
    same(found, ground.source(range(again.start - 3, again.stop)))


def test_several_changes_at_once(ground: Ground) -> None:
    ground.ran()
    before = ground.landed()
    ground.sql(
        "ALTER TABLE orders DROP COLUMN note, ADD COLUMN tag text DEFAULT 'x', ALTER COLUMN amount TYPE bigint,"
        " ALTER COLUMN big TYPE integer"
    )
    ids = ground.arrive(5)
    logs = ground.ran().logs
    assert [level for level, _ in logs] == ["info", "warning", "warning", "info"]
    same(ground.landed(), before)
    same(ground.landed(), ground.source(ids))


def test_a_key_that_becomes_wider_goes_on(ground: Ground) -> None:
    """`id integer` that has run full: the most common change of all."""
    ground.ran()
    ground.sql("ALTER TABLE orders ALTER COLUMN id TYPE bigint")
    ground.rows = 2**31
    ids = ground.arrive(3)
    ground.ran()
    same(ground.landed(), ground.source(ids))
    assert ground.type("id") == "int64"


# ---------------------------------------------------------------- quarantine


def recovered(row: dict[str, Any], texts: dict[str, str | None]) -> dict[str, str | None]:
    """A row's values as Postgres prints them, from its columns and from what was put aside."""
    aside: dict[str, str] = json.loads(row["_quarantined"] or "{}")
    plain = {name: str(row[name]) for name in texts if row.get(name) is not None}
    assert not plain.keys() & aside.keys(), "a value is in one place"
    return dict.fromkeys(texts) | plain | aside


def test_quarantine_keeps_the_columns_and_every_value(ground: Ground) -> None:
    ground.ran()
    before = ground.landed()
    types = {name: ground.type(name) for name in before[1]}
    ground.write("quarantine")
    ground.sql(
        "ALTER TABLE orders DROP COLUMN note, ADD COLUMN tag text DEFAULT 'a \"tag\"', ALTER amount TYPE bigint,"
        " ALTER COLUMN big DROP DEFAULT, ALTER COLUMN big TYPE text"
    )
    fits, wide, nothing = (
        ground.arrive(2, amount="5", big="'x' || g"),
        ground.arrive(2, amount="5000000000 + g", big="NULL", tag="NULL"),
        ground.arrive(1, amount="NULL", big="NULL", tag="NULL"),
    )
    done = ground.ran()
    assert all(level == "warning" for level, _ in done.logs)
    assert done.lines[-1] == (
        "3 columns do not fit the sink (amount, big, tag): values are stored in its column _quarantined"
    )
    found = ground.landed()
    same(found, before)
    assert {name: ground.type(name) for name in types} == types
    names = ("amount", "big", "tag", "label")
    with psycopg.connect(ground.url, row_factory=dict_row) as db:
        texts = db.execute(f"SELECT id, {', '.join(f'{name}::text' for name in names)} FROM orders WHERE id > 5")
        for row in texts.fetchall():
            id_ = row.pop("id")
            assert recovered(found[id_], row) == row
            assert found[id_]["note"] is None
    assert [found[id_]["amount"] for id_ in (*fits, *wide)] == [5, 5, None, None]
    assert [found[id_]["_quarantined"] for id_ in nothing] == [None]
    more = ground.arrive(1)
    assert ground.ran().lines == done.lines[-1:], "as long as values are put aside it is said in every run"
    assert "values that do not fit are stored in _quarantined: amount, big, tag" in ground.command("status").out
    ground.write("evolve")
    assert "column big was bigint and is text now" in ground.run().error["reason"]
    ground.sql("ALTER TABLE orders DROP COLUMN big")
    last = ground.arrive(2)
    assert "column tag is new (text): the sink gets it" in ground.ran().lines
    found = ground.landed()
    same(found, ground.source(last))
    assert [json.loads(found[id_]["_quarantined"]) for id_ in more] == [{"tag": 'a "tag"'}]


# ---------------------------------------------------------------- while a slice is open


def test_an_open_slice_is_finished_with_what_is_there(ground: Ground) -> None:
    ground.ran()
    first = ground.arrive(3)
    ground.broken()
    ground.sql("ALTER TABLE orders DROP COLUMN note, ALTER COLUMN amount TYPE bigint, ADD COLUMN tag text DEFAULT 'x'")
    ground.write("freeze")
    refused = ground.run()
    assert refused.code == 2
    assert "have changed while slice 2 is open: column amount was integer and is bigint now" in refused.error["reason"]
    ground.write("evolve")
    second = ground.arrive(3, amount="5000000000 + g")
    lines = ground.ran().lines
    assert lines[:2] == [
        "slice 2: column amount was integer and is bigint now: it is integer in this slice",
        "slice 2: column note (text) was dropped: it is NULL in this slice",
    ]
    assert len(lines) == 5, "and for the slice after it: wider, gone, new"
    found = ground.landed()
    wanted = ground.source(range(first.start, second.stop))
    for id_ in first:
        del wanted[id_]["tag"]
    same(found, wanted)


def test_a_column_renamed_under_an_open_slice_loses_no_value(ground: Ground) -> None:
    ground.ran()
    ids = ground.arrive(3)
    ground.broken()
    ground.sql("ALTER TABLE orders RENAME COLUMN label TO remark")
    refused = ground.run()
    assert refused.code == 2
    assert "label of public.orders, which was dropped (perhaps it was renamed to remark)" in refused.error["reason"]
    assert "penstock state recover" in refused.error["next_step"]
    assert ground.command("state recover", "--yes").code == 0
    refused = ground.run()
    assert refused.code == 2
    assert "column label is gone, and remark of its type is new" in refused.error["reason"]
    assert "`shape: {rename: {remark: label}}`" in refused.error["next_step"]
    assert "`dropped: [label]`" in ground.command("check").out
    ground.write("evolve", shape={"rename": {"remark": "label"}})
    assert ground.ran().logs == [], "the sink's column goes on"
    wanted = ground.source(ids)
    same(ground.landed(), {id_: {"label": row.pop("remark"), **row} for id_, row in wanted.items()})


def test_a_table_that_grew_for_a_slice_that_died_takes_the_next_one(ground: Ground) -> None:
    """In the lake the new column is there before the rows: harmless, also if the source has dropped it again."""
    ground.ran()
    before = ground.landed()
    ground.sql("ALTER TABLE orders ADD COLUMN tag text DEFAULT 'x', ALTER COLUMN amount TYPE bigint")
    ids = ground.arrive(3)
    ground.broken()
    same(ground.landed(), before)
    ground.sql("ALTER TABLE orders DROP COLUMN tag")
    ground.ran()
    found = ground.landed()
    same(found, before)
    same(found, ground.source(ids))
    assert {found[id_]["tag"] for id_ in ids} == {None}


# ---------------------------------------------------------------- the lake, further

OUT = """
store: out.db
pipelines:
  out:
    source: {type: lake, namespace: shop}
    sink: {type: files, directory: exported}
    streams:
      orders: {drift: %s}
"""


def exported(folder: Path) -> dict[int, dict[str, Any]]:
    paths = sorted((folder / "exported" / "orders").glob("*.parquet"))
    schema = pa.unify_schemas([pq.read_schema(path) for path in paths], promote_options="permissive")
    return {row["id"]: row for row in ds.dataset(paths, schema=schema).to_table().to_pylist()}


def test_a_reader_of_the_lake_drifts_with_it(database: str, tmp_path: Path) -> None:
    ground = Ground(database, tmp_path, "lake")
    (tmp_path / "out.yaml").write_text(OUT % "evolve")
    ground.ran()
    assert ground.command("run", file="out.yaml").code == 0
    before = exported(tmp_path)
    ground.sql("ALTER TABLE orders DROP COLUMN note, ADD COLUMN tag text DEFAULT 'x', ALTER amount TYPE bigint")
    ids = ground.arrive(3, amount="5000000000 + g")
    ground.ran()
    (tmp_path / "out.yaml").write_text(OUT % "freeze")
    refused = ground.command("run", "--json", file="out.yaml")
    assert refused.code == 2
    for line in ("column amount was int and is long now, which is wider", "column tag is new (string)"):
        assert line in refused.error["reason"]
    (tmp_path / "out.yaml").write_text(OUT % "evolve")
    assert ground.command("run", file="out.yaml").code == 0
    same(exported(tmp_path), before)
    same(exported(tmp_path), ground.source(ids))


def test_a_column_that_was_dropped_in_the_lake_too_does_not_come_back(database: str, tmp_path: Path) -> None:
    ground = Ground(database, tmp_path, "lake")
    ground.ran()
    ground.sql("ALTER TABLE orders DROP COLUMN note")
    table = load_table(Lake.from_options(LakeOptions(), folder=str(tmp_path), pipeline="shop"), "orders")
    assert table is not None
    with table.update_schema() as update:
        update.delete_column("note")
    ids = ground.arrive(2)
    ground.ran()
    assert "note" not in ground.landed()[ids[0]]
    same(ground.landed(), ground.source(range(1, ids.stop)))


def test_a_keyed_and_partitioned_table_follows(
    database: str, spark_provider: SparkSessionProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = {"mode": "merge", "partition_by": ["bucket(4, id)"]}
    ground = Ground(database, tmp_path, "lake", stream)
    monkeypatch.setattr(
        wiring, "runtime_for", lambda *_, **__: SparkRuntime(spark_provider, lambda spark: wiring.make_mover(spark))
    )
    ground.ran()
    ground.sql(
        "ALTER TABLE orders DROP COLUMN note, ADD COLUMN tag text DEFAULT 'x', ALTER COLUMN amount TYPE bigint,"
        " ALTER COLUMN id TYPE bigint, ALTER COLUMN big TYPE integer"
    )
    ids = ground.arrive(3, amount="5000000000 + g")
    moved = "updated_at = updated_at + interval '1 hour'"
    ground.sql(f"UPDATE orders SET amount = 6000000000, {moved} WHERE id IN (2, 4)")
    ground.ran()
    found = ground.landed()
    untouched = ground.source(range(1, ids.stop))
    for id_ in (1, 3, 5):
        assert found[id_]["note"] is not None
        found[id_]["note"] = untouched[id_]["tag"] = None
    same(found, untouched)


def test_a_table_that_is_read_whole_is_as_it_is_now(database: str, tmp_path: Path) -> None:
    ground = Ground(database, tmp_path, "files")
    text = (tmp_path / "shop.yaml").read_text()
    whole = text.replace('"cursor": "updated_at", "tiebreaker": "id", ', "")
    assert whole != text
    (tmp_path / "shop.yaml").write_text(whole)
    ground.ran()
    ground.sql("ALTER TABLE orders DROP COLUMN note, ALTER COLUMN amount DROP DEFAULT, ALTER COLUMN amount TYPE text")
    assert ground.ran().logs == [
        ("warning", "column amount was integer and is text now: so is the new copy"),
        ("warning", "column note (text) is gone: the new copy is without its values"),
    ]
    found = ds.dataset(tmp_path / "out/orders/current").to_table()
    assert found.column_names == ["id", "updated_at", "amount", "big", "label"]
    assert found.schema.field("amount").type == pa.string()
    assert found.num_rows == 5
