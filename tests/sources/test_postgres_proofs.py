"""What the catalog proves of a cursor: many shapes of triggers, defaults and sequences, and what each is worth."""

from dataclasses import replace

import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.tables import execute, source

from penstock.links.postgres.literals import TableName
from penstock.links.postgres.triggers import read_assignments
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.horizon.proof import Proof, prove, prove_cursor

TABLE = "CREATE TABLE t (id int PRIMARY KEY, c timestamptz NOT NULL); CREATE INDEX ON t (c, id)"
FUNCTION = "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $body$ {body} $body$"
TRIGGER = "CREATE TRIGGER {name} BEFORE {event} ON t FOR EACH ROW {when} EXECUTE FUNCTION {name}()"
NOW = "BEGIN NEW.c := now(); RETURN NEW; END"


def stamped(url: str) -> Proof:
    """What is proven of table `t`."""
    return proof_of(url, "t", cursor="c", tiebreaker="id")


def proof_of(url: str, stream: str, **options: object) -> Proof:
    origin = source(url, {stream: options})
    return prove(origin._stream(stream, origin.content(stream)))


def trigger(
    body: str = NOW, *, name: str = "stamp", event: str = "INSERT OR UPDATE", when: str = "", after: str = ""
) -> str:
    made = "; ".join((FUNCTION.format(name=name, body=body), TRIGGER.format(name=name, event=event, when=when)))
    return f"{made}; {after}"


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> str:
    return postgres_server.database()


@pytest.fixture
def database(shared: str) -> str:
    """Empty, and sooner there than a database of its own."""
    execute(shared, "DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP EXTENSION IF EXISTS moddatetime")
    return shared


@pytest.fixture
def plain(database: str) -> str:
    execute(database, TABLE)
    return database


