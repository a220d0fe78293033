"""One JVM for all pipelines of a command, also where two lakes have the same name; a new one where it must be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psycopg
import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from penstock.errors import InputError
from penstock.links.spark import SharedSpark, SparkOptions, SparkRequirements, SparkSessionProvider, shared
from penstock.links.spark.launch import GATEWAY
from penstock.links.spark.log import SparkLog

LAKE = "spark.sql.catalog.lake"
EVENT_LOG = {"spark.eventLog.enabled": "true"}


class Session:
    """A session that has no JVM."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = dict(settings)
        # All that is asked of these is asked of this object.
        self.conf = self.sparkContext = self._jsc = self
        self.stopped = False

    def newSession(self) -> Session:
        return Session(self.settings)

    def get(self, key: str, otherwise: str) -> str:
        return self.settings.get(key, otherwise)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    def unset(self, key: str) -> None:
        del self.settings[key]

    def stop(self) -> None:
        self.stopped = True


class NoJvm:
    """A JVM that is not there: it lives until it is ended."""

    archive = None

    def __init__(self) -> None:
        self.ended: int | None = None

    @classmethod
    def current(cls) -> Self:
        return cls()

    def status(self, _error: BaseException | None = None) -> int | None:
        return self.ended

    def end(self, *, at_once: bool = False) -> None:
        self.ended = 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The sessions that were started, each with what it was started with."""
    sessions: list[Session] = []

    def start(_options: SparkOptions, wanted: Mapping[str, str], *_: object) -> Session:
        sessions.append(Session(wanted))
        return sessions[-1]

    monkeypatch.setattr(shared, "start", start)
    monkeypatch.setattr(shared, "Jvm", NoJvm)
    monkeypatch.setattr(SparkLog, "take_loggers", lambda _: None)
    return sessions


def lake(warehouse: str, **more: str) -> dict[str, str]:
    return {
        "spark.sql.extensions": "Iceberg",
        LAKE: "SparkCatalog",
        f"{LAKE}.warehouse": warehouse,
        **{f"{LAKE}.{key}": value for key, value in more.items()},
    }


def provider_of(spark: SharedSpark, settings: Mapping[str, str]) -> SparkSessionProvider:
    spark_provider = SparkSessionProvider(spark.options, shared=spark)
    spark_provider.require(settings)
    return spark_provider


def test_two_lakes_of_one_name_share_a_jvm_and_not_their_options(started: list[Session]) -> None:
    spark = SharedSpark(SparkOptions())
    first = provider_of(spark, lake("a", endpoint="there"))
    assert first.session().settings[f"{LAKE}.endpoint"] == "there"
    first.close()
    second = provider_of(spark, lake("b")).session()
    assert len(started) == 1
    assert {key: value for key, value in second.settings.items() if key.startswith(LAKE)} == {
        LAKE: "SparkCatalog",
        f"{LAKE}.warehouse": "b",
    }
    assert started[0].settings[f"{LAKE}.warehouse"] == "a", "the first one's session is its own"


def test_what_later_pipelines_need_is_there_from_the_start(started: list[Session]) -> None:
    later = SparkRequirements(lake("b"))
    spark = SharedSpark(SparkOptions(), upcoming=lambda: [later, SparkRequirements({"spark.x": "2"})])
    provider_of(spark, {"spark.x": "1"}).session()
    assert started[0].settings == {"spark.x": "1", "spark.sql.extensions": "Iceberg"}
    assert spark.serves(SparkRequirements({"spark.x": "1", **later.settings}))
    assert not spark.serves(SparkRequirements({"spark.x": "2"})), "what contradicts is left to a start of its own"


@pytest.mark.parametrize("later", [{"spark.x": "2"}, {"spark.sql.extensions": "Iceberg"}])
def test_a_pipeline_that_needs_another_start_gets_it(started: list[Session], later: dict[str, str]) -> None:
    spark = SharedSpark(SparkOptions())
    provider_of(spark, {"spark.x": "1"}).session()
    provider_of(spark, later).session()
    assert [session.settings for session in started] == [{"spark.x": "1"}, later]
    assert started[0].stopped


def test_secrets_that_the_event_log_would_show_need_another_start(started: list[Session]) -> None:
    spark = SharedSpark(SparkOptions(config=EVENT_LOG))
    provider_of(spark, lake("a")).session()
    provider_of(spark, lake("a", password="p")).session()
    assert len(started) == 2
    assert f"{LAKE}.password" in started[1].settings


def test_a_jvm_that_died_is_replaced_for_the_next_pipeline(started: list[Session]) -> None:
    spark = SharedSpark(SparkOptions())
    provider_of(spark, lake("a")).session()
    assert spark._jvm is not None
    spark._jvm.end()
    provider_of(spark, lake("b")).session()
    assert len(started) == 2
    assert not started[0].stopped, "nobody is there to be stopped"


def test_giving_up_concerns_one_pipeline(started: list[Session]) -> None:
    """Its work may still go on in the JVM, so the next one gets another."""
    spark = SharedSpark(SparkOptions())
    first = provider_of(spark, lake("a"))
    first.session()
    first.cancel()
    first.close()
    assert not spark.is_alive
    assert provider_of(spark, lake("a")).session() is started[1]


def test_each_says_that_it_starts_only_if_it_does(started: list[Session]) -> None:
    spark, said = SharedSpark(SparkOptions()), []
    for name in ("first", "second"):
        spark_provider = SparkSessionProvider(
            spark.options,
            shared=spark,
            on_start=lambda name=name: said.append(f"{name} starts"),  # type: ignore[misc]  # a default argument
            on_ready=lambda name=name: said.append(f"{name} is ready"),  # type: ignore[misc]
        )
        spark_provider.session()
        spark_provider.close()
    assert said == ["first starts", "first is ready"]
    assert len(started) == 1


def test_one_pipeline_cannot_want_two_things(started: list[Session]) -> None:
    spark_provider = provider_of(SharedSpark(SparkOptions()), lake("a"))
    with pytest.raises(InputError, match="different values of Spark"):
        spark_provider.require(lake("b"))
    assert started == []


# ---------------------------------------------------------------- the command

THREE = """
spark: {master: "local[1,3]"}
pipelines:
  first:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: files, directory: first}
    streams: {orders: {cursor: updated_at, tiebreaker: id}}
  second:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: lake, warehouse: second}
    streams: {orders: {cursor: updated_at, tiebreaker: id, mode: merge}}
  third:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: lake, warehouse: third}
    streams: {orders: {cursor: updated_at, tiebreaker: id, mode: merge}}
