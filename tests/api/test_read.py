"""`penstock.read` on real Spark: a stream as a DataFrame, equal to its table, fixed by the call, nothing moved."""

from __future__ import annotations

import decimal
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.plain_spark import FOR_SMALL_TABLES, small_spark
from tests.sources.lake.lakes import LakeWorld, orders

import penstock
from penstock.errors import ConfigError, InputError, StreamRefused
from penstock.links.spark.jvm import Jvm

TOP = Path(__file__).parents[2]
# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

FILE = """
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: out}
    slice_bytes: 65536
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
      kinds: {}
"""
COLUMNS = "id, amount, note, day, at_noon, local_time, data, ok, updated_at"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The user's own session: nothing of penstock's in its settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(TOP))
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.driver.memory", "512m")
            .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
            .config("spark.sql.session.timeZone", "UTC")
            .config(map=dict(FOR_SMALL_TABLES))
            .getOrCreate()
        )
        yield session
        session.stop()
        jvm = Jvm.current()
        assert jvm is not None
        jvm.end()  # or the next one of this process would be started in it, without a library of ours


@pytest.fixture
def shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(
            """create table orders (id bigint primary key, amount numeric(12,2), note text, day date,
               at_noon timestamp, local_time time, data bytea, ok boolean, updated_at timestamptz not null);
               create index on orders (updated_at, id);
               create table kinds (name text primary key, rank int)"""
        )
        db.execute("insert into kinds select 'kind ' || g, g from generate_series(1, 20) g")
    arrive(database, 1, 3000)
    return database


def arrive(database: str, first: int, last: int) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(
            """insert into orders select g, g / 100.0, nullif('note ' || g, 'note 7'),
               date '2026-01-01' + g::int %% 300,
               timestamp '2026-01-01 12:00' + g * interval '1 second', time '10:00' + (g %% 60) * interval '1 second',
               decode(md5(g::text), 'hex'), g %% 2 = 0, timestamptz '2026-01-01 00:00+00' + g * interval '1 second'
               from generate_series(%s::bigint, %s::bigint) g""",
            (first, last),
        )
        db.execute("analyze orders")


def table(database: str, last: int) -> list[tuple[Any, ...]]:
    with psycopg.connect(database) as db:
        db.execute("set timezone = 'UTC'")
        return db.execute(f"select {COLUMNS} from orders where id <= {last} order by id").fetchall()


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def as_spark(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """As PySpark gives the same values: a time of day is a text, a moment is naive, in the process's zone."""
    *plain, local_time, data, ok, moment = row
    return (*plain, local_time.isoformat("microseconds"), bytearray(data), ok, moment.astimezone().replace(tzinfo=None))


# ---------------------------------------------------------------- postgres


def test_it_equals_the_table_and_has_its_types(spark: SparkSession, shop: str) -> None:
    frame = penstock.read(spark, "shop.yaml", "orders")
    assert rows(frame) == [as_spark(row) for row in table(shop, 3000)]
    assert frame.rdd.getNumPartitions() > 1, "read in parts"
    assert [field.simpleString() for field in frame.schema] == [
        "id:bigint",
        "amount:decimal(12,2)",
        "note:string",
        "day:date",
        "at_noon:timestamp_ntz",
        "local_time:string",
        "data:binary",
        "ok:boolean",
        "updated_at:timestamp",
    ]
    first = frame.where("id = 8").first()
    assert first is not None
    assert (first.amount, first.day) == (decimal.Decimal("0.08"), date(2026, 1, 9))
    assert first.at_noon.isoformat() == "2026-01-01T12:00:08"
    assert first.updated_at.astimezone(UTC) == datetime(2026, 1, 1, 0, 0, 8, tzinfo=UTC)
    assert not Path("out").exists()
    assert not Path(".penstock").exists()


def test_two_actions_give_the_same_rows_although_new_ones_have_come(spark: SparkSession, shop: str) -> None:
    frame = penstock.read(spark, "shop.yaml", "orders")
    assert frame.count() == 3000
    arrive(shop, 3001, 3500)
    assert frame.count() == 3000
    assert penstock.read(spark, "shop.yaml", "orders").count() == 3500


def test_after_a_mark_only_what_came_since(spark: SparkSession, shop: str) -> None:
    penstock.sync("shop.yaml", streams=["orders"])
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", "state", "show", "shop.yaml", "--json"],
        capture_output=True,
        check=True,
        env=dict(os.environ),
    )
    (pipeline,) = json.loads(shown.stdout)["pipelines"]
    [mark] = [stream["mark"] for stream in pipeline["streams"] if stream["stream"] == "orders"]
    assert penstock.read(spark, "shop.yaml", "orders", after=mark).count() == 0
    arrive(shop, 3001, 3010)
    since = penstock.read(spark, "shop.yaml", "orders", after=mark)
    assert sorted(row.id for row in since.select("id").collect()) == list(range(3001, 3011))
    assert spark.range(3).count() == 3, "a run in this process has left the user's session alone"
    with pytest.raises(StreamRefused, match="the stored mark does not fit"):
        penstock.read(spark, "shop.yaml", "orders", after={"nonsense": 1})


