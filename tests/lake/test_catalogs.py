"""Every kind of catalog: the real ones that can run here, with PyIceberg and Spark on the same tables; the rest refused
or configured as they must be."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.docs.pages import TOP, blocks
from tests.docs.test_walks import Walk
from tests.harness.postgres import PASSWORD, free_port
from tests.lake.lake_runs import World, rows
from tests.s3 import ACCESS_KEY, SECRET_KEY, S3Server

from penstock import config, sinks, sources
from penstock.errors import ConfigError, ConnectionFailed, InputError
from penstock.lake import tables
from penstock.lake.lake import Lake
from penstock.lake.metadata import list_tables, read_state
from penstock.lake.options import LakeOptions
from penstock.links.spark import SparkMover, SparkSessionProvider

# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """No connection to a database outlives it."""
    yield
    for each in tables._catalogs.values():
        each.close()
    tables._catalogs.clear()


def postgres_lake(folder: Path, url: str, **more: Any) -> dict[str, Any]:
    return {"warehouse": str(folder / "tables"), "catalog": {"type": "jdbc", "uri": url, **more}}


@pytest.fixture
def rest_lake(s3_server: S3Server) -> dict[str, Any]:
    at = s3_server.table_bucket(f"tables-{next(_numbers)}")
    properties = {**s3_server.properties, "credential": f"{ACCESS_KEY}:{SECRET_KEY}"}
    catalog = {"type": "rest", "name": f"served{next(_numbers)}", "uri": s3_server.catalog, "properties": properties}
    return {"warehouse": at, "catalog": catalog}


# ---------------------------------------------------------------- Postgres


def test_a_catalog_in_postgres(tmp_path: Path, database: str) -> None:
    world, found = World(tmp_path, postgres_lake(tmp_path, database)), rows(1, 2, 3)
    assert read_state(world.lake, "s") is None
    assert list_tables(world.lake) == []
    world.land(found)
    assert [row["key"] for row in world.export()] == [1, 2, 3]
    found.arrive(4)
    world.land(found)
    assert [row["key"] for row in world.export()] == [1, 2, 3, 4]
    assert list_tables(world.lake) == ["s"]
    assert not (tmp_path / "tables" / "catalog.db").exists()


def test_postgres_away_or_closed_to_us(tmp_path: Path, database: str) -> None:
    at = urlsplit(database)
    away = f"postgresql://penstock:{PASSWORD}@127.0.0.1:{free_port()}/x"
    closed = f"postgresql://penstock:not-the-one@127.0.0.1:{at.port}{at.path}"
    for url, why in ((away, "refused"), (closed, "password authentication failed")):
        world = World(tmp_path, postgres_lake(tmp_path, url))
        for ask in (lambda w=world: read_state(w.lake, "s"), lambda w=world: w.lake.catalog()):
            with pytest.raises(ConnectionFailed, match=why) as failed:
                ask()
            assert "the catalog 'lake' (jdbc postgresql://127.0.0.1:" in str(failed.value)
            assert "not-the-one" not in str(failed.value)
            assert url not in str(failed.value)


@pytest.mark.parametrize("kind", ["jdbc", "sqlite"])
def test_a_catalog_s_own_tables_are_made_by_many_at_once(tmp_path: Path, database: str, kind: str) -> None:
    options = postgres_lake(tmp_path, database) if kind == "jdbc" else {"warehouse": str(tmp_path)}
    place, start = World(tmp_path, options).lake, threading.Barrier(4)

    def first(_: int) -> None:
        start.wait(60)
        place.catalog().close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(first, range(4)))
    assert list_tables(place) == []


def land_beside(folder: str, url: str, pipeline: str, start: Any, times: int) -> None:
    """In a process of its own: a pipeline that lands a row at a time in a table that it shares."""
    world = World(Path(folder), postgres_lake(Path(folder), url) | {"namespace": "shared"}, pipeline=pipeline)
    found = rows()
    start.wait(60)
    for key in range(times):
        found.arrive(key)
        world.land(found)


def test_two_processes_land_in_one_table_through_postgres(tmp_path: Path, database: str) -> None:
    times, method = 5, multiprocessing.get_context("spawn")
    start = method.Barrier(2)
    both = [
        method.Process(target=land_beside, args=(str(tmp_path), database, name, start, times)) for name in ("a", "b")
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(240)
    assert [process.exitcode for process in both] == [0, 0]
    place = Lake.from_options(
        LakeOptions.model_validate(postgres_lake(tmp_path, database) | {"namespace": "shared"}),
        folder=str(tmp_path),
        pipeline="c",
    )
    table = tables.load_table(place, "s")
    assert table is not None
    seen = table.scan().to_arrow()
    assert sorted(seen["key"].to_pylist()) == sorted([*range(times)] * 2)
    numbers = seen["_ingest_seq"].to_pylist()
    assert len(set(numbers)) == 2 * times
    state = read_state(place, "s")
    assert state is not None
    assert state.head == max(numbers)
    assert {about[0] for about in state.links()} == {"a", "b"}


def test_spark_and_pyiceberg_share_a_catalog_in_postgres(
    tmp_path: Path, database: str, spark_provider: SparkSessionProvider
) -> None:
    merge_with_spark(
        World(tmp_path, postgres_lake(tmp_path, database, name="pg"), spark=spark_provider), spark_provider
    )


# ---------------------------------------------------------------- REST


def test_a_rest_catalog(tmp_path: Path, rest_lake: dict[str, Any]) -> None:
    world, found = World(tmp_path, rest_lake), rows(1, 2, 3)
    assert read_state(world.lake, "s") is None
    world.land(found)
    assert [row["key"] for row in world.export()] == [1, 2, 3]
    found.arrive(4)
    world.land(found)
    assert [row["key"] for row in world.export()] == [1, 2, 3, 4]
    assert list_tables(world.lake) == ["s"]
    assert read_state(world.lake, "t") is None


def test_a_peek_at_a_rest_catalog_imports_no_pyiceberg(tmp_path: Path, rest_lake: dict[str, Any]) -> None:
    World(tmp_path, rest_lake).land(rows(1))
    program = (
        "import json, sys\n"
        "from penstock.lake.options import LakeOptions\n"
        "from penstock.lake.metadata import read_state\n"
        "from penstock.lake.lake import Lake\n"
        "place = Lake.from_options(LakeOptions.model_validate(json.loads(sys.argv[1])), folder='.', pipeline='in')\n"
        "print(read_state(place, 's').head, 'pyiceberg' in sys.modules)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, json.dumps(rest_lake)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said.stdout == "1 False\n"


def test_a_rest_catalog_that_does_not_know_us(tmp_path: Path, rest_lake: dict[str, Any]) -> None:
    wrong = changed(rest_lake, credential=f"{ACCESS_KEY}:not-the-one")
    for ask in (lambda p: read_state(p, "s"), list_tables):
        with pytest.raises(
            ConnectionFailed, match=r"the catalog 'served\d+' \(rest http://127\.0\.0\.1:\d+\)"
        ) as failed:
            ask(World(tmp_path, wrong).lake)
        assert "not-the-one" not in str(failed.value)


def test_a_rest_catalog_that_is_away_or_another_server(
    tmp_path: Path, rest_lake: dict[str, Any], s3_server: S3Server
) -> None:
    for uri in (f"http://127.0.0.1:{free_port()}", s3_server.endpoint, f"{s3_server.catalog}/elsewhere"):
        place = World(tmp_path, {**rest_lake, "catalog": {**rest_lake["catalog"], "uri": uri}}).lake
        # Taken for a table that is not there, it would tell that nothing was delivered yet.
        with pytest.raises(ConnectionFailed, match="the catalog 'served"):
            read_state(place, "s")
        with pytest.raises(ConnectionFailed, match="the catalog 'served"):
            list_tables(place)


def test_spark_and_pyiceberg_share_a_rest_catalog_on_s3(
    tmp_path: Path, rest_lake: dict[str, Any], spark_provider: SparkSessionProvider
) -> None:
    merge_with_spark(World(tmp_path, rest_lake, spark=spark_provider), spark_provider)


def changed(options: dict[str, Any], **properties: str) -> dict[str, Any]:
    catalog = options["catalog"]
    return {**options, "catalog": {**catalog, "properties": {**catalog["properties"], **properties}}}


# ---------------------------------------------------------------- a file, and the warehouse on S3


def test_spark_and_pyiceberg_share_a_warehouse_on_s3(
    tmp_path: Path, s3_server: S3Server, spark_provider: SparkSessionProvider
) -> None:
    at = s3_server.bucket("merged")
    catalog = {"name": "bucket", "uri": "catalog.db", "properties": s3_server.properties}
    world = World(tmp_path, {"warehouse": at, "catalog": catalog}, spark=spark_provider)
    # In the workers, too: they get all they need with their part.
    world.mover = lambda: SparkMover(spark_provider)
    merge_with_spark(world, spark_provider)


def merge_with_spark(world: World, spark_provider: SparkSessionProvider) -> None:
    """A keyed table: older rows are deleted by Spark's MERGE, the rest is done by PyIceberg."""
    found, keyed = rows(1, 2, 3), {"mode": "merge", "key": ["key"]}
    world.land(found, **keyed)
    found.arrive(2, version=1)
    found.arrive(4)
    world.land(found, **keyed)
    assert {row["key"]: row["version"] for row in world.export()} == {1: 0, 2: 1, 3: 0, 4: 0}
    asked = (
        spark_provider.session().sql(f"select key, version from {world.lake.spark_table('s')} order by key").collect()
    )
    assert [tuple(row) for row in asked] == [(1, 0), (2, 1), (3, 0), (4, 0)]


