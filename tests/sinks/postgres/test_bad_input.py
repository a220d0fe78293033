"""Twenty kinds of bad input, each with the exact words of its refusal; the table and the ledger stay as they were.

1-4 rows against a unique value, a check, NOT NULL and a foreign key; 5 a value of another type; 6 a text that is too
long; 7 a number that is too large; 8 a NUL in a text; 9 a key column that is missing; 10 a key that is not unique in
the target; 11 a role that only reads; 12 no schema; 13 a target that was dropped; 14 a table that is locked for too
long; 15 a full disk; 16 a generated column in the input; 17 a row of another guard; 18 a ledger that was altered;
19 a table to be replaced that another pipeline fills; 20 a connection that is lost in the middle of a COPY.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.alone import run_alone
from tests.harness.doubles import FIND_TESTS
from tests.sinks.postgres.deliveries import STREAM, Deliveries, content_of

from penstock.core.marks import Mark
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Part, following
from penstock.errors import ConnectionFailed, PenstockError, StreamRefused, StreamStopped

GOOD = pa.table({"id": [1, 2], "note": ["a", "b"]})
TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"
#: what to do about a row that the table does not take
ROW = (
    "correct the row at the source, or the table, then run again; or set `bad_rows: quarantine` on the stream: such "
    "rows are quarantined, and the others are written"
)


@dataclass(frozen=True)
class Case:
    """Rows that come to a table, and what is said about them."""

    name: str
    says: str
    then: str = ROW
    table: str = TABLE
    given: pa.Table = field(default_factory=lambda: GOOD)
    options: dict[str, Any] = field(default_factory=lambda: {"key": ["id"]})
    code: int = 1


CASES = [
    Case(
        "1 unique",
        "public.orders: duplicate value for a unique constraint (once), in the row with key id=2",
        table="CREATE TABLE orders (id bigint PRIMARY KEY, note text CONSTRAINT once UNIQUE)",
        given=pa.table({"id": [1, 2], "note": ["a", "a"]}),
    ),
    Case(
        "2 check",
        "public.orders: a check constraint fails (short), in the row with key id=2",
        table="CREATE TABLE orders (id bigint PRIMARY KEY, note text CONSTRAINT short CHECK (note < 'b'))",
    ),
    Case(
        "3 not null",
        "public.orders: column note: may not be NULL, in the row with key id=2",
        table="CREATE TABLE orders (id bigint PRIMARY KEY, note text NOT NULL)",
        given=pa.table({"id": [1, 2], "note": ["a", None]}),
    ),
    Case(
        "4 foreign key",
        "public.orders: a foreign key has no matching row (of), in the row with key id=1",
        table="CREATE TABLE notes (note text PRIMARY KEY); "
        "CREATE TABLE orders (id bigint PRIMARY KEY, note text CONSTRAINT of REFERENCES notes)",
    ),
    Case(
        "5 type",
        "public.orders: column note: a value cannot be read as uuid, in the row with key id=1",
        table="CREATE TABLE orders (id bigint PRIMARY KEY, note uuid)",
    ),
    Case(
        "5 type, of the whole column",
        "column note is float64 at the source and integer in public.orders, which cannot hold every value",
        "cast it with `shape` on the stream, or change the column's type",
        table="CREATE TABLE orders (id bigint PRIMARY KEY, note integer)",
        given=pa.table({"id": [1], "note": [1.5]}),
        code=2,
    ),
    Case(
        "6 text too long",
        "public.orders: column note (character varying(3)) does not hold the value exactly, in the row with key id=2",
        table="CREATE TABLE orders (id bigint PRIMARY KEY, note varchar(3))",
        given=pa.table({"id": [1, 2], "note": ["abc", "abcd"]}),
    ),
    Case(
        "7 number too large",
        "public.orders: column n: a number is out of range, in the row with key id=2",
        table="CREATE TABLE orders (id bigint PRIMARY KEY, n integer)",
        given=pa.table({"id": [1, 2], "n": [1, 1 << 40]}),
    ),
    Case(
        "8 NUL in a text",
        "column note has a string with a NUL character (0x00), which Postgres cannot store",
        "remove it at the source, or leave the column out with `shape` on the stream, then run again",
        given=pa.table({"id": [1, 2], "note": ["a", "b\0c"]}),
    ),
    Case(
        "9 missing key column",
        "`key` names the column number, which the stream does not have",
        "use one of: id, note",
        options={"key": ["number"]},
        code=2,
    ),
    Case(
        "9 key that is NULL",
        "public.orders: column id (bigint) is of the key and may not be NULL, in the row with key id=None",
        given=pa.table({"id": pa.array([1, None], pa.int64()), "note": ["a", "b"]}),
    ),
    Case(
        "10 key not unique in the target",
        "public.orders has no unique index on the key (id)",
        "create one: CREATE UNIQUE INDEX ON public.orders (id); or set `mode: append`",
        table="CREATE TABLE orders (id bigint, note text)",
        code=2,
    ),
    Case(
        "16 generated column",
        "column note of public.orders is generated and cannot be written",
        "leave it out with `shape` on the stream",
        table="CREATE TABLE orders (id bigint PRIMARY KEY, note text GENERATED ALWAYS AS (id::text) STORED)",
        code=2,
    ),
]


def refusal(orders: Deliveries, given: pa.Table = GOOD, **more: Any) -> tuple[str, str, int]:
    with pytest.raises(PenstockError) as refused:
        orders.deliver(given, **more)
    return refused.value.what, refused.value.next_step, refused.value.exit_code


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_rows_and_tables(case: Case, database: str) -> None:
    orders = Deliveries(database, case.options)
    orders.run(case.table)
    assert refusal(orders, case.given) == (case.says, case.then, case.code)
    assert orders.rows() == []
    with closing(orders.sink) as sink:
        assert sink.held(STREAM) is None
    # The values of columns that are not of the key are nobody's business.
    values = {value for value in case.given.column(case.given.num_columns - 1).to_pylist() if value}
    assert not any(str(value) in case.says for value in values if len(str(value)) > 2)


def test_11_a_role_that_only_reads(database: str) -> None:
    orders = Deliveries(database)
    orders.run(TABLE)
    orders.run("CREATE ROLE looker LOGIN PASSWORD 'x'; GRANT SELECT ON orders TO looker")
    orders.run("CREATE SCHEMA penstock_sink AUTHORIZATION looker")
    orders.url = re.sub("//.*@", "//looker:x@", database)
    try:
        assert refusal(orders) == (
            "the role looker may not write: it lacks INSERT on public.orders",
            "run as the owner: GRANT INSERT ON public.orders TO looker;",
            2,
        )
    finally:
        orders.url = database
        orders.run("DROP OWNED BY looker; DROP ROLE looker")


def test_12_no_schema(database: str) -> None:
    orders = Deliveries(database, {"into": "copies.orders"})
    assert refusal(orders) == (
        "there is no schema copies for the table copies.orders",
        "create it: CREATE SCHEMA copies; or name another with `schema` of the sink or `into` of the stream",
        2,
    )


def test_13_a_target_that_was_dropped(database: str) -> None:
    orders = Deliveries(database)
    orders.deliver(GOOD)
    orders.run("DROP TABLE orders")
    gone = "the table public.orders is gone; the ledger says that it holds slice 1"
    then = (
        "restore it; or to deliver everything from the beginning into public.orders: "
        "penstock state recover FILE --stream orders"
    )
    assert refusal(orders) == (gone, then, 1)
    with closing(orders.sink) as sink, pytest.raises(StreamStopped, match="is gone"):
        sink.held(STREAM)


def test_14_a_table_that_is_locked(database: str) -> None:
    orders = Deliveries(database, {"key": ["id"]}, more={"lock_timeout": 0.2})
    orders.run(TABLE)
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE orders IN SHARE MODE")
        pid = other.info.backend_pid
        what, *others = refusal(orders)
        assert what.startswith(
            "timed out after 0.2 s waiting for a lock on public.orders, held by "
            f"process {pid} of the server (user penstock, idle in transaction for "
        )
        assert others == [
            f"wait until that session ends, or end it: SELECT pg_terminate_backend({pid}); then run again",
            1,
        ]
    assert orders.deliver(GOOD) == Outcome(created=2)


#: runs in a mount namespace of its own, so that its disk ends with it
FULL = (
    FIND_TESTS
    + """