class TestStampedByTriggers:
    @pytest.mark.parametrize(
        "made",
        [
            trigger(),
            trigger("BEGIN NEW.c = CURRENT_TIMESTAMP; RETURN NEW; END;"),
            trigger("begin new.c := Transaction_Timestamp( ); return new; end"),
            trigger('BEGIN NEW."c" := (pg_catalog.now())::timestamptz; RETURN NEW; END'),
            trigger("-- it's ours\nBEGIN /* a /* nested */ comment; */ NEW.c := now(); -- ;\nRETURN NEW; END"),
            trigger("BEGIN NEW.id := NEW.id + length('; RETURN OLD;'); NEW.c := now(); RETURN NEW; END"),
            trigger("BEGIN NEW.c := NULL; NEW.c := now(); NULL; RETURN NEW; END"),
            trigger(event="INSERT") + "CREATE TRIGGER again BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION stamp()",
            # One that cannot be looked through comes first, and one that leaves the column alone comes after.
            trigger("BEGIN IF NEW.id > 0 THEN NEW.c := 'epoch'; END IF; RETURN NEW; END", name="a_first") + trigger(),
            trigger() + trigger("BEGIN NEW.id := NEW.id; RETURN NEW; END", name="z_last"),
            # What fires only sometimes may set it once more.
            trigger() + trigger(name="z_last", event="UPDATE", when="WHEN (NEW.id > 5)"),
            trigger()
            + trigger("BEGIN NEW.c := 'epoch'; RETURN NEW; END", name="z", after="ALTER TABLE t DISABLE TRIGGER z"),
            trigger(after="ALTER TABLE t ENABLE ALWAYS TRIGGER stamp"),
        ],
    )
    def test_proven(self, plain: str, made: str) -> None:
        execute(plain, made)
        proof = stamped(plain)
        assert replace(proof, stamping_trigger=None) == Proof("activity", True, (), None)
        assert proof.stamping_trigger

    @pytest.mark.parametrize(
        ("made", "assumed"),
        [
            ("SELECT", "the application stamps c not earlier than its transaction began"),
            ("ALTER TABLE t ALTER c SET DEFAULT now()", "no INSERT names c itself (its default, now(), is right)"),
            (trigger(event="UPDATE"), "the application stamps c not earlier than its transaction began"),
            (trigger(event="INSERT"), "the application stamps c not earlier than its transaction began"),
            (
                trigger(event="INSERT OR UPDATE OF id"),
                "the application stamps c not earlier than its transaction began",
            ),
            (trigger(when="WHEN (NEW.id > 5)"), "the application stamps c not earlier than its transaction began"),
            (
                trigger(after="ALTER TABLE t DISABLE TRIGGER stamp"),
                "the application stamps c not earlier than its transaction began",
            ),
            (
                trigger(after="ALTER TABLE t ENABLE REPLICA TRIGGER stamp"),
                "the application stamps c not earlier than its transaction began",
            ),
            (
                trigger("BEGIN NEW.c := clock_timestamp(); RETURN NEW; END"),
                "the server's clock never steps back (the trigger stamp stamps with clock_timestamp())",
            ),
            (
                trigger() + trigger("BEGIN NEW.c := 'epoch'; RETURN NEW; END", name="z_last"),
                "the trigger z_last stamps c not earlier than its transaction began, with every INSERT",
            ),
            (
                trigger("BEGIN NEW.c := now() - interval '1 h'; RETURN NEW; END"),
                "the trigger stamp stamps c not earlier than its transaction began, with every INSERT",
            ),
            (
                trigger("BEGIN NEW.c := 'now'; RETURN NEW; END"),
                "the trigger stamp stamps c not earlier than its transaction began, with every INSERT",
            ),
        ],
    )
    def test_assumed(self, plain: str, made: str, assumed: str) -> None:
        execute(plain, made)
        found = stamped(plain)
        assert (found.method, found.proven) == ("activity", False)
        assert assumed in found.assumptions

    @pytest.mark.parametrize(
        "body",
        [
            "BEGIN IF TG_OP = 'INSERT' THEN NEW.c := now(); END IF; RETURN NEW; END",
            "BEGIN NEW.c := now(); IF NEW.id > 5 THEN NEW.c := OLD.c; END IF; RETURN NEW; END",
            "BEGIN NEW.c := now(); RETURN OLD; END",
            "BEGIN NEW.c := now(); RETURN NULL; END",
            "BEGIN NEW := OLD; NEW.c := now(); RETURN NEW; END",
            "DECLARE at timestamptz := now(); BEGIN NEW.c := at; RETURN NEW; END",
            "BEGIN NEW.c := now(); SELECT 'epoch' INTO NEW.c; RETURN NEW; END",
            "BEGIN NEW.c := now(); PERFORM 1; RETURN NEW; END",
            "BEGIN NEW.c := now(); RETURN NEW; EXCEPTION WHEN OTHERS THEN RETURN NEW; END",
            "BEGIN BEGIN NEW.c := now(); END; RETURN NEW; END",
            "<<here>> BEGIN NEW.c := now(); RETURN NEW; END",
        ],
    )
    def test_a_body_that_does_anything_else_proves_nothing(self, plain: str, body: str) -> None:
        execute(plain, trigger(body))
        found = stamped(plain)
        assert not found.proven
        assert found.assumptions == ("the trigger stamp leaves c at or after the start of its transaction",)

    def test_one_that_comes_after_and_cannot_be_looked_through(self, plain: str) -> None:
        execute(plain, trigger(), trigger("BEGIN PERFORM 1; RETURN NEW; END", name="z_audit"))
        assert stamped(plain).assumptions == ("the trigger z_audit leaves c at or after the start of its transaction",)

    def test_moddatetime_stamps_updates_and_a_default_is_still_a_default(self, plain: str) -> None:
        execute(
            plain,
            "CREATE EXTENSION moddatetime",
            "CREATE TRIGGER m BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION moddatetime('c')",
            "ALTER TABLE t ALTER c SET DEFAULT CURRENT_TIMESTAMP",
        )
        [assumed] = stamped(plain).assumptions
        assert assumed == "no INSERT names c itself (its default, CURRENT_TIMESTAMP, is right)"
        execute(plain, trigger(name="first", event="INSERT"))
        assert stamped(plain).proven

    def test_what_would_raise_it_does(self, plain: str) -> None:
        execute(plain, trigger("BEGIN NEW.c := 'epoch'; RETURN NEW; END", name="zz_wrong"))
        statement = stamped(plain).remedy
        assert statement
        assert "BEFORE INSERT OR UPDATE ON public.t" in statement
        execute(plain, statement)
        proof = stamped(plain)
        assert replace(proof, stamping_trigger=None) == Proof("activity", True, (), None)
        assert proof.stamping_trigger

    def test_a_table_that_a_subscription_writes(self, plain: str) -> None:
        execute(plain, trigger())
        execute(
            plain,
            "CREATE SUBSCRIPTION s CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false)",
            "INSERT INTO pg_subscription_rel (srsubid, srrelid, srsubstate)"
            " SELECT oid, 't'::regclass, 'r' FROM pg_subscription",
        )
        try:
            found = stamped(plain)
            assert found.assumptions == ("a subscription writes the table, and brings times of another server",)
            assert found.remedy
            execute(plain, found.remedy)
            assert stamped(plain).proven
        finally:
            execute(plain, "ALTER SUBSCRIPTION s SET (slot_name = NONE)", "DROP SUBSCRIPTION s")

    def test_every_partition_counts(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (id int, c timestamptz NOT NULL, PRIMARY KEY (id)) PARTITION BY RANGE (id);"
            "CREATE INDEX ON t (c, id)",
        )
        assert stamped(database).assumptions == ("public.t has no partition yet that would show how c is set",)
        execute(
            database,
            "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10);"
            "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
            trigger(),
        )
        assert stamped(database).proven
        execute(database, "ALTER TABLE t2 DISABLE TRIGGER stamp")
        assert stamped(database).assumptions == ("the application stamps c not earlier than its transaction began",)

    @pytest.mark.parametrize("what", ["VIEW", "MATERIALIZED VIEW"])
    def test_of_a_view_nothing_is_proven(self, plain: str, what: str) -> None:
        execute(plain, trigger(), f"CREATE {what} v AS SELECT id, c FROM t")
        if what == "MATERIALIZED VIEW":
            execute(plain, "CREATE UNIQUE INDEX ON v (id)")
        origin = source(plain, {"t": {"cursor": "c", "tiebreaker": "id"}})
        content = replace(TableContent.read(origin.content("t")), table=TableName("public", "v"))
        found = prove(origin._stream("v", content))
        assert found.assumptions == (f"rows come into public.v, a {what.lower()}, in the order of c",)
        assert not found.lockable


