"""`penstock verify` from Postgres to Postgres: what differs, what does not, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.harness.doubles import LoopMover
from tests.verify.tables import CURSOR, TABLE, Copied

from penstock import wiring
from penstock.core.ranges import Key, Range
from penstock.links.postgres.row_digests import TableRows


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


@pytest.fixture
def copied(database: str, tmp_path: Path) -> Copied:
    return Copied.make(database, tmp_path)


def test_equal_tables_of_many_types(copied: Copied) -> None:
    code, stream = copied.verify()
    assert (code, stream["rows"], stream["complete"]) == (0, 100, True)
    assert stream["columns_not_compared"] == {}


def test_missing_stale_and_extra_rows(copied: Copied) -> None:
    copied.execute("DELETE FROM copies.orders WHERE id IN (3, 50)")
    copied.execute("UPDATE copies.orders SET note = NULL WHERE id = 8; UPDATE copies.orders SET price = 1 WHERE id = 9")
    copied.execute("DELETE FROM public.orders WHERE id = 77")
    assert copied.differences() == {"missing": ["3", "50"], "stale": ["8", "9"], "extra": ["77"]}
    text = copied.penstock("verify").stdout
    assert text.startswith("shop/orders: 99 rows compared: 2 missing, 2 stale, 1 extra\n  missing  id 3\n")


def test_every_column_counts(copied: Copied) -> None:
    columns = ("note", "amount", "price", "at", "day", "tags", "doc", "code", "raw", "flag", "code_id")
    for number, column in enumerate(columns):
        copied.execute(f"UPDATE copies.orders SET {column} = NULL WHERE id = {20 + number}")
    assert copied.differences() == {"stale": [str(20 + number) for number in range(len(columns))]}


def test_rows_in_flight_are_no_differences(copied: Copied) -> None:
    """Changed, new and deleted-and-new rows above the mark: the next run delivers them."""
    copied.execute("UPDATE orders SET note = 'new', updated_at = '2027-01-01' WHERE id = 5; SELECT fill(101, 110)")
    code, stream = copied.verify()
    assert (code, stream["in_flight"]) == (0, 1)


def test_a_late_row_below_the_mark_is_missing(copied: Copied) -> None:
    copied.execute("SELECT fill(101, 101); UPDATE orders SET updated_at = '2026-01-01 00:00:05+00' WHERE id = 101")
    assert copied.penstock("run").exit_code == 0
    assert copied.differences() == {"missing": ["101"]}


def test_ranges_are_narrowed_down(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = Copied.make(database, tmp_path, rows=20_000)
    copied.execute("DELETE FROM copies.orders WHERE id = 12345; DELETE FROM orders WHERE id = 19999")
    listed = []
    list_digests = TableRows.list_digests

    def spy(self: TableRows, range_: Range) -> dict[Key, str]:
        listed.append(list_digests(self, range_))
        return listed[-1]

    monkeypatch.setattr(TableRows, "list_digests", spy)
    assert copied.differences() == {"missing": ["12345"], "extra": ["19999"]}
    assert sum(map(len, listed)) < 8000  # two ranges of at most 1250 rows, on two sides


def test_a_budget_says_where_it_ended(copied: Copied) -> None:
    copied.execute("DELETE FROM copies.orders WHERE id IN (3, 50)")
    code, stream = copied.verify("--max-rows", "20")
    assert (code, stream["rows"], stream["complete"], stream["not_compared_after"]) == (5, 20, False, ["20"])
    assert [key["id"] for key in stream["differences"]["missing"]] == ["3"]
    text = copied.penstock("verify", "--max-rows", "20").stdout
    assert "not compared: keys after id 20 (stopped at max_rows 20)" in text


def test_rows_outside_of_the_filter_are_not_compared(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, stream=f"{CURSOR}, where: id % 2 = 0")
    assert copied.differences() == {}
    # A row that leaves the filter without its cursor stays in the sink, and is no one's difference.
    copied.execute("DELETE FROM copies.orders WHERE id = 4; DELETE FROM orders WHERE id = 6")
    assert copied.differences() == {"missing": ["4"], "extra": ["6"]}


def test_shaped_columns_are_compared_by_their_new_names_or_not(database: str, tmp_path: Path) -> None:
    shape = "shape: {rename: {note: remark}, drop: [doc], hash: {code: sha256}, cast: {price: text}}"
    copied = Copied.make(database, tmp_path, stream=f"{CURSOR}, {shape}")
    code, stream = copied.verify()
    assert code == 0
    assert stream["columns_not_compared"] == {"code": "it is hashed", "price": "it is cast"}
    copied.execute(
        "UPDATE copies.orders SET remark = 'x' WHERE id = 8; UPDATE copies.orders SET code = 'x' WHERE id = 9"
    )
    assert copied.differences() == {"stale": ["8"]}


def test_a_filter_of_the_shape_is_refused(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, stream=f"{CURSOR}, shape: {{where: id > 5}}")
    done = copied.penstock("verify")
    assert done.exit_code == 2
    assert done.stdout.startswith("shop/orders: cannot be compared, because `shape` filters its rows outside of the")


def test_rows_marked_as_deleted_are_not_extra(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, sink="deletes: soft, deleted_at: gone_at")
    copied.execute("ALTER TABLE copies.orders ADD COLUMN IF NOT EXISTS gone_at timestamptz")
    copied.execute("DELETE FROM orders WHERE id = 6; UPDATE copies.orders SET gone_at = now() WHERE id = 6")
    assert copied.differences() == {}


def test_deletes_that_are_ignored_are_no_differences(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, sink="deletes: ignore")
    copied.execute("DELETE FROM orders WHERE id = 6")
    assert copied.differences() == {}


def test_a_sink_that_appends_is_compared_by_its_newest_rows(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, sink="mode: append")
    copied.execute("UPDATE orders SET note = 'second', updated_at = '2026-02-01' WHERE id < 4")
    assert copied.penstock("run").exit_code == 0
    copied.execute("DELETE FROM orders WHERE id = 9")
    assert copied.differences() == {}
    copied.execute("DELETE FROM copies.orders WHERE id = 2 AND note = 'second' OR id = 20")
    assert copied.differences() == {"missing": ["2", "20"]}


def test_quarantined_rows_are_not_missing(database: str, tmp_path: Path) -> None:
    copied = Copied(database, tmp_path)
    copied.execute("CREATE SCHEMA copies")
    copied.execute(
        "CREATE TABLE copies.orders (id bigint PRIMARY KEY, note text CHECK (id <> 7), updated_at timestamptz)"
    )
    copied.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text, updated_at timestamptz NOT NULL)")
    copied.execute(
        "CREATE INDEX ON orders (updated_at, id); INSERT INTO orders SELECT n, 'x', now() FROM generate_series(1, 9) n"
    )
    copied.write(sink="bad_rows: quarantine, create: false")
    assert copied.penstock("run").exit_code == 0
    code, stream = copied.verify()
    assert (code, stream["quarantined"], stream["rows"]) == (0, 1, 9)
    assert "1 row in quarantine" in copied.penstock("verify").stdout


TEXT_KEYS = ("a", "B", "b", "é", "z", "Z", "_", "10", "9", "ab c", "😀", "\ue000")


@pytest.mark.parametrize("key", ["text", 'text COLLATE "en-x-icu"', "varchar(20)"])
def test_text_keys_are_ordered_by_bytes(
    key: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers may sort differently: here the two tables do."""
    monkeypatch.setattr("penstock.core.comparing.narrow.__kwdefaults__", {"leaf_rows": 2, "fanout": 3})
    copied = Copied(database, tmp_path)
    copied.execute(f"CREATE TABLE orders (id {key} PRIMARY KEY, updated_at timestamptz NOT NULL)")
    copied.execute("CREATE SCHEMA copies; CREATE INDEX ON orders (updated_at, id)")
    values = ", ".join(f"('{text}', now())" for text in TEXT_KEYS)
    copied.execute(f"INSERT INTO orders VALUES {values}")
    copied.write()
    assert copied.penstock("run").exit_code == 0
    assert copied.differences() == {}
    copied.execute("DELETE FROM copies.orders WHERE id IN ('é', '10'); DELETE FROM orders WHERE id = 'Z'")
    looked: set[Key] = set()
    look = TableRows.look

    def spy(self: TableRows, keys: Sequence[Key]) -> dict[Key, str | None]:
        looked.update(keys)
        return look(self, keys)

    monkeypatch.setattr(TableRows, "look", spy)
    assert copied.differences() == {"missing": ["10", "é"], "extra": ["Z"]}
    assert looked == {("10",), ("é",), ("Z",)}, "the same range holds the same keys on both sides"


