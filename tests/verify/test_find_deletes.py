"""`find_deletes: compare`: a run finds rows that were deleted at the source, and deletes them in the sink."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.harness.doubles import LoopMover
from tests.harness.faults import Command
from tests.verify.tables import CURSOR, Copied

from penstock import wiring
from penstock.links.postgres.row_digests import TableRows
from penstock.store import open_store

FINDS = f"{CURSOR}, find_deletes: compare"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


def ids(copied: Copied, condition: str = "true") -> set[int]:
    return {id_ for (id_,) in copied.rows(f"SELECT id FROM copies.orders WHERE {condition}")}


def test_off_by_default(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path)
    copied.execute("DELETE FROM orders WHERE id = 6")
    assert copied.penstock("run").exit_code == 0
    assert 6 in ids(copied)


def test_deleted_rows_are_deleted_in_the_sink(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, stream=FINDS, sink="newer_than: updated_at")
    copied.execute("DELETE FROM orders WHERE id IN (6, 7, 100); SELECT fill(101, 110)")
    copied.execute("UPDATE orders SET note = 'new', updated_at = '2027-01-01' WHERE id = 9")
    done = copied.penstock("run")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "shop/orders: slice 3 repaired 3 rows, " in done.stdout
    assert copied.is_copied()
    assert "nothing new" in copied.penstock("run").stdout


def test_they_are_marked_where_deletes_are_soft(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, stream=FINDS, sink="deletes: soft, deleted_at: gone_at")
    copied.execute("DELETE FROM orders WHERE id = 6")
    assert copied.penstock("run").exit_code == 0
    assert ids(copied, "gone_at IS NOT NULL") == {6}
    assert "nothing new" in copied.penstock("run").stdout


def test_a_budget_goes_round(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, stream=f"{FINDS}, find_deletes_rows: 40")

    def position() -> str | None:
        with closing(open_store(".penstock/store.db", folder=str(tmp_path))) as store:
            return store.state("shop", "orders").compared

    assert json.loads(position() or "") == ["40"]
    copied.execute("DELETE FROM orders WHERE id IN (6, 50, 90)")
    left = []
    for _ in range(3):
        assert copied.penstock("run").exit_code == 0
        left.append((ids(copied) & {6, 50, 90}, position()))
    assert left == [({6, 90}, '["80"]'), ({6}, None), (set(), '["40"]')]


def test_equal_parts_of_a_table_are_asked_once(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = Copied.make(database, tmp_path, rows=5000, stream=FINDS)
    asked: list[str] = []
    for name in ("summarize", "list_digests", "look", "find_cuts"):
        method = getattr(TableRows, name)

        def spy(self: TableRows, *words: object, name: str = name, method: object = method) -> object:
            asked.append(name)
            return method(self, *words)  # type: ignore[operator]  # a method

        monkeypatch.setattr(TableRows, name, spy)
    assert copied.penstock("run").exit_code == 0
    assert asked == ["summarize", "summarize"]


def test_rows_of_others_stay(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, stream=FINDS)
    copied.execute("INSERT INTO copies.orders (id) VALUES (5000); DELETE FROM orders WHERE id = 6")
    done = copied.penstock("run")
    assert done.exit_code == 0
    assert "2 rows of the sink are not at the source; none was deleted, because the table copies.orders" in done.stderr
    assert {6, 5000} <= ids(copied)


def test_a_source_that_lost_most_of_its_rows_is_not_believed(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, rows=300, stream=FINDS)
    copied.execute("DELETE FROM orders WHERE id <= 200")
    done = copied.penstock("run")
    assert (done.exit_code, "200 of 300 rows of the sink are no longer at the source" in done.stderr) == (1, True)
    assert len(ids(copied)) == 300
    copied.write(f"{FINDS}, accept_drop: true")
    assert copied.penstock("run").exit_code == 0
    assert copied.is_copied()


@pytest.mark.parametrize(
    ("stream", "sink", "why"),
    [
        (FINDS, "mode: append", "`find_deletes: compare` is not possible: the sink keeps every version of a row"),
        (FINDS, "deletes: ignore", "the sink ignores deletes"),
        (FINDS, "into: other, key: [code_id]", "its key in the sink is code_id, and the source's primary key is id"),
        ("find_deletes: compare", "", "cannot be compared, because it is a full refresh"),
        (f"{FINDS}, shape: {{where: id > 5}}", "", "cannot be compared, because `shape` filters its rows outside"),
        (f"{FINDS}, columns: [code_id, updated_at]", "mode: append", "its key column id is not read"),
    ],
)
def test_refused_by_check(stream: str, sink: str, why: str, database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path)
    copied.write(stream, sink)
    done = copied.penstock("check")
    assert done.exit_code == 2, done.stdout
    assert why in done.stdout


def test_a_sink_that_cannot_be_compared_is_refused(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path)
    copied.write(FINDS)
    text = (tmp_path / "shop.yaml").read_text()
    sink = text[text.index("    sink:") : text.index("    streams:")]
    (tmp_path / "shop.yaml").write_text(text.replace(sink, f"    sink: {{type: files, directory: {tmp_path}/out}}\n"))
    done = copied.penstock("check")
    assert (done.exit_code, "this sink cannot be asked for rows by key" in done.stdout) == (2, True)
    done = copied.penstock("verify")
    assert (done.exit_code, "cannot be compared, because this sink cannot be asked for rows" in done.stdout) == (
        2,
        True,
    )


@pytest.mark.parametrize("point", ["gate.intended", "postgres.merged", "gate.committed", "engine.compared"])
def test_killed_at(point: str, database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, rows=30, stream=f"{FINDS}, find_deletes_rows: 10")
    command = Command(tmp_path)
    copied.execute("DELETE FROM orders WHERE id IN (12, 13)")
    assert command.kill_at(point, "run", "shop.yaml")["point"] == point
    copied.execute("SELECT fill(12, 12); UPDATE orders SET updated_at = '2027-01-01' WHERE id = 12")
    for _ in range(3):
        assert command.run("run", "shop.yaml").code == 0
    assert copied.is_copied()