# ---------------------------------------------------------------- those that cannot run here


@pytest.mark.parametrize(
    ("catalog", "extra"), [({"type": "hive", "uri": "thrift://127.0.0.1:9083"}, "hive"), ({"type": "glue"}, "glue")]
)
def test_a_library_that_is_missing_is_named_with_its_command(
    tmp_path: Path, catalog: dict[str, str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("thrift", "thrift.protocol", "boto3"):
        monkeypatch.setitem(sys.modules, module, None)
    world = World(tmp_path, {"warehouse": "s3://any/where", "catalog": catalog})
    for ask in (lambda: read_state(world.lake, "s"), lambda: list_tables(world.lake)):
        with pytest.raises(InputError, match=f"a {extra} catalog needs a library that is not installed") as refused:
            ask()
        assert f"pip install 'pyiceberg[{extra}]'" in refused.value.next_step


def test_the_hadoop_catalog_is_refused_with_the_reason(tmp_path: Path) -> None:
    said = mistakes(tmp_path, "type: hadoop")
    assert "loses commits of concurrent writers" in said
    assert "use sqlite on one machine, or jdbc, rest, glue or hive" in said
    assert "shop.yaml:8: pipelines.shop.sink.catalog" in said
    assert "catalog.type" in said


@pytest.mark.parametrize(
    ("catalog", "why"),
    [
        ("type: jdbc", "a jdbc catalog requires uri"),
        ("type: jdbc, uri: 'mysql://ann:hunter2@db/x'", "stored in Postgres"),
        ("type: jdbc, uri: 'postgresql://ann:hunter2/x@db/x'", "percent-encode"),
        ("type: jdbc, uri: 'postgresql:///x?host=/run/postgresql'", "with a host name"),
        ("type: rest, uri: 'catalog.example'", "must start with http://"),
        ("type: hive, uri: 'http://catalog'", "must start with thrift://"),
        ("type: nessie", "nessie"),
        ("name: my-lake", "letters, digits and underscores"),
    ],
)
def test_a_catalog_that_cannot_be(tmp_path: Path, catalog: str, why: str) -> None:
    said = mistakes(tmp_path, catalog)
    assert why in said
    assert "shop.yaml:8: pipelines.shop.sink.catalog" in said
    assert "hunter2" not in said


def mistakes(folder: Path, catalog: str) -> str:
    """What is said of a pipeline file with such a catalog."""
    path = folder / "shop.yaml"
    path.write_text(
        "pipelines:\n"
        "  shop:\n"
        '    source: {type: postgres, url: "postgresql://db/shop"}\n'
        "    sink:\n"
        "      type: lake\n"
        "      warehouse: lake\n"
        "      namespace: shop\n"
        f"      catalog: {{{catalog}}}\n"
    )
    with pytest.raises(ConfigError) as refused:
        config.load(path, environment={}, sources=sources, sinks=sinks)
    return str(refused.value)


# ---------------------------------------------------------------- the page


def test_what_the_page_shows_can_be_loaded_and_its_first_lake_run(tmp_path: Path, database: str) -> None:
    shown = [block for block in blocks(TOP / "docs" / "catalogs.md") if block.language == "yaml"]
    assert len(shown) == 5
    variables = {"CATALOG_URL": database, "CATALOG_ID": "b", "CATALOG_SECRET": "c", "LAKE_KEY": "d", "LAKE_SECRET": "e"}
    for block in shown:
        path = tmp_path / "shown.yaml"
        path.write_text(block.text)
        file = config.load(path, environment={"DATABASE_URL": database} | variables, sources=sources, sinks=sinks)
        for name, pipeline in file.pipelines.items():
            place = Lake.from_options(
                LakeOptions.model_validate(_lake(pipeline.sink)), folder=str(tmp_path), pipeline=name
            )
            assert place.spark_settings()
    walk = Walk(tmp_path, database)
    walk.sql("create table orders (id bigint primary key, updated_at timestamptz not null default now())")
    walk.sql("create index on orders (updated_at, id)")
    walk.sql("insert into orders select generate_series(1, 5)")
    walk.follow(shown[0])
    walk.penstock("run", "lake.yaml")
    place = Lake.from_options(LakeOptions(), folder=str(tmp_path), pipeline="shop")
    table = tables.load_table(place, "orders")
    assert table is not None
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5]


def _lake(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in LakeOptions.model_fields}