import json, os, subprocess, sys, tempfile
import pyarrow as pa
from penstock.errors import PenstockError
from tests.harness.postgres import PostgresServer
from tests.alone import run_alone
from tests.sinks.postgres.deliveries import Deliveries

with PostgresServer() as server:
    disk = server.directory / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=777", "tmpfs", str(disk)], check=True)
    place = disk / "space"
    place.mkdir()
    owner = (server.directory / "data").stat()
    os.chown(place, owner.st_uid, owner.st_gid)
    orders = Deliveries(server.database(), {"key": ["id"]})
    orders.run(f"CREATE TABLESPACE small LOCATION '{place}'")
    orders.run("CREATE TABLE orders (id bigint PRIMARY KEY, note text) TABLESPACE small")
    many = pa.table({"id": list(range(40000)), "note": ["a note that takes some space"] * 40000})
    try:
        orders.deliver(many)
        message = "no refusal"
    except PenstockError as refused:
        message = [refused.what, refused.next_step, refused.exit_code]
    left = orders.rows("SELECT count(*) FROM orders")
    orders.run("CREATE TABLE elsewhere AS TABLE orders; DROP TABLE orders; ALTER TABLE elsewhere RENAME TO orders;"
               "ALTER TABLE orders ADD PRIMARY KEY (id)")
    orders.run("DROP TABLESPACE small")
    became = orders.deliver(many).document()
    print(json.dumps({"message": message, "left": left[0][0], "then": became}))
    server.stop()
    subprocess.run(["umount", str(disk)], check=True)