def test_a_stream_without_a_cursor_is_spooled_in_one_snapshot(spark: SparkSession, shop: str) -> None:
    frame = penstock.read(spark, "shop.yaml", "kinds", spool="copies")
    (copy,) = Path("copies").iterdir()
    assert [path.suffix for path in copy.iterdir() if path.suffix == ".parquet"]
    with psycopg.connect(shop, autocommit=True) as db:
        db.execute("update kinds set rank = 0")
    assert rows(frame) == sorted((f"kind {n}", n) for n in range(1, 21))
    assert penstock.read(spark, "shop.yaml", "kinds").where("rank > 0").count() == 0


def test_a_spool_holds_what_an_update_would_move(spark: SparkSession, shop: str) -> None:
    frame = penstock.read(spark, "shop.yaml", "orders", spool="copies")
    with psycopg.connect(shop, autocommit=True) as db:
        db.execute("update orders set updated_at = now() where id <= 10")
    assert frame.count() == 3000


def test_spools_are_removed_at_the_end_of_the_process(shop: str) -> None:
    script = """
import penstock
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(penstock.read(spark, "shop.yaml", "kinds", spool="copies").count())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **small_spark(Path("conf")), "PYSPARK_PYTHON": sys.executable},
    )
    assert done.stdout == "20\n"
    assert list(Path("copies").iterdir()) == []


def test_a_source_as_a_mapping(spark: SparkSession, shop: str) -> None:
    source = {"type": "postgres", "url": shop, "streams": {"orders": {"cursor": "id", "unique": True}}}
    assert penstock.read(spark, source, "orders").count() == 3000
    with pytest.raises(ConfigError, match="did you mean 'cursor'"):
        penstock.read(spark, source | {"streams": {"orders": {"cursr": "id"}}}, "orders")


def test_an_empty_table_has_its_columns(spark: SparkSession, shop: str) -> None:
    with psycopg.connect(shop, autocommit=True) as db:
        db.execute("truncate orders")
    frame = penstock.read(spark, "shop.yaml", "orders")
    assert (frame.count(), frame.columns[:2]) == (0, ["id", "amount"])
    with_changes = penstock.read(spark, "shop.yaml", "orders", changes=True)
    assert with_changes.columns[-1] == "_change"


def test_columns_whose_type_spark_does_not_have_are_strings(spark: SparkSession, shop: str) -> None:
    with psycopg.connect(shop, autocommit=True) as db:
        db.execute("create table papers (id uuid primary key, content jsonb)")
        db.execute("""insert into papers values ('00000000-0000-0000-0000-00000000002a', '{"pages": 7}')""")
    frame = penstock.read(spark, "shop.yaml", "papers", overrides={"streams.papers": {}})
    assert rows(frame) == [("00000000-0000-0000-0000-00000000002a", '{"pages": 7}')]


def test_bad_input(spark: SparkSession, shop: str) -> None:
    with pytest.raises(StreamRefused, match="there is no stream 'ordes'; did you mean 'orders'") as refused:
        penstock.read(spark, "shop.yaml", "ordes")
    assert (refused.value.pipeline, refused.value.stream) == ("shop", "ordes")
    with pytest.raises(InputError, match="no pipeline 'shp'"):
        penstock.read(spark, "shop.yaml", "orders", pipeline="shp")


# ---------------------------------------------------------------- the lake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeWorld:
    monkeypatch.chdir(tmp_path)
    made = LakeWorld(tmp_path)
    made.land(orders(1, 40))
    made.land(orders(41, 60), orders(61, 70))
    Path("lake.yaml").write_text(
        """
