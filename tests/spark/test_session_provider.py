"""The process's one Spark session: what it is started with, what it still takes, and the lake's libraries in it."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.errors import InputError, StreamFailed, StreamRefused
from penstock.links.spark import SparkMover, SparkOptions, SparkSessionProvider, jars
from penstock.links.spark.session import merge_settings
from penstock.testing.contracts.mover import Notes, Numbers, parts
from tests.spark.workers import Where

TOP = Path(__file__).parents[2]
# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

EXTENSIONS = "spark.sql.extensions"
ICEBERG = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def catalog(name: str, folder: Path) -> dict[str, str]:
    """An Iceberg catalog in a SQLite file, tables in plain files: no Hadoop service, no Hive."""
    return {
        f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{name}.type": "jdbc",
        f"spark.sql.catalog.{name}.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        f"spark.sql.catalog.{name}.jdbc.schema-version": "V1",
        f"spark.sql.catalog.{name}.jdbc.password": "not-for-everyone",
        f"spark.sql.catalog.{name}.warehouse": (folder / "tables").as_uri(),
        f"spark.sql.catalog.{name}.cache-enabled": "false",
    }


# ---------------------------------------------------------------- what it needs, before it is started


def test_lists_are_joined_and_the_rest_must_agree() -> None:
    first = {EXTENSIONS: "a,b", "spark.x": "1"}
    assert merge_settings(first, {EXTENSIONS: "b,c", "spark.x": "1", "spark.y": "2"}) == {
        EXTENSIONS: "a,b,c",
        "spark.x": "1",
        "spark.y": "2",
    }
    assert first == {EXTENSIONS: "a,b", "spark.x": "1"}
    with pytest.raises(InputError, match=r"different values of Spark's setting spark\.x") as refused:
        merge_settings(first, {"spark.x": "secret"})
    assert "secret" not in str(refused.value)


def test_a_need_that_contradicts_the_users_own_setting_is_refused() -> None:
    spark_provider = SparkSessionProvider(SparkOptions(config={"spark.sql.catalog.lake.type": "hive"}))
    with pytest.raises(InputError, match=r"spark\.sql\.catalog\.lake\.type"):
        spark_provider.require({"spark.sql.catalog.lake.type": "jdbc"})
    spark_provider.require({"spark.sql.catalog.lake.type": "hive"})


def test_what_cannot_be_fetched_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise InputError("Spark needs that", next_step="fetch it")

    monkeypatch.setattr(jars, "_fetch", refuse)
    spark_provider = SparkSessionProvider()
    spark_provider.require({}, ["nobody:nothing:1"])
    with pytest.raises(InputError, match="Spark needs that"):
        spark_provider.session()
    spark_provider.close()


def test_whoever_is_to_end_it_is_told_before_it_starts() -> None:
    def stop() -> None:
        raise StreamFailed("stopped before", next_step="")

    with pytest.raises(StreamFailed, match="stopped before"):
        SparkSessionProvider(on_start=stop).session()


def test_it_says_when_it_begins_and_when_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    spark_provider = SparkSessionProvider(on_start=lambda: said.append("begins"), on_ready=lambda: said.append("ready"))
    monkeypatch.setattr(spark_provider.shared, "open", lambda _: said.append("starts"))
    spark_provider.session()
    assert said == ["begins", "starts", "ready"]


# ---------------------------------------------------------------- waiting


def test_a_wait_gives_what_the_work_gives_from_another_thread() -> None:
    assert SparkSessionProvider().wait(threading.get_ident) != threading.get_ident()


def test_a_known_error_arrives_as_itself_and_another_in_one_line_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spark_provider, known, odd = SparkSessionProvider(), StreamRefused("no", next_step="yes"), ValueError("a\nb")

    def raising(error: Exception) -> None:
        raise error

    with pytest.raises(StreamRefused) as as_it_is:
        spark_provider.wait(lambda: raising(known))
    assert as_it_is.value is known
    with pytest.raises(StreamFailed) as explained:
        spark_provider.wait(lambda: raising(odd), failed="the merge failed")
    assert explained.value.what == "the merge failed: a"
    assert explained.value.__cause__ is odd
    (log,) = tmp_path.iterdir()
    assert explained.value.next_step.endswith(str(log))
    assert log.read_text() == "a\nb\n"


def test_a_cancelled_house_gives_up_at_once_and_does_nothing_more() -> None:
    spark_provider, begun, done = SparkSessionProvider(), threading.Event(), threading.Event()

    def cancel() -> None:
        begun.wait(60)
        spark_provider.cancel()

    def work() -> None:
        begun.set()
        done.wait(60)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    before = time.monotonic()
    with pytest.raises(StreamFailed, match="cancelled"):
        spark_provider.wait(work)
    assert time.monotonic() - before < 30
    done.set()
    canceller.join()
    started: list[bool] = []
    with pytest.raises(StreamFailed, match="cancelled"):
        spark_provider.wait(lambda: started.append(True))
    with pytest.raises(StreamFailed, match="cancelled"):
        spark_provider.session()
    assert started == []


# ---------------------------------------------------------------- a real one, with the lake's libraries


@pytest.fixture(scope="module")
def spark_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSessionProvider]:
    spark_provider = SparkSessionProvider(SparkOptions(master="local[2,3]"))
    spark_provider.require({EXTENSIONS: ICEBERG}, [jars.ICEBERG, jars.SQLITE])
    spark_provider.require(catalog("before", tmp_path_factory.mktemp("before")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TOP))
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("logs")))
        yield spark_provider
        spark_provider.close()


def use(spark_provider: SparkSessionProvider, name: str) -> list[int]:
    """Make a table and take a row out of it again with a statement that only the extension understands."""
    session = spark_provider.session()

    def work() -> list[int]:
        session.sql(f"CREATE NAMESPACE {name}.shop")
        session.sql(f"CREATE TABLE {name}.shop.orders (id bigint) USING iceberg")
        session.sql(f"INSERT INTO {name}.shop.orders VALUES (1), (2), (3)")
        session.sql(f"ALTER TABLE {name}.shop.orders CREATE BRANCH other")
        session.sql(f"MERGE INTO {name}.shop.orders a USING (SELECT 2 AS id) b ON a.id = b.id WHEN MATCHED THEN DELETE")
        return sorted(row.id for row in session.table(f"{name}.shop.orders").collect())

    return spark_provider.wait(work)


def test_a_lake_named_before_the_start(spark_provider: SparkSessionProvider) -> None:
    assert use(spark_provider, "before") == [1, 3]


def test_a_lake_named_while_it_runs(spark_provider: SparkSessionProvider, tmp_path: Path) -> None:
    spark_provider.session()
    spark_provider.require(catalog("later", tmp_path))
    assert use(spark_provider, "later") == [1, 3]
    assert list(tmp_path.glob("tables/shop/orders/data/*.parquet"))
    spark_provider.require(catalog("later", tmp_path))
    with pytest.raises(InputError, match="different values of Spark"):
        spark_provider.require(catalog("later", tmp_path / "elsewhere"))


def test_what_a_running_session_cannot_take_is_refused_and_what_it_has_is_fine(
    spark_provider: SparkSessionProvider,
) -> None:
    spark_provider.session()
    spark_provider.require({EXTENSIONS: ICEBERG}, [jars.SQLITE])
    with pytest.raises(InputError, match=f"must be set before it starts: {EXTENSIONS}"):
        spark_provider.require({EXTENSIONS: "some.Other"})
    with pytest.raises(InputError, match=f"must be set before it starts: {jars.AWS}"):
        spark_provider.require({}, [jars.AWS])
    spark_provider.require({EXTENSIONS: ICEBERG})  # a refusal has changed nothing


def test_another_provider_of_this_process_is_told_that_the_session_lacks_its_extension(
    spark_provider: SparkSessionProvider,
) -> None:
    spark_provider.session()
    other = SparkSessionProvider()
    other.require({EXTENSIONS: "some.Other"})
    with pytest.raises(InputError, match=r"a Spark session without some\.Other"):
        other.session()


def test_the_libraries_lie_where_they_were_and_workers_do_not_see_them(
    spark_provider: SparkSessionProvider, tmp_path: Path
) -> None:
    mover = SparkMover(spark_provider)
    assert len(mover.move(Numbers(), Notes(str(tmp_path)), parts(1, 2))) == 2
    mover.move(Numbers(), Where(str(tmp_path)), parts(1))
    (here,) = tmp_path.glob("here-*")
    assert not [entry for entry in json.loads(here.read_text())["path"] if entry.endswith((".zip", ".jar"))]
    assert spark_provider.session().conf.get("spark.jars", "") == "", "Spark would copy what this names at every start"


def _command_line(process: psutil.Process) -> str:
    """What it was called with; nothing of one that has ended (Spark's start leaves shells that nobody has buried)."""
    try:
        return " ".join(process.cmdline())
    except (psutil.ZombieProcess, psutil.NoSuchProcess):
        return ""


def test_settings_of_a_catalog_are_on_no_command_line(spark_provider: SparkSessionProvider) -> None:
    spark_provider.session()
    lines = [line for child in psutil.Process().children(recursive=True) if (line := _command_line(child))]
    assert any("iceberg-spark-runtime" in line for line in lines), "the driver's class path is there"
    assert not [line for line in lines if "not-for-everyone" in line or "spark.sql" in line]


def test_on_a_cluster_the_executors_get_the_libraries_too(tmp_path: Path) -> None:
    from penstock.links.spark.session import all_settings

    jar = tmp_path / "a.jar"
    there = SparkOptions(master="spark://there:7077")
    cluster = all_settings(there, {"spark.jars": "b.jar", "spark.driver.extraClassPath": "c.jar"}, [jar])
    assert (cluster["spark.jars"], cluster["spark.driver.extraClassPath"]) == (f"b.jar,{jar}", f"c.jar:{jar}")
    assert "spark.driver.bindAddress" not in cluster
    here = all_settings(SparkOptions(master="local[2]"), {}, [jar])
    assert ("spark.jars" in here, here["spark.driver.extraClassPath"]) == (False, str(jar))
    assert "spark.jars" in all_settings(SparkOptions(master="local-cluster[1,1,512]"), {}, [jar])
