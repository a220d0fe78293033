"""A table that is not the one the mark was made in, or whose sequence was restarted: the stream stops and says so."""

import re
from dataclasses import replace

import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.late import BY_NUMBER, BY_TIME, NUMBERED, STAMPED, Reads
from tests.sources.tables import execute, rows

from penstock.core.slices import Kind
from penstock.errors import StreamRefused

SERIAL = "CREATE TABLE t (id bigserial PRIMARY KEY, note text)"
FILL = "INSERT INTO t (note) SELECT 'x' FROM generate_series(1, 20)"
ONE = "INSERT INTO t (note) VALUES ('new')"
LIKE = (
    "ALTER TABLE t RENAME TO old",
    "CREATE TABLE t (LIKE old INCLUDING ALL)",
    "INSERT INTO t OVERRIDING SYSTEM VALUE SELECT * FROM old",
    "SELECT setval(pg_get_serial_sequence('t', 'id'), 20)",
)
DROPPED = "is not the table that the mark was made in"
RESTARTED = "was restarted or altered since the mark was made"


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> str:
    return postgres_server.database()


@pytest.fixture
def database(shared: str) -> str:
    """Empty, and sooner there than a database of its own."""
    execute(shared, "DROP SCHEMA public CASCADE; DROP SCHEMA IF EXISTS s CASCADE; CREATE SCHEMA public")
    return shared


@pytest.fixture
def numbered(database: str) -> Reads:
    """Twenty rows, all read."""
    execute(database, NUMBERED, FILL)
    reads = Reads(database, dict(BY_NUMBER))
    assert len(reads.run().ids) == 20
    return reads


def stop(reads: Reads) -> StreamRefused:
    with pytest.raises(StreamRefused) as refused:
        reads.run()
    return refused.value


def token(refused: StreamRefused) -> str:
    found = re.search(r"set `continues: (\S+)` on the stream", refused.next_step)
    assert found, refused.next_step
    return found[1]


RENEWED = [
    pytest.param(("DROP TABLE t", NUMBERED, FILL), DROPPED, id="dropped and created"),
    pytest.param(("ALTER TABLE t RENAME TO old", NUMBERED, FILL), DROPPED, id="renamed, another in its place"),
    pytest.param(
        ("CREATE SCHEMA s; ALTER TABLE t SET SCHEMA s", NUMBERED, FILL), DROPPED, id="moved, another in its place"
    ),
    pytest.param(("TRUNCATE t RESTART IDENTITY", FILL), RESTARTED, id="restarted"),
    pytest.param(("TRUNCATE t RESTART IDENTITY", FILL, FILL), RESTARTED, id="restarted and past the mark"),
    pytest.param(("DELETE FROM t", "ALTER TABLE t ALTER id RESTART", FILL), RESTARTED, id="deleted and restarted"),
    pytest.param(("ALTER TABLE t ALTER id TYPE int",), RESTARTED, id="another type of the column"),
    pytest.param(("DELETE FROM t", "SELECT setval('t_id_seq', 1)", ONE), "was set back: it was at 20", id="set back"),
    pytest.param(
        ("DELETE FROM t", "SELECT setval('t_id_seq', 1, false)"), "has given no number now", id="set to its beginning"
    ),
]


@pytest.mark.parametrize(("changes", "why"), RENEWED)
def test_rows_below_the_mark_are_not_passed_over(numbered: Reads, changes: tuple[str, ...], why: str) -> None:
    execute(numbered.url, *changes)
    refused = stop(numbered)
    assert why in refused.what
    assert "penstock state reset FILE --stream t" in refused.next_step
    # A reset is a slice without a mark; then everything is read.
    numbered.last = None
    assert sorted(numbered.run().ids) == [row[0] for row in rows(numbered.url, "SELECT id FROM t ORDER BY 1")]


def test_a_user_may_vouch_for_it(numbered: Reads) -> None:
    """By the token that the message names: it holds for this table alone, and the next mark needs it no more."""
    execute(numbered.url, *LIKE)
    refused = stop(numbered)
    numbered.options["continues"] = token(refused)
    assert numbered.run().ids == []
    execute(numbered.url, ONE)
    assert numbered.run().ids == [21]
    del numbered.options["continues"]
    execute(numbered.url, ONE)
    assert numbered.run().ids == [22]
    numbered.options["continues"] = token(refused)
    execute(numbered.url, "TRUNCATE t RESTART IDENTITY")
    assert RESTARTED in stop(numbered).what


