"""Plain Spark SQL into a table of ours: rows of another penstock table get new numbers and are exported once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.harness.doubles import Clock, LoopMover
from tests.lake.lanes import STREAM, Lane, rows
from tests.store.memory_store import MemoryStore

from penstock.core.messages import Eof, Log, Message
from penstock.engine import Engine, Settings
from penstock.lake import names
from penstock.links.spark import SparkSessionProvider
from penstock.ports import Context, NoProbe, Owner
from penstock.sinks import files
from penstock.sources import lake

# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Export:
    """A pipeline from a lake table into files."""

    def __init__(self, lane: Lane) -> None:
        self.lane, self.store, self.clock, self.runs = lane, MemoryStore(), Clock(), 0
        self.said: list[str] = []

    def run(self) -> Eof:
        self.runs += 1
        context = Context("export", str(self.lane.folder), NoProbe(), mover=LoopMover)

        def hear(message: Message) -> None:
            if isinstance(message, Log):
                self.said.append(message.text)

        return Engine(
            "export",
            source=lake.build(lake.Options(namespace=self.lane.namespace), {}, context),
            sink=files.build(files.Options(directory=f"out-{self.lane.namespace}", format="ndjson"), {}, context),
            store=self.store,
            mover=LoopMover,
            clock=self.clock,
            probe=NoProbe(),
            owner=Owner(f"run {self.runs}", "here", 1),
            gone=lambda _: True,
            emit=hear,
            settings=Settings(heartbeat=False),
        ).run()

    def exported(self) -> list[int]:
        assert self.run().exit_code == 0
        found = (self.lane.folder / f"out-{self.lane.namespace}" / STREAM).glob("*.ndjson*")
        return sorted(json.loads(line)["id"] for path in found for line in path.read_text().splitlines())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("foreign")


def test_rows_selected_from_another_table_of_ours(spark_provider: SparkSessionProvider, folder: Path) -> None:
    """Their numbers lie below what a reader has passed: without new ones they would never be exported."""
    b = Lane(folder, "b", "other", spark=spark_provider)
    b.deliver(rows(101, 102), rows(103))
    a = Lane(folder, "a", "mine", spark=spark_provider)
    a.deliver(rows(1), rows(2))
    export = Export(a)
    assert export.exported() == [1, 2]
    sql = spark_provider.session().sql
    into, from_ = a.lake.spark_table(STREAM), b.lake.spark_table(STREAM)
    sql(f"insert into {into} select * from {from_}")
    copied = {number for number, id_, _ in a.table_rows() if id_ > 100}
    assert min(copied) <= a.state.head, "numbers of the other table"
    a.deliver(rows(3))
    assert export.exported() == [1, 2, 3, 101, 102, 103]
    assert any("numbered 3 rows that other programs wrote to mine.orders" in s for s in export.said)
    assert [id_ for _, id_, _ in a.seen()] == [1, 2, 3, 101, 102, 103]
    sql(f"insert into {into} select * from {from_}")
    assert export.exported() == [1, 2, 3, 101, 101, 102, 102, 103, 103], "inserted twice, exported twice"
    before = a.state.main
    assert export.exported() == [1, 2, 3, 101, 101, 102, 102, 103, 103]
    assert a.state.main == before, "nothing is stamped again"
    a.deliver(rows(4))
    assert export.exported() == [1, 2, 3, 4, 101, 101, 102, 102, 103, 103]


def test_an_insert_without_the_column_fails_in_spark(spark_provider: SparkSessionProvider, folder: Path) -> None:
    from pyspark.errors import PySparkException

    lane = Lane(folder, "c", "strict", spark=spark_provider)
    lane.deliver(rows(1))
    into = lane.lake.spark_table(STREAM)
    with pytest.raises(PySparkException, match=names.SEQ):
        spark_provider.session().sql(f"insert into {into} (id, text) values (9, 'nine')")
    assert lane.ids() == [1]


def test_rows_with_number_0_that_were_updated_merged_or_overwritten_before_a_look(
    spark_provider: SparkSessionProvider, folder: Path
) -> None:
    """Spark marks the updated rows in delete files and writes them again; each row is exported once."""
    lane = Lane(folder, "d", "touched", spark=spark_provider)
    lane.deliver(rows(*range(1, 11)))
    export = Export(lane)
    assert export.exported() == list(range(1, 11))
    sql, into = spark_provider.session().sql, lane.lake.spark_table(STREAM)
    some = "select id, concat('row ', id) as text, bigint(0) as _ingest_seq from range({}, {}) as r(id)"
    sql(f"insert into {into} {some.format(11, 61)}")
    sql(f"update {into} set text = 'changed' where id between 8 and 17")
    assert export.exported() == list(range(1, 61))
    sql(
        f"merge into {into} t using ({some.format(51, 81)}) s on t.id = s.id "
        "when matched then update set text = s.text when not matched then insert *"
    )
    assert export.exported() == list(range(1, 81))
    sql(f"insert overwrite {into} {some.format(101, 126)}")
    assert export.exported() == [*range(1, 81), *range(101, 126)]
    assert any("it removed 80 and wrote 0 of them again" in line for line in export.said)
    assert [id_ for _, id_, _ in lane.seen()] == list(range(101, 126))


def test_copied_numbers_that_were_updated_before_a_look(spark_provider: SparkSessionProvider, folder: Path) -> None:
    """Spark moves the updated ones out of their file: their numbers are not this table's there either."""
    lane = Lane(folder, "e", "moved", spark=spark_provider)
    lane.deliver(rows(*range(1, 11)))
    export = Export(lane)
    export.exported()
    sql, into = spark_provider.session().sql, lane.lake.spark_table(STREAM)
    sql(f"insert into {into} select id + 100, text, _ingest_seq from {into}")
    sql(f"update {into} set text = 'changed' where id between 101 and 103")
    assert export.exported() == [*range(1, 11), *range(101, 111)]
    assert [text for _, id_, text in lane.seen() if id_ in (3, 103)] == ["row 3", "changed"]