"""


def counting_java(folder: Path) -> dict[str, str]:
    """A Java that writes a line for every start; what to add to the environment."""
    real = Path(os.environ.get("JAVA_HOME") or Path(shutil.which("java") or "").resolve().parents[1]) / "bin" / "java"
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\necho "$@" | tr "\\n" " " >> "{folder}/starts"\necho >> "{folder}/starts"\nexec "{real}" "$@"\n'
    )
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder / "jdk")}


def starts(folder: Path) -> int:
    lines = (folder / "starts").read_text().splitlines()
    assert not [line for line in lines if "launcher.Main" in line], "`java` is started directly"
    return sum(GATEWAY in line for line in lines)


def test_a_command_with_three_pipelines_starts_one_jvm(database: str, tmp_path: Path) -> None:
    """Of which two have a lake each, under the same name."""
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE TABLE orders (id bigint PRIMARY KEY, updated_at timestamptz)")
        db.execute("CREATE INDEX ON orders (updated_at, id)")
        db.execute(
            "INSERT INTO orders SELECT g, timestamptz '2026-01-01Z' + g * interval '1 h' FROM generate_series(1, 9) g"
        )
    (tmp_path / "three.yaml").write_text(THREE)
    command = [str(Path(sys.executable).with_name("penstock")), "run", "three.yaml", "--json"]
    environment = os.environ | {"DATABASE_URL": database} | counting_java(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert starts(tmp_path) == 1
    assert sorted(ds.dataset(tmp_path / "first" / "orders").to_table()["id"].to_pylist()) == [*range(1, 10)]
    for name in ("second", "third"):
        catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/{name}/catalog.db", warehouse=str(tmp_path / name))
        assert sorted(catalog.load_table(f"{name}.orders").scan().to_arrow()["id"].to_pylist()) == [*range(1, 10)]
        catalog.close()
    messages: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [m.get("ready", False) for m in messages if m["type"] == "mover_status"] == [False, True], (
        "one start is told"
    )