def test_keys_of_two_columns(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.comparing.narrow.__kwdefaults__", {"leaf_rows": 5, "fanout": 3})
    copied = Copied(database, tmp_path)
    copied.execute(
        "CREATE TABLE orders (id uuid, at timestamp, v numeric, updated_at timestamptz NOT NULL, PRIMARY KEY (id, at))"
    )
    copied.execute("CREATE SCHEMA copies; CREATE INDEX ON orders (updated_at, id, at)")
    copied.execute(
        "INSERT INTO orders SELECT md5((n % 7)::text)::uuid, '2026-01-01'::timestamp + n * interval '1.5 s', n / 3.0, "
        "now() FROM generate_series(1, 60) n"
    )
    copied.write('cursor: updated_at, tiebreaker: [id, at], horizon: {method: "off"}')
    assert copied.penstock("run").exit_code == 0
    assert copied.differences() == {}
    copied.execute("DELETE FROM copies.orders WHERE at = '2026-01-01 00:00:15'")
    _, stream = copied.verify()
    assert [key["at"] for key in stream["differences"]["missing"]] == ["2026-01-01 00:00:15.000000"]


def test_columns_of_another_type_in_the_table_are_not_compared(database: str, tmp_path: Path) -> None:
    copied = Copied(database, tmp_path)
    copied.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a numeric(9,2), b json, c int, d date, "
        "updated_at timestamptz NOT NULL)"
    )
    copied.execute("CREATE INDEX ON orders (updated_at, id)")
    copied.execute(
        "CREATE SCHEMA copies; CREATE TABLE copies.orders (id bigint PRIMARY KEY, a numeric(12,4), b jsonb, c numeric, "
        "d timestamp, updated_at timestamptz)"
    )
    copied.execute("""INSERT INTO orders VALUES (1, 1.5, '{"b": 1, "a":2}', 5, '2026-01-01', now())""")
    copied.write()
    assert copied.penstock("run").exit_code == 0
    code, stream = copied.verify()
    assert code == 0
    assert stream["columns_not_compared"] == {
        "b": "it is jsonb in the table",
        "c": "it is numeric in the table",
        "d": "it is timestamp without time zone in the table",
    }
    copied.execute("UPDATE copies.orders SET a = 1.5001")
    assert copied.differences() == {"stale": ["1"]}


def test_a_first_load_that_is_not_finished_is_not_compared(database: str, tmp_path: Path) -> None:
    copied = Copied(database, tmp_path)
    copied.execute(TABLE)
    copied.execute("SELECT fill(1, 100)")
    copied.write(f"{CURSOR}, first_load: keys")
    done = copied.penstock("verify")
    assert (done.exit_code, "cannot be compared, because nothing was delivered yet" in done.stdout) == (2, True)
    assert copied.penstock("run", "--max-rows", "40").exit_code == 0
    done = copied.penstock("verify")
    assert (done.exit_code, "cannot be compared, because its first load is not finished" in done.stdout) == (2, True)


def test_a_full_refresh_is_not_compared(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, stream="mode: replace")
    done = copied.penstock("verify")
    assert (done.exit_code, "it is a full refresh" in done.stdout) == (2, True)