class TestNumbers:
    @pytest.mark.parametrize(
        ("column", "assumed"),
        [
            ("bigint GENERATED ALWAYS AS IDENTITY", ()),
            (
                "bigint GENERATED BY DEFAULT AS IDENTITY",
                ("nobody fetches values of n ahead, or writes it themselves",),
            ),
            ("bigserial", ("nobody fetches values of n ahead, or writes it themselves",)),
            (
                "bigint GENERATED ALWAYS AS IDENTITY (CACHE 20)",
                ("sessions do not overtake each other: each fetches 20 values of n ahead",),
            ),
            ("bigint GENERATED ALWAYS AS IDENTITY (CYCLE)", ("n only grows: its sequence can go down",)),
            (
                "bigint GENERATED ALWAYS AS IDENTITY (INCREMENT -1 MINVALUE -99 START -1)",
                ("n only grows: its sequence can go down",),
            ),
            (
                "text",
                ("a value of n is taken only once its transaction has begun to write the table, and only grows",),
            ),
            (
                "timestamp DEFAULT now()",
                ("a value of n is taken only once its transaction has begun to write the table, and only grows",),
            ),
        ],
    )
    def test_what_a_column_is_worth(self, database: str, column: str, assumed: tuple[str, ...]) -> None:
        execute(database, f"CREATE TABLE t (n {column} PRIMARY KEY)")
        found = proof_of(database, "t", cursor="n", unique=True)
        assert (found.method, found.proven, found.assumptions) == ("holders", not assumed, assumed)

    @pytest.mark.parametrize(
        "column", ["GENERATED BY DEFAULT AS IDENTITY", "GENERATED ALWAYS AS IDENTITY (CACHE 5 CYCLE)"]
    )
    def test_what_would_raise_it_does(self, database: str, column: str) -> None:
        execute(database, f"CREATE TABLE t (n bigint {column} PRIMARY KEY)")
        statement = proof_of(database, "t", cursor="n", unique=True).remedy
        assert statement
        execute(database, statement)
        assert proof_of(database, "t", cursor="n", unique=True).proven

    def test_a_serial_becomes_an_identity(self, database: str) -> None:
        execute(database, "CREATE TABLE t (n bigserial PRIMARY KEY); INSERT INTO t DEFAULT VALUES")
        statement = proof_of(database, "t", cursor="n", unique=True).remedy
        assert statement
        execute(database, statement.partition(";")[0].replace("START WITH n", "START WITH 2"))
        execute(database, "INSERT INTO t DEFAULT VALUES")
        assert proof_of(database, "t", cursor="n", unique=True).proven

    def test_a_trigger_that_may_set_the_number(self, database: str) -> None:
        execute(
            database, "CREATE TABLE t (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, c timestamptz)", trigger()
        )
        assert proof_of(database, "t", cursor="n", unique=True).proven
        execute(database, trigger("BEGIN NEW.n := 7; RETURN NEW; END", name="seven"))
        assert proof_of(database, "t", cursor="n", unique=True).assumptions == ("the trigger seven leaves n as it is",)

    def test_a_partition_can_be_written_past_the_identity(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY) PARTITION BY HASH (n);"
            "CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        )
        found = proof_of(database, "t", cursor="n", unique=True)
        version = source(database)._session.version
        assert found.proven == (version >= 17)
        if version < 17:
            assert found.assumptions == ("nobody writes into a partition directly, where n is an ordinary column",)