pipelines:
  out:
    source: {type: lake, namespace: shop}
    sink: {type: files, directory: out}
    streams:
      orders: {}
"""
    )
    return made


def listing(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_lake_table_without_its_internal_columns_and_nothing_is_written(spark: SparkSession, lake: LakeWorld) -> None:
    before = listing(lake.folder)
    frame = penstock.read(spark, "lake.yaml", "orders")
    assert frame.columns == ["id", "note"]
    assert rows(frame) == [(n, f"note {n}") for n in range(1, 71)]
    lake_files = {path: at for path, at in listing(lake.folder).items() if not path.endswith(("-wal", "-shm"))}
    assert lake_files == before


def test_an_id_of_a_lake_table_is_a_string(spark: SparkSession, lake: LakeWorld) -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(15) + b"\x2a", None], pa.binary(16)))
    lake.land(pa.table({"id": pa.array([1, 2], pa.int64()), "paper": ids}), table="papers")
    frame = penstock.read(spark, "lake.yaml", "papers", overrides={"streams.papers": {}})
    assert [row.paper for row in frame.orderBy("id").collect()] == ["00000000-0000-0000-0000-00000000002a", None]


def test_a_lake_table_with_a_filter_and_some_columns(spark: SparkSession, lake: LakeWorld) -> None:
    narrowed = {"streams.orders.columns": ["id"], "streams.orders.where": "id > 38 and note != 'note 50'"}
    frame = penstock.read(spark, "lake.yaml", "orders", overrides=narrowed)
    assert rows(frame) == [(n,) for n in range(39, 71) if n != 50]


def test_a_lake_frame_stays_what_it_was(spark: SparkSession, lake: LakeWorld) -> None:
    frame = penstock.read(spark, "lake.yaml", "orders")
    assert frame.count() == 70
    lake.land(orders(71, 99))
    assert frame.count() == 70
    assert penstock.read(spark, "lake.yaml", "orders").count() == 99


def test_deletes_are_left_out_unless_asked_for(spark: SparkSession, lake: LakeWorld) -> None:
    changes = orders(1, 5).append_column("_change", pa.array(["upsert"] * 3 + ["delete"] * 2))
    lake.land(changes, table="events", changes=True)
    events: dict[str, Any] = {"streams.events": {}}
    plain = penstock.read(spark, "lake.yaml", "events", overrides=events)
    assert (plain.columns, sorted(row.id for row in plain.collect())) == (["id", "note"], [1, 2, 3])
    told = penstock.read(spark, "lake.yaml", "events", changes=True, overrides=events)
    assert sorted((row.id, row._change) for row in told.collect()) == [
        (1, "upsert"),
        (2, "upsert"),
        (3, "upsert"),
        (4, "delete"),
        (5, "delete"),
    ]
    log = penstock.read(spark, "lake.yaml", "orders", changes=True)
    assert {row._change for row in log.collect()} == {"upsert"}


def test_rows_without_a_place_are_not_given_one_by_a_read(spark: SparkSession, lake: LakeWorld) -> None:
    lake.append(orders(100, 105, _ingest_seq=pa.array(range(1, 7), pa.int64())))
    before = listing(lake.folder)
    with pytest.raises(StreamRefused, match="have no `_ingest_seq` yet"):
        penstock.read(spark, "lake.yaml", "orders")
    after = {path: at for path, at in listing(lake.folder).items() if not path.endswith(("-wal", "-shm"))}
    assert after == before
