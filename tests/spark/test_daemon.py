"""The process that Spark's Python workers are forked from: their imports are done, and it is fit to fork."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.links.spark import SharedSpark, SparkOptions, SparkRequirements, daemon
from penstock.links.spark.session import all_settings
from tests.spark import workers

MODULE = "spark.python.daemon.module"


# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    spark = SharedSpark(SparkOptions(master="local[2,3]"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        yield spark.open(SparkRequirements())
        spark.end()


def threads_of(pid: int) -> int:
    """How many threads a process has, without that of PyArrow's allocator, which is made for forks."""
    names = [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(name != "jemalloc_bg_thd" for name in names)


def test_workers_are_forked_with_their_imports_done(session: Any) -> None:
    found = session.sparkContext.parallelize(range(2), 2).mapPartitions(workers.describe_worker).collect()
    for each in found:
        assert set(daemon.IMPORTED_BY_PARTS) <= set(each["modules"])
        assert each["zips"] == []
        parent = psutil.Process(each["parent"])
        assert parent.cmdline()[1:3] == ["-m", daemon.__name__]
        assert threads_of(each["parent"]) == 1, "a fork has none of these threads, and all of the locks they hold"
    assert len({each["parent"] for each in found}) == 1


def test_threads_of_pyarrow_work_in_a_forked_worker(session: Any, tmp_path: Path) -> None:
    sums = session.sparkContext.parallelize([str(tmp_path)] * 2, 2).mapPartitions(workers.use_threads).collect()
    assert sums == [sum(range(100_000))] * 2


def test_a_daemon_of_the_users_own_wins() -> None:
    assert all_settings(SparkOptions(), {}, [])[MODULE] == daemon.__name__
    assert all_settings(SparkOptions(), {MODULE: "theirs"}, [])[MODULE] == "theirs"


def test_a_python_that_is_not_ours_keeps_sparks_own_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MODULE not in all_settings(SparkOptions(), {"spark.pyspark.python": "/opt/python"}, [])
    assert MODULE not in all_settings(SparkOptions(master="spark://host:7077"), {}, [])
    assert MODULE not in all_settings(SparkOptions(master="local-cluster[1,1,1024]"), {}, [])
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert MODULE not in all_settings(SparkOptions(), {}, [])
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert MODULE in all_settings(SparkOptions(), {}, [])


def test_what_the_lake_writes_with_is_imported_only_where_there_is_a_lake() -> None:
    variable = f"spark.executorEnv.{daemon.VARIABLE}"
    assert variable not in all_settings(SparkOptions(), {}, [Path("/jars/sqlite.jar")])
    assert all_settings(SparkOptions(), {}, [Path("/jars/iceberg-spark.jar")])[variable] == "penstock.lake.writing"