"""
)


def test_15_a_disk_that_is_full() -> None:
    said = "public.orders cannot be written: the disk of the server is full"
    assert json.loads(run_alone(FULL)) == {
        "message": [said, "free space on the server, then run again", 1],
        "left": 0,
        "then": {"created": 40000},
    }


def test_17_a_row_of_another_guard(database: str) -> None:
    orders = Deliveries(database, {"key": ["id"], "guard": ["note"]})
    orders.deliver(GOOD)
    outcome = orders.deliver(pa.table({"id": [1, 2], "note": ["theirs", "b"]}))
    assert outcome == Outcome(refused=1, equal=1)
    assert outcome.warnings() == ["1 row was refused: a guard column differs from what the table has"]
    assert orders.rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("how", ["number = 7", "id = 'x'", "upto = '{}'"])
def test_18_a_ledger_that_was_altered(database: str, how: str) -> None:
    orders = Deliveries(database)
    orders.deliver(GOOD)
    orders.run(f"UPDATE penstock_sink.ledger SET {how}")
    then = "restore it, or begin again: penstock state recover FILE --stream orders"
    said = "the ledger in penstock_sink was altered: it differs from what penstock wrote"
    assert refusal(orders) == (said, then, 1)
    assert len(orders.rows()) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE {} SET content = content::jsonb - 'format'", "slice 1: its format is 1, this penstock reads 2"),
        ("ALTER TABLE {} DROP COLUMN spool", "a column is missing"),
    ],
)
def test_18_a_ledger_of_another_version(database: str, change: str, why: str) -> None:
    """The content of an earlier version, which had no format; a table that could not keep a gathered slice."""
    orders = Deliveries(database)
    orders.deliver(GOOD)
    orders.run(change.format("penstock_sink.ledger"))
    before = orders.rows("SELECT * FROM penstock_sink.ledger")
    with closing(orders.sink) as sink:
        for ask in (sink.held, sink.recover):
            with pytest.raises(StreamRefused) as refused:
                ask("orders")
            what, safe, step = str(refused.value).split("\n")
            said = "shop/orders: the ledger in penstock_sink was written by another version of penstock"
            assert what == f"{said}: {why}"
            assert safe == "Nothing was changed: neither the mark nor the table."
            assert "name another `own_schema` of the sink and another table with `into`" in step
    assert orders.rows("SELECT * FROM penstock_sink.ledger") == before
    assert len(orders.rows()) == 2


def test_19_a_table_to_be_replaced_that_another_fills(database: str) -> None:
    theirs = Deliveries(database, pipeline="theirs")
    theirs.deliver(GOOD)
    ours = Deliveries(database, {"mode": "replace"})
    assert refusal(ours, kind=Kind.REFRESH) == (
        "public.orders is filled by theirs/orders too: a full refresh would remove its rows",
        "give one of them another `into`; if the other is not used any more, delete its row from the table `ledger` of "
        "`own_schema`",
        2,
    )
    assert refusal(ours) == (
        "`mode: replace` is for a full refresh, and this stream delivers only what has changed",
        "leave out its cursor, or use `mode: upsert`",
        2,
    )
    assert len(ours.rows()) == 2


def test_20_a_connection_that_is_lost_in_the_middle_of_a_copy(database: str) -> None:
    orders = Deliveries(database)
    orders.run(TABLE)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from GOOD.to_batches()
        with psycopg.connect(database) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%'")
        for _ in range(100):
            yield pa.record_batch({"id": list(range(10_000)), "note": ["x" * 90] * 10_000})

    content = content_of(GOOD.schema)
    slice_ = following(None, pipeline="shop", stream=STREAM, upto=Mark.of({}), content=content, kind=Kind.ROWS)
    with closing(orders.sink) as sink:
        writer = sink.writer(slice_, "a1")
        with pytest.raises(ConnectionFailed) as lost:
            writer.write(pa.RecordBatchReader.from_batches(GOOD.schema, batches()), Part(0, "{}"))
        where = re.sub(".*@(.*)/(.*)", r"PostgreSQL at \1, database \2, user penstock", database)
        assert lost.value.what.startswith(f"the connection to {where} was lost: ")
        assert lost.value.next_step == (
            "see that the server is up, then run the same command again; it resumes from the stored mark"
        )
    assert orders.deliver(GOOD) == Outcome(created=2)