def test_going_back_accepts_it_too(numbered: Reads) -> None:
    execute(numbered.url, *LIKE)
    stop(numbered)
    assert numbered.last
    origin = numbered.open()
    mark = origin.mark_at("t", origin.content("t"), numbered.last, "18")
    numbered.last = replace(numbered.last, mark=mark)
    assert numbered.run().ids == [18, 19, 20]


@pytest.mark.parametrize(
    "change",
    [
        "VACUUM FULL t",
        "CLUSTER t USING t_pkey",
        "ALTER TABLE t ALTER note TYPE varchar(40)",
        "ALTER TABLE t ADD COLUMN more int DEFAULT random()",
        "TRUNCATE t",
        "DELETE FROM t",
        "ALTER TABLE t RENAME CONSTRAINT t_pkey TO key",
        "SELECT setval('t_id_seq', 500)",
        "ALTER TABLE t ALTER id DROP IDENTITY; ALTER TABLE t ALTER id SET DEFAULT (extract(epoch FROM now()))::bigint",
    ],
)
def test_what_leaves_it_the_same_table(numbered: Reads, change: str) -> None:
    execute(numbered.url, change)
    assert numbered.run().ids == []
    execute(numbered.url, ONE)
    assert len(numbered.run().ids) == 1


def test_a_sequence_below_the_mark(database: str) -> None:
    """Rows were written with numbers of their own: what the sequence numbers next would lie below the mark."""
    execute(
        database, SERIAL, "INSERT INTO t SELECT g, 'x' FROM generate_series(1, 20) g", "SELECT setval('t_id_seq', 5)"
    )
    reads = Reads(database, dict(BY_NUMBER))
    refused = stop(reads)
    assert refused.what == (
        "the sequence public.t_id_seq of id of public.t is at 5, below the highest number that is read (id 20): the "
        "rows that it numbers next would never be read"
    )
    [statement] = re.findall(r"raise the sequence with (.*;) or run", refused.next_step)
    assert reads.last is None, "it is refused before anything is read"
    reads.options["continues"] = token(refused)
    assert len(reads.run().ids) == 20
    del reads.options["continues"]
    assert stop(reads).what == refused.what
    execute(database, statement)
    assert reads.run().ids == []
    execute(database, ONE)
    assert reads.run().ids == [21]


def test_a_sequence_that_was_never_used_is_no_doubt(database: str) -> None:
    execute(database, SERIAL, "INSERT INTO t SELECT g, 'x' FROM generate_series(1, 20) g")
    reads = Reads(database, dict(BY_NUMBER))
    assert (len(reads.run().ids), reads.run().ids) == (20, [])


@pytest.mark.parametrize(
    "made",
    [
        "CREATE SEQUENCE s; CREATE TABLE t (id bigint PRIMARY KEY DEFAULT nextval('s'), note text)",
        "CREATE TABLE t (id smallserial PRIMARY KEY, note text)",
        "CREATE TABLE t (id numeric PRIMARY KEY, note text); CREATE SEQUENCE s OWNED BY t.id;"
        "ALTER TABLE t ALTER id SET DEFAULT nextval('s')",
    ],
)
def test_every_sequence_behind_a_cursor_counts(database: str, made: str) -> None:
    execute(database, made, FILL)
    reads = Reads(database, dict(BY_NUMBER))
    assert len(reads.run().ids) == 20
    name = rows(database, "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef")[0][0].split("'")[1]
    execute(database, "DELETE FROM t", f"ALTER SEQUENCE {name} RESTART", FILL)
    assert RESTARTED in stop(reads).what


