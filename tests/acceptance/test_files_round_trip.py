"""Postgres → files → Postgres: what arrives equals the original by SQL. And what `state recover` gets back."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.harness.faults import Command

#: by column: its type, and two values beside NULL
TYPES = {
    "id": ("bigint", ("1", "2")),
    "small": ("smallint", ("-32768", "32767")),
    "whole": ("integer", ("-2147483648", "0")),
    "price": ("numeric(30,10)", ("12345678901234567890.0123456789", "-0.0000000001")),
    "share": ("double precision", ("0.1", "1e-300")),
    "ratio": ("real", ("0.1", "-3.4e38")),
    "paid": ("boolean", ("true", "false")),
    "note": ("text", ("''", "E'a \"b\",\\n\\r\\n\\té ü😀'")),
    "code": ("character varying(9)", ("'00123'", "' x '")),
    "day": ("date", ("'0001-01-01'", "'9999-12-31'")),
    "clock": ("time", ("'00:00'", "'23:59:59.999999'")),
    "local": ("timestamp", ("'0001-01-01 00:00'", "'2024-02-29 23:59:59.999999'")),
    "at": ("timestamptz", ("'0001-01-02 00:00Z'", "'2024-02-29 23:59:59.999999+05:30'")),
    "more": ("jsonb", ("'{\"a\": [1, 2.50, null]}'", "'\"text\"'")),
}
#: and what only Parquet holds
ONLY_PARQUET = {"raw": ("bytea", ("''", "'\\x00ff'")), "uid": ("uuid", (f"'{'0' * 32}'", f"'{'f' * 32}'"))}
DECLARED = (
    'columns: {id: int64, small: int16, whole: int32, price: "decimal(30,10)", share: float64, ratio: float32, '
    "paid: bool, note: string, code: string, day: date, clock: time, local: timestamp, at: timestamptz, more: json}"
)
PIPELINE = """\
pipelines:
  out:
    source: {{type: postgres, url: "${{DATABASE_URL}}"}}
    sink: {{type: files, directory: out, format: {format}, compression: {compression}}}
    streams:
      things: {{cursor: id, unique: true}}
  back:
    source: {{type: files, directory: out, settle: 0}}
    sink: {{type: postgres, url: "${{DATABASE_URL}}", schema: copies}}
    streams:
      things: {{path: things/**, format: {format}, {declared}}}
"""


def one(url: str, query: str) -> object:
    with psycopg.connect(url) as db:
        row = db.execute(query.encode()).fetchone()
    assert row
    return row[0]


def different(url: str, columns: str) -> object:
    """Rows that one of the tables has and the other has not."""
    sides = [f"SELECT {columns} FROM {name}.things" for name in ("public", "copies")]
    return one(
        url,
        " + ".join(f"(SELECT count(*) FROM ({a} EXCEPT ALL {b}) x)" for a, b in (sides, sides[::-1])).join(
            ("SELECT ", "")
        ),
    )


@pytest.mark.parametrize(("format_", "compression"), [("parquet", "zstd"), ("csv", "gzip"), ("ndjson", "none")])
def test_what_arrives_equals_the_original(format_: str, compression: str, database: str, tmp_path: Path) -> None:
    types = TYPES | (ONLY_PARQUET if format_ == "parquet" else {})
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE SCHEMA copies")
        columns = ", ".join(f"{name} {type_}" for name, (type_, _) in types.items())
        for schema in ("public", "copies"):
            db.execute(f"CREATE TABLE {schema}.things ({columns}, PRIMARY KEY (id))".encode())
        for at in (0, 1):
            values = ", ".join(found[at] for _, found in types.values())
            db.execute(f"INSERT INTO public.things VALUES ({values})".encode())
        db.execute("INSERT INTO public.things (id) SELECT generate_series(3, 500)")
    declared = DECLARED if format_ != "parquet" else "primary_key: [id]"
    text = PIPELINE.format(format=format_, compression=compression, declared=declared)
    if format_ != "parquet":
        text = text.replace("columns:", "primary_key: [id], columns:")
    if format_ == "ndjson":
        # The files sink writes JSON as a string, which holds every digit.
        text = text.replace("more: json", "more: string")
    (tmp_path / "shop.yaml").write_text(text)
    command = Command(tmp_path, environment={"DATABASE_URL": database})
    for more in ("INSERT INTO public.things (id, note) SELECT n, n::text FROM generate_series(501, 600) n", "SELECT 1"):
        done = command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert one(database, "SELECT count(*) FROM copies.things") == one(database, "SELECT count(*) FROM things")
        # json has no equality, and a float is compared by all its digits.
        compared = ", ".join(f"{name}::text" if name in ("more", "share", "ratio") else name for name in types)
        wrong = {name for name in compared.split(", ") if different(database, f"id, {name}")}
        assert not wrong
        assert different(database, compared) == 0
        with psycopg.connect(database, autocommit=True) as db:
            db.execute(more.encode())


def test_recover_gets_the_whole_set_back_from_the_sink(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE SCHEMA copies")
    (tmp_path / "in").mkdir()
    for number in range(200):
        (tmp_path / "in" / f"{number}.csv").write_text(f"id\n{number}\n")
    (tmp_path / "shop.yaml").write_text("""\
store: store.db
pipelines:
  shop:
    source: {type: files, directory: in, settle: 0}
    sink: {type: postgres, url: "${DATABASE_URL}", schema: copies}
    streams:
      things: {path: "*.csv", columns: {id: int64}, mode: append}
""")
    command = Command(tmp_path, environment={"DATABASE_URL": database})
    assert command.run("run", "shop.yaml").code == 0
    for path in tmp_path.glob("store.db*"):
        path.unlink()
    (tmp_path / "in" / "new.csv").write_text("id\n200\n")
    assert command.run("run", "shop.yaml").code == 1, "the store is behind the sink"
    done = command.run("state", "recover", "shop.yaml", "--yes")
    assert done.code == 0, done.err
    kept = tmp_path / ".penstock" / "spools" / "shop" / ".kept"
    kept.rename(tmp_path / "away")
    done = command.run("run", "shop.yaml")
    assert done.code == 2
    assert "it lists 200 files that were delivered, and without it they would be delivered again" in done.err
    (tmp_path / "away").rename(kept)
    done = command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    assert one(database, "SELECT count(*) - count(DISTINCT id) FROM copies.things") == 0
    assert one(database, "SELECT count(*) FROM copies.things") == 201