class TestStandby:
    def test_a_standby_proves_nothing(self, database: str) -> None:
        execute(database, "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")
        origin = source(database, {"t": {"cursor": "id", "unique": True}})
        table = origin._stream("t", origin.content("t")).describe(("id",), writers=True)
        assert table is not None
        [column] = table.columns
        assert prove_cursor(table, column).proven
        found = prove_cursor(table, column, standby=True)
        assert found.assumptions == (
            "this server is a standby, and cannot see what transactions are open on its primary",
        )
        assert found.remedy == "read from the primary"


class TestBodies:
    def test_the_last_value_of_each_column(self) -> None:
        body = """BEGIN NEW.a := 1; NEW."B c" = E'\\';' || $q$;$q$; NEW.a := f(NEW.b); RETURN NEW; END;"""
        assert read_assignments(body) == {
            "a": ("f", "(", "new", ".", "b", ")"),
            "B c": ("E'\\';'", "|", "|", "$q$;$q$"),
        }

    @pytest.mark.parametrize(
        "body",
        [
            "",
            "BEGIN END",
            "BEGIN RETURN NEW END",
            "BEGIN NEW.c := 'open; RETURN NEW; END",
            "BEGIN NEW.c := 1; RETURN NEW; END /* open",
            "BEGIN NEW.c[1] := 1; RETURN NEW; END",
            "BEGIN NEW.c; RETURN NEW; END",
        ],
    )
    def test_what_cannot_be_cut_may_do_anything(self, body: str) -> None:
        assert read_assignments(body) is None