def test_a_role_that_may_not_ask_the_sequence(database: str) -> None:
    name = database.rpartition("/")[2]
    execute(database, NUMBERED, FILL, f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    execute(database, f"GRANT USAGE ON SCHEMA public TO {name}; GRANT SELECT ON t TO {name}")
    reads = Reads(database.replace("penstock:penstock@", f"{name}:x@"), dict(BY_NUMBER))
    assert len(reads.run().ids) == 20
    hidden = reads.mark
    assert hidden["table"]["sequence"]["last"] is None
    # A mark of another role knows more than this one may ask.
    all_ = Reads(database, dict(BY_NUMBER))
    all_.run()
    reads.last = all_.last
    assert reads.mark["table"]["sequence"]["last"] == "20"
    assert reads.run().ids == []
    execute(database, "TRUNCATE t RESTART IDENTITY", FILL)
    assert RESTARTED in stop(reads).what
    execute(database, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


class TestByTime:
    @pytest.fixture
    def stamped(self, database: str) -> Reads:
        execute(database, STAMPED, "INSERT INTO t (id) SELECT g FROM generate_series(1, 5) g")
        reads = Reads(database, dict(BY_TIME))
        assert len(reads.run().ids) == 5
        return reads

    def test_a_table_in_its_place(self, stamped: Reads) -> None:
        execute(stamped.url, "ALTER TABLE t RENAME TO old", "CREATE TABLE t (LIKE old INCLUDING ALL)")
        execute(stamped.url, "INSERT INTO t SELECT id, c - interval '1 day' FROM old")
        assert DROPPED in stop(stamped).what

    def test_a_sequence_of_the_tiebreaker_does_not_matter(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (id serial PRIMARY KEY, c timestamptz NOT NULL DEFAULT now(), note text)",
            "CREATE INDEX ON t (c, id)",
            FILL,
        )
        reads = Reads(database, dict(BY_TIME))
        assert len(reads.run().ids) == 20
        execute(database, "TRUNCATE t RESTART IDENTITY", FILL)
        assert len(reads.run().ids) == 20


class TestPartitioned:
    MADE = "CREATE TABLE t (id bigint PRIMARY KEY DEFAULT nextval('s'), note text) PARTITION BY RANGE (id)"
    PARTS = tuple(f"CREATE TABLE t{n} PARTITION OF t FOR VALUES FROM ({n * 10}) TO ({n * 10 + 10})" for n in range(5))

    @pytest.fixture
    def parted(self, database: str) -> Reads:
        execute(database, "CREATE SEQUENCE s", self.MADE, *self.PARTS, FILL)
        reads = Reads(database, dict(BY_NUMBER))
        assert len(reads.run().ids) == 20
        return reads

    def test_the_whole(self, parted: Reads) -> None:
        execute(parted.url, "DROP TABLE t", self.MADE, *self.PARTS, FILL)
        assert DROPPED in stop(parted).what

    def test_one_partition_that_is_made_again_is_read_by_itself(self, parted: Reads) -> None:
        execute(parted.url, "DROP TABLE t1", self.PARTS[1], "INSERT INTO t VALUES (12, 'again')")
        assert parted.run().ids == [12]


def test_a_full_refresh_does_not_mind(database: str) -> None:
    execute(database, NUMBERED, FILL)
    reads = Reads(database, {})
    reads.runs = 1
    assert reads.open().catalog()[0].kind is Kind.REFRESH
    for changes in (("SELECT 1",), ("DROP TABLE t", NUMBERED, FILL), ("TRUNCATE t RESTART IDENTITY", FILL)):
        execute(database, *changes)
        assert len(reads.run().ids) == 20


class TestOpenSlice:
    def test_is_not_read_from_another_table(self, numbered: Reads) -> None:
        execute(numbered.url, ONE)
        origin = numbered.open()
        content = origin.content("t")
        assert numbered.last
        ceiling = origin.ceiling("t", content, "run", numbered.last.mark)
        assert ceiling
        slice_ = numbered.planned(origin, content, ceiling)
        assert slice_
        execute(numbered.url, "DROP TABLE t", NUMBERED, FILL, FILL)
        with pytest.raises(StreamRefused, match="was replaced") as refused, numbered.open().reading(slice_):
            pass
        assert "penstock state recover FILE --stream t" in refused.value.next_step
        assert "penstock state reset FILE --stream t" in refused.value.next_step
