"""`penstock verify` of a lake by Spark: keyed tables and logs, all types, tombstones, marks of deletes, repairs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.harness.doubles import LoopMover
from typer.testing import CliRunner, Result

from penstock import wiring
from penstock.cli import app
from penstock.links.spark.runtime import SparkRuntime
from penstock.links.spark.session_provider import SparkSessionProvider

# PySpark leaves the socket of a collected answer to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

FILE = """\
pipelines:
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: lake, warehouse: "{folder}/lake"}}
    streams:
      merged: {{table: orders, {cursor}, mode: merge, newer_than: updated_at}}
      marked: {{table: orders, {cursor}, mode: merge, deletes: soft, deleted_at: gone_at}}
      logged: {{table: orders, {cursor}}}
      letters: {{{cursor}, mode: merge}}
"""
CURSOR = 'cursor: updated_at, tiebreaker: [{key}], horizon: {{method: "off"}}'
TABLES = """
CREATE TABLE orders (
    id int, at timestamp, note text, amount numeric(9,2), big numeric(38,10), n smallint, price real,
    moment timestamptz, day date, time time, raw bytea, flag boolean, code uuid, tags text[],
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (id, at)
);
CREATE INDEX ON orders (updated_at, id, at);
CREATE TABLE letters (id text PRIMARY KEY, updated_at timestamptz NOT NULL);
CREATE INDEX ON letters (updated_at, id);
INSERT INTO letters SELECT chr(n), '2026-01-01' FROM generate_series(33, 400) n WHERE n NOT BETWEEN 127 AND 159;
INSERT INTO letters SELECT id, '2026-01-01' FROM unnest(ARRAY['😀', E'\\ue000', 'it''s \\', '']) id;
CREATE FUNCTION fill(first int, last int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO orders
    SELECT n / 3, '2026-01-01'::timestamp + n * interval '0.5 s', CASE WHEN n % 7 <> 0 THEN 'é' || n END, n / 3.0,
           n / 7.0, n, n / 7.0, '2026-03-29 00:00:00+00'::timestamptz + n * interval '20.000001 minute',
           '0001-01-01'::date + n * 7000, '00:00:00.5'::time + n * interval '1 minute', decode(to_hex(n + 4096), 'hex'),
           n % 2 = 0, md5(n::text)::uuid, ARRAY[n::text], '2026-01-01'::timestamptz + n * interval '1 s'
    FROM generate_series(first, last) n
$$;
SELECT fill(1, 400)
"""


@dataclass(frozen=True)
class LakeShop:
    url: str
    path: Path

    def execute(self, query: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(query.encode())

    def penstock(self, *words: str) -> Result:
        return CliRunner().invoke(app, [words[0], str(self.path), *words[1:]], prog_name="penstock")

    def verify(self, *words: str) -> dict[str, Any]:
        done = self.penstock("verify", "--json", *words)
        assert done.stdout, (done.stderr, done.exception)
        document = json.loads(done.stdout)
        assert document["exit_code"] == done.exit_code
        [pipeline] = document["pipelines"]
        assert pipeline["problem"] is None, pipeline
        return {stream["stream"]: stream for stream in pipeline["streams"]}


@pytest.fixture
def shop(
    database: str, tmp_path: Path, spark_provider: SparkSessionProvider, monkeypatch: pytest.MonkeyPatch
) -> LakeShop:
    class UpkeepTable(SparkRuntime):
        def close(self) -> None:
            return None

    runtime = UpkeepTable(spark_provider, lambda _: LoopMover())
    monkeypatch.setattr(wiring, "runtime_for", lambda *_, **__: runtime)
    orders, letters = CURSOR.format(key="id, at"), CURSOR.format(key="id")
    text = FILE.replace("letters: {{{cursor}", "letters: {{{letters}")
    path = tmp_path / "shop.yaml"
    path.write_text(text.format(url=database, folder=tmp_path, cursor=orders, letters=letters))
    return LakeShop(database, path)


def kinds(streams: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {
        name: {kind: len(keys) for kind, keys in stream["differences"].items() if keys}
        for name, stream in streams.items()
    }


def test_a_lake_is_compared_and_repaired(
    shop: LakeShop, spark_provider: SparkSessionProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.core.comparing.narrow.__kwdefaults__", {"leaf_rows": 250, "fanout": 2})
    spark_provider.session().conf.set("spark.sql.session.timeZone", "America/New_York")
    shop.execute(TABLES)
    done = shop.penstock("run")
    assert done.exit_code == 0, done.stderr
    streams = shop.verify()
    assert kinds(streams) == {"merged": {}, "marked": {}, "logged": {}, "letters": {}}
    assert streams["merged"]["rows"] == 400
    assert streams["merged"]["columns_not_compared"] == {
        "price": "Spark prints floats differently",
        "tags": "it is nested in the table",
    }

    # Deleted; changed without the cursor; late below the mark.
    shop.execute("DELETE FROM orders WHERE id = 5 OR note = 'é100'; DELETE FROM letters WHERE id IN ('é', 'B')")
    shop.execute("UPDATE orders SET moment = moment + interval '1 microsecond' WHERE note = 'é200'")
    shop.execute("UPDATE orders SET amount = NULL WHERE note = 'é300'; SELECT fill(401, 401)")
    shop.execute("UPDATE orders SET updated_at = '2026-01-01 00:00:05' WHERE note = 'é401'")
    shop.execute("INSERT INTO letters VALUES ('late', '2025-01-01')")
    found = kinds(shop.verify())
    everything = {"missing": 1, "stale": 2, "extra": 4}
    assert found == {
        "merged": everything,
        "marked": everything,
        "logged": {"missing": 3},
        "letters": {"missing": 1, "extra": 2},
    }
    repaired = shop.verify("--repair", "--yes")
    assert {stream["left_after_repair"] for stream in repaired.values()} == {0}
    again = shop.verify()
    assert kinds(again) == {"merged": {}, "marked": {}, "logged": {}, "letters": {}}
    # Tombstones, marked rows and older versions are not compared.
    assert {name: stream["rows"] for name, stream in again.items()} == {
        "merged": 397,
        "marked": 397,
        "logged": 397,
        "letters": again["letters"]["rows"],
    }
    shop.execute("DELETE FROM letters WHERE id IN ('a', '😀'); DELETE FROM orders WHERE id = 9")
    text = shop.path.read_text()
    shop.path.write_text(text.replace("mode: merge", "mode: merge, find_deletes: compare, find_deletes_rows: 1000"))
    done = shop.penstock("run")
    assert (done.exit_code, done.stderr) == (0, "")
    found = kinds(shop.verify())
    assert found == {"merged": {}, "marked": {}, "logged": {}, "letters": {}}
    assert [view.name for view in spark_provider.session().catalog.listTables() if view.isTemporary] == []
