"""Tables that the sink made are plain Iceberg: others read the same rows, by the very snippets that the docs show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.pages import TOP, blocks
from tests.harness.doubles import LoopMover
from tests.plain_spark import small_spark
from tests.sources.lake.lakes import LakeWorld

from penstock.lake.upkeep.compaction import compact
from penstock.lake.upkeep.job import UpkeepJob
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.links.spark import SparkSessionProvider
from penstock.ports import NoProbe

# Spark's Python leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

PAGE = TOP / "docs" / "reading-the-lake.md"
COLOURS = ["red", "blue", None, "green"]
TAGS = [["old", None, "größer"], [], None, [""]]


def versions(first: int, last: int, note: str) -> pa.Table:
    ids = range(first, last + 1)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "colour": pa.array([COLOURS[n % 4] for n in ids], pa.string()),
            "note": pa.array([f"{note} {n}" for n in ids], pa.string()),
            "tags": pa.array([TAGS[n % 4] for n in ids], pa.list_(pa.string())),
        }
    )


#: what the streams bring, slice by slice
ORDERS = [versions(1, 40, "new"), versions(31, 50, "paid"), versions(1, 5, "sent")]
CUSTOMERS = [
    versions(1, 30, "met").append_column("_change", pa.array(["upsert"] * 30)),
    versions(21, 25, "gone").append_column("_change", pa.array(["delete"] * 5)),
    versions(11, 35, "seen").append_column("_change", pa.array(["delete"] * 5 + ["upsert"] * 20)),
    # The same key twice in one slice: the last one counts.
    pa.concat_tables([versions(1, 3, "first"), versions(1, 2, "second")]).append_column(
        "_change", pa.array(["upsert"] * 3 + ["upsert", "delete"])
    ),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark_provider: SparkSessionProvider) -> LakeWorld:
    """A log, the same partitioned, and a keyed table with deletes."""
    made = LakeWorld(tmp_path_factory.mktemp("lake"), spark=spark_provider)
    for rows in ORDERS:
        made.land(rows)
        made.land(rows, table="parted", partition_by=("colour", "bucket(4, id)"))
    for rows in CUSTOMERS:
        made.land(rows, table="customers", changes=True, key=["id"])
    # One of them in a file that Spark has written.
    work = UpkeepJob(made.lake, "customers", UpkeepOptions(), spark_provider, LoopMover, NoProbe(), datetime.now(UTC))
    assert [done.text[:22] for done in compact(work)] == ["rewrote 4 files as 1: "]
    return made


def rows_of(tables: list[pa.Table]) -> list[dict[str, Any]]:
    return ordered(pa.concat_tables(tables).to_pylist())


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    plain = [{name: row[name] for name in ("id", "colour", "note", "tags")} for row in rows]
    return sorted(plain, key=lambda row: (row["id"], row["note"]))


def current() -> list[dict[str, Any]]:
    """The state that the customers' changes lead to."""
    state: dict[int, dict[str, Any]] = {}
    for rows in CUSTOMERS:
        for row in rows.to_pylist():
            state[row["id"]] = row
    return ordered([row for row in state.values() if row["_change"] == "upsert"])


def snippet(about: str) -> str:
    """A snippet of the page, as it stands there."""
    (found,) = [block.text for block in blocks(PAGE, "python") if about in block.text]
    return found


def run(lake: LakeWorld, code: str) -> str:
    environment = os.environ | small_spark(lake.folder / "conf")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=lake.folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def counted() -> str:
    return f"{sum(rows.num_rows for rows in ORDERS)} versions of orders, {len(current())} customers"


SAID = "\nimport json\nprint(json.dumps([orders, parted, customers], default=str))\n"


def test_a_fresh_pyiceberg_reads_the_same_rows(lake: LakeWorld) -> None:
    code = snippet("load_catalog") + (
        "parted = lake.load_table('shop.parted').scan().to_arrow().to_pylist()\n"
        "orders, customers = orders.to_pylist(), customers.to_pylist()\n"
    )
    said, found = run(lake, code + SAID).splitlines()
    assert said == counted()
    orders, parted, customers = json.loads(found)
    assert ordered(orders) == ordered(parted) == rows_of(ORDERS)
    assert ordered(customers) == current()


def test_the_lake_source_reads_the_same_rows(lake: LakeWorld) -> None:
    assert ordered([row for rows in lake.reader().run() for row in rows.to_pylist()]) == rows_of(ORDERS)
    changes = [row for rows in lake.reader(stream="customers").run() for row in rows.to_pylist()]
    assert ordered([row for row in changes if row["_change"] == "upsert"]) == current()


def test_plain_spark_sql_reads_the_same_rows(lake: LakeWorld) -> None:
    code = snippet("SparkSession") + (
        "parted = [row.asDict() for row in spark.table('lake.shop.parted').collect()]\n"
        "orders = [row.asDict() for row in orders.collect()]\n"
        "customers = [row.asDict() for row in customers.collect()]\n"
    )
    said, found = run(lake, code + SAID).splitlines()[-2:]
    assert said == counted()
    orders, parted, customers = json.loads(found)
    assert ordered(orders) == ordered(parted) == rows_of(ORDERS)
    assert ordered(customers) == current()


def test_others_find_the_files_of_a_few_numbers(lake: LakeWorld) -> None:
    """What the page says of a filter on the number."""
    table = lake.table()
    newest = lake.state().head
    assert len(list(table.scan().plan_files())) == 3
    assert len(list(table.scan(f"_ingest_seq = {newest}").plan_files())) == 1


def test_partitions_are_theirs_too(lake: LakeWorld) -> None:
    table = lake.table("parted")
    assert len(table.spec().fields) == 2
    red = list(table.scan("colour = 'red'").plan_files())
    assert 0 < len(red) < len(list(table.scan().plan_files()))


def test_every_snippet_of_the_page_is_run() -> None:
    assert len(blocks(PAGE, "python")) == 2
    assert Path(PAGE).name == "reading-the-lake.md"
