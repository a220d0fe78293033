"""How each kind of table would best be read, and why: proposals are judged by their options and their words."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.tables import execute, rows, source

from penstock.errors import InputError
from penstock.ports import DiscoveredStream
from penstock.sources.postgres import proposals

TOUCH = """
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.updated_at := now(); RETURN NEW; END';
"""
KEYED = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
STAMPED = f"CREATE TABLE t ({KEYED}, updated_at timestamptz NOT NULL DEFAULT now(), x text)"
INDEXED = "CREATE INDEX ON t (updated_at, id)"
TRIGGER = "CREATE TRIGGER touched BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION touch()"
BY_TIME = {"cursor": "updated_at", "tiebreaker": "id"}


def offered(url: str, name: str = "t", **options: Any) -> DiscoveredStream:
    [found] = [each for each in source(url, **options).discover() if each.name == name]
    return found


def options(url: str, name: str = "t") -> Mapping[str, Any]:
    return offered(url, name).options


def why(url: str, name: str = "t") -> str:
    return "\n".join(offered(url, name).reasons)


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "SMALL_TABLE_BYTES", -1)


class TestByATimeOfChange:
    def test_a_trigger_and_an_index_are_all_that_is_wanted(self, database: str) -> None:
        execute(database, TOUCH, STAMPED, INDEXED, TRIGGER)
        assert options(database) == BY_TIME
        assert offered(database).reasons == ("cursor updated_at: the trigger touched sets it with every update",)

    def test_without_a_trigger_it_is_said_that_the_application_must_set_it(self, database: str) -> None:
        execute(database, STAMPED, INDEXED)
        assert options(database) == BY_TIME
        assert "only if the application sets it too" in why(database)

    @pytest.mark.parametrize(
        "trigger",
        [
            "CREATE TRIGGER touched AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION touch()",
            "CREATE TRIGGER touched BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION touch()",
            "CREATE TRIGGER touched BEFORE UPDATE OF x ON t FOR EACH ROW EXECUTE FUNCTION touch()",
            f"{TRIGGER}; ALTER TABLE t DISABLE TRIGGER touched",
            "CREATE TRIGGER touched BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.x <> NEW.x) EXECUTE FUNCTION touch()",
        ],
    )
    def test_a_trigger_that_misses_updates_is_not_trusted(self, database: str, trigger: str) -> None:
        execute(database, TOUCH, STAMPED, INDEXED, *trigger.split("; "))
        assert "only if the application sets it too" in why(database)

    def test_a_function_that_sets_another_column_is_not_trusted(self, database: str) -> None:
        execute(
            database, TOUCH.replace("NEW.updated_at := now()", "NEW.x := NEW.updated_at"), STAMPED, INDEXED, TRIGGER
        )
        assert "only if the application sets it too" in why(database)

    def test_any_name_will_do_if_a_trigger_stamps_it(self, database: str) -> None:
        table = STAMPED.replace("updated_at", "w")
        execute(database, TOUCH.replace("updated_at", "w"), table, INDEXED.replace("updated_at", "w"), TRIGGER)
        assert options(database) == {"cursor": "w", "tiebreaker": "id"}

    @pytest.mark.parametrize(
        "name", ["updated_at", "modifiedOn", "last_update", "lastmodified", "t_changed_at", "mtime"]
    )
    def test_names_that_say_when_a_row_was_changed(self, database: str, name: str) -> None:
        execute(database, STAMPED.replace("updated_at", f'"{name}"'), f'CREATE INDEX ON t ("{name}", id)')
        assert options(database) == {"cursor": name, "tiebreaker": "id"}

    @pytest.mark.parametrize(
        "name", ["created_at", "password_changed_at", "exchanged_at", "valid_until", "update_until"]
    )
    def test_names_that_say_something_else(self, database: str, name: str) -> None:
        execute(database, STAMPED.replace("updated_at", name), f"CREATE INDEX ON t ({name}, id)")
        assert options(database) == {}

    def test_the_tiebreaker_follows_the_index(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (a int, b int, updated_at timestamptz NOT NULL, PRIMARY KEY (a, b))",
            "CREATE INDEX ON t (updated_at, b, a)",
        )
        assert options(database) == {"cursor": "updated_at", "tiebreaker": ["b", "a"]}

    def test_a_small_table_without_the_index_is_read_whole_and_told_how_not_to(self, database: str) -> None:
        execute(database, STAMPED)
        assert options(database) == {}
        assert "set cursor: updated_at, tiebreaker: id" in why(database)
        assert offered(database).reasons[-1] == "CREATE INDEX CONCURRENTLY ON public.t (updated_at, id);"
        execute(database, *offered(database).reasons[-1:])
        assert options(database) == BY_TIME

    @pytest.mark.usefixtures("nothing_is_small")
    def test_a_large_one_is_sorted_for_every_slice(self, database: str) -> None:
        execute(database, STAMPED)
        assert options(database) == {**BY_TIME, "index": "optional"}
        assert "CREATE INDEX CONCURRENTLY ON public.t (updated_at, id);" in why(database)

    def test_a_coarse_time_is_told(self, database: str) -> None:
        execute(database, STAMPED.replace("timestamptz", "timestamptz(0)"), INDEXED)
        assert "only 0 fractional digits" in why(database)

    def test_without_a_primary_key_it_is_read_whole(self, database: str) -> None:
        execute(database, "CREATE TABLE t (updated_at timestamptz NOT NULL)", "CREATE INDEX ON t (updated_at)")
        assert options(database) == {}
        assert "no primary key" in why(database)


class TestNulls:
    NULLABLE = STAMPED.replace(" NOT NULL", "")

    def test_none_now_is_enough_and_is_told(self, database: str) -> None:
        execute(database, self.NULLABLE, INDEXED, "INSERT INTO t (x) VALUES ('a')")
        assert options(database) == BY_TIME
        assert "is nullable (no NULLs at present)" in why(database)

    def test_some_now_are_not_skipped_silently(self, database: str) -> None:
        execute(database, self.NULLABLE, INDEXED, "INSERT INTO t (updated_at) VALUES (now()), (NULL)")
        assert options(database) == {}
        assert "is NULL in some rows" in why(database)
        assert "ALTER TABLE public.t ALTER COLUMN updated_at SET NOT NULL;" in why(database)

    @pytest.mark.usefixtures("nothing_is_small")
    def test_a_large_table_is_not_read_to_find_out(self, database: str) -> None:
        execute(database, self.NULLABLE)
        assert options(database) == {}
        assert "would read the whole table" in why(database)


@pytest.mark.usefixtures("nothing_is_small")
class TestOnlyAddedTo:
    LOG = f"CREATE TABLE t ({KEYED}, x text)"
    FILL = "INSERT INTO t (x) SELECT 'x' FROM generate_series(1, 10)"

    def test_a_number_if_nothing_was_ever_changed(self, database: str) -> None:
        counted(database, self.LOG, self.FILL)
        assert options(database) == {"cursor": "id", "unique": True}
        assert "An update would not be seen" in why(database)

    def test_a_small_table_with_an_identity_key_too(self, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(proposals, "SMALL_TABLE_BYTES", 16 << 20)
        counted(database, "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, x text)", self.FILL)
        assert options(database) == {"cursor": "id", "unique": True}
        execute(database, "DROP TABLE t")
        counted(database, "CREATE TABLE t (id bigserial PRIMARY KEY, x text)", self.FILL)
        assert options(database) == {}

    @pytest.mark.parametrize("change", ["UPDATE t SET x = 'y' WHERE id = 1", "DELETE FROM t WHERE id = 1"])
    def test_a_change_is_evidence_against_it(self, database: str, change: str) -> None:
        counted(database, self.LOG, self.FILL, change)
        assert options(database) == {}
        assert "its rows are changed" in why(database)

    def test_statistics_that_have_not_seen_its_rows_are_no_evidence(self, database: str) -> None:
        counted(database, self.LOG, self.FILL, "ANALYZE t")
        execute(database, "SELECT pg_stat_reset()")
        assert options(database) == {}

    def test_a_key_that_the_application_makes_is_no_number(self, database: str) -> None:
        counted(database, "CREATE TABLE t (id bigint PRIMARY KEY, x text)", "INSERT INTO t VALUES (1, 'x')")
        assert options(database) == {}


def counted(url: str, *statements: str) -> None:
    """Statements whose changes the statistics know of when it returns: they are told when the session ends."""
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement.encode())
    for _ in range(200):
        if rows(url, "SELECT FROM pg_stat_user_tables WHERE relname = 't' AND n_tup_ins > 0"):
            return
        execute(url, "SELECT pg_sleep(0.05)")
    raise AssertionError("the statistics do not arrive")


class TestWhatElseThereIs:
    def test_partitions_belong_to_their_table(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (id int, updated_at timestamptz NOT NULL, PRIMARY KEY (id, updated_at))"
            " PARTITION BY RANGE (updated_at)",
            "CREATE TABLE t_1 PARTITION OF t DEFAULT",
            "INSERT INTO t SELECT n, now() FROM generate_series(1, 100) n",
            "CREATE INDEX ON t (updated_at, id)",
            "ANALYZE t",
        )
        [found] = source(database).discover()
        assert (found.name, found.what, found.rows) == ("t", "partitioned table", 100)
        assert found.bytes
        assert found.options == BY_TIME

    def test_views_have_no_key(self, database: str) -> None:
        execute(database, STAMPED, "CREATE VIEW v AS SELECT * FROM t", "CREATE MATERIALIZED VIEW m AS SELECT * FROM t")
        assert [(each.name, each.what, dict(each.options)) for each in source(database).discover()] == [
            ("m", "materialized view", {}),
            ("t", "table", {}),
            ("v", "view", {}),
        ]

    def test_a_materialized_view_that_was_never_filled_is_refused(self, database: str) -> None:
        execute(database, "CREATE MATERIALIZED VIEW m AS SELECT 1 AS x WITH NO DATA")
        assert offered(database, "m").refused == (
            "the materialized view was never filled: REFRESH MATERIALIZED VIEW public.m;"
        )

    def test_what_an_extension_brings_is_not_offered(self, database: str) -> None:
        execute(database, "CREATE EXTENSION pg_stat_statements", STAMPED)
        assert [each.name for each in source(database).discover()] == ["t"]

    @pytest.mark.parametrize("name", ["a/b", "a.b", 'a"b', " a", "a\nb: {}", "..", "Größe $x", "${HOME}", "#", "null"])
    def test_a_table_of_any_name_is_a_stream(self, database: str, name: str) -> None:
        with psycopg.connect(database, autocommit=True) as db:
            db.execute(psycopg.sql.SQL("CREATE TABLE {} (id int)").format(psycopg.sql.Identifier(name)))
        [found] = source(database).discover()
        other = source(database, {found.name: found.options})
        assert other.content(found.name).columns
        assert "/" not in found.name
        assert found.name.isprintable()

    def test_two_names_that_become_one_are_told_apart(self, database: str) -> None:
        execute(database, 'CREATE TABLE "a/b" (id int)', 'CREATE TABLE "a b" (id int)', 'CREATE TABLE "a_b" (id int)')
        names = [each.name for each in source(database).discover()]
        assert len(set(names)) == 3

    def test_a_schema_that_is_not_there_is_named(self, database: str) -> None:
        with pytest.raises(InputError, match=r"there is no schema publik .*did you mean 'public'"):
            source(database, schema="publik").discover()

    def test_an_empty_schema_offers_nothing(self, database: str) -> None:
        assert list(source(database).discover()) == []


class TestPermissions:
    @pytest.fixture
    def reader(self, postgres_server: PostgresServer, database: str) -> Iterator[str]:
        """The database as one who may read nothing yet."""
        execute(database, "DROP ROLE IF EXISTS looker", "CREATE ROLE looker LOGIN PASSWORD 'looker'")
        yield postgres_server.url(Path(database).name, user="looker", password="looker")
        execute(database, "DROP OWNED BY looker", "DROP ROLE looker")

    def test_a_table_that_may_not_be_read_is_refused_with_the_grant(self, database: str, reader: str) -> None:
        execute(database, STAMPED)
        assert offered(reader).refused == "user looker may not read public.t: GRANT SELECT ON public.t TO looker;"

    def test_columns_that_may_not_be_read_are_left_out(self, database: str, reader: str) -> None:
        execute(database, STAMPED, INDEXED, "GRANT SELECT (id, updated_at) ON t TO looker")
        assert options(reader) == {"columns": ["id", "updated_at"], **BY_TIME}
        assert "left out, because user looker may not read it: x" in why(reader)

    def test_row_security_is_refused_with_the_choice(self, database: str, reader: str) -> None:
        execute(database, STAMPED, "GRANT SELECT ON t TO looker", "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        refused = offered(reader).refused
        assert refused is not None
        assert "BYPASSRLS" in refused
        assert "row_security: accept" in refused
