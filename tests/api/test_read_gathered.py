"""`penstock.read` on lists of an API: the call fetches their pages into files that live as long as the frame."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.acceptance.rest_shop import RestShop
from tests.api.test_read import spark
from tests.plain_spark import small_spark

import penstock
from penstock.errors import PenstockError

__all__ = ["spark"]
# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestShop]:
    monkeypatch.chdir(tmp_path)
    with RestShop.open(tmp_path, {"charges": {}, "kinds": {}}) as shop:
        monkeypatch.setenv("API", shop.server.url)
        shop.write({"charges": "{time: {lag: 0}, columns: {amount: int64}}", "kinds": "{}"}, slice_bytes=16384)
        shop.server.arrive("charges", 500)
        yield shop


@pytest.fixture
def temporary(shop: RestShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which the server of the API does not use."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def ids(frame: DataFrame) -> list[str]:
    return sorted(row.id for row in frame.select("id").collect())


def objects(shop: RestShop, stream: str = "charges") -> list[str]:
    return sorted(id_ for id_, _ in shop.server.objects(stream))


def test_a_list_is_fetched_by_the_call_and_nothing_later(spark: SparkSession, shop: RestShop, temporary: Path) -> None:
    there = objects(shop)
    frame = penstock.read(spark, "shop.yaml", "charges")
    shop.server.forget_requests()
    shop.server.arrive("charges", 100)
    assert ids(frame) == there
    assert ids(frame) == there, "a second action reads the same files"
    assert shop.server.requests() == []
    assert [folder.name.partition("-")[0] for folder in temporary.iterdir()] == ["penstock"]
    assert not (shop.folder / "out").exists()
    assert not (shop.folder / ".penstock").exists(), "no store, and none of the pipeline's spools"


def test_a_list_is_fetched_in_several_slices(spark: SparkSession, shop: RestShop, temporary: Path) -> None:
    assert ids(penstock.read(spark, "shop.yaml", "charges")) == objects(shop)
    assert len(list(temporary.rglob("*-gathered-*"))) > 1


def test_after_a_mark_only_newer_objects_are_fetched(spark: SparkSession, shop: RestShop) -> None:
    done = shop.command.run("run", "shop.yaml", "--stream", "charges", "--json")
    assert done.code == 0, done.err
    (pipeline,) = json.loads(shop.command.run("state", "show", "shop.yaml", "--json").out)["pipelines"]
    [mark] = [stream["mark"] for stream in pipeline["streams"] if stream["stream"] == "charges"]
    before = objects(shop)
    assert penstock.read(spark, "shop.yaml", "charges", after=mark).count() == 0
    shop.server.arrive("charges", 7)
    assert ids(penstock.read(spark, "shop.yaml", "charges", after=mark)) == sorted({*objects(shop)} - {*before})


def test_a_list_that_is_read_whole(spark: SparkSession, shop: RestShop) -> None:
    shop.server.arrive("kinds", 30)
    assert ids(penstock.read(spark, "shop.yaml", "kinds")) == objects(shop, "kinds")


def test_an_empty_list_has_its_columns(spark: SparkSession, shop: RestShop, temporary: Path) -> None:
    frame = penstock.read(spark, "shop.yaml", "kinds")
    assert frame.count() == 0
    assert "id" in frame.columns


def test_a_copy_leaves_only_parquet(spark: SparkSession, shop: RestShop, temporary: Path) -> None:
    frame = penstock.read(spark, "shop.yaml", "charges", spool="copies")
    (copy,) = Path("copies").iterdir()
    assert [path for path in copy.iterdir() if path.suffix == ".parquet"]
    assert list(temporary.iterdir()) == []
    assert ids(frame) == objects(shop)


def test_a_fetch_that_fails_leaves_no_files(spark: SparkSession, shop: RestShop, temporary: Path) -> None:
    shop.server.set_faults(errors=1.0)
    with pytest.raises(PenstockError, match="500"):
        penstock.read(spark, "shop.yaml", "charges")
    assert list(temporary.iterdir()) == []


def test_files_are_removed_at_the_end_of_the_process(shop: RestShop, temporary: Path) -> None:
    script = """
import penstock
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(penstock.read(spark, "shop.yaml", "charges").count())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            **small_spark(Path("conf")),
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(temporary),
        },
    )
    assert done.stdout == "500\n"
    assert list(temporary.glob("penstock-*")) == []
