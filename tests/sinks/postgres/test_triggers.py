"""A table's own triggers: they run, or they are still while penstock writes, and are then as they were."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import Deliveries

from penstock.core.outcome import Outcome
from penstock.core.slices import Kind
from penstock.errors import StreamFailed, StreamRefused

SCHEMA = pa.schema([("id", pa.int64()), ("of", pa.int64())])
TABLES = """
CREATE TABLE calls (name text, op text);
CREATE TABLE parents (id bigint PRIMARY KEY);
INSERT INTO parents VALUES (1), (2);
CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.calls VALUES (TG_NAME, TG_OP); RETURN coalesce(NEW, OLD); END $$;
"""
ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, of bigint REFERENCES parents DEFERRABLE INITIALLY DEFERRED);"
#: one of each kind, and what each is in pg_trigger
TRIGGERS = """
CREATE TRIGGER plain AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION counted();
CREATE TRIGGER "Always" AFTER INSERT OR UPDATE ON orders FOR EACH STATEMENT EXECUTE FUNCTION counted();
ALTER TABLE orders ENABLE ALWAYS TRIGGER "Always";
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION counted();
CREATE TRIGGER off AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION counted();
ALTER TABLE orders DISABLE TRIGGER off;
CREATE TRIGGER copies AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION counted();
ALTER TABLE orders ENABLE REPLICA TRIGGER copies;
"""
STATES = [("Always", "A"), ("copies", "R"), ("late", "O"), ("off", "D"), ("plain", "O")]


def rows(*given: tuple[int, int]) -> pa.Table:
    return pa.table([[id_ for id_, _ in given], [of for _, of in given]], schema=SCHEMA)


def states(orders: Deliveries) -> list[tuple[Any, ...]]:
    return orders.rows(
        "SELECT tgname::text, tgenabled::text FROM pg_trigger WHERE tgrelid = 'orders'::regclass AND NOT tgisinternal "
        'ORDER BY tgname COLLATE "C"'
    )


def test_triggers_run_unless_they_are_switched_off(database: str) -> None:
    orders = Deliveries(database, {"key": ["id"]})
    orders.run(TABLES + ORDERS + TRIGGERS)
    orders.deliver(rows((1, 1)))
    assert {name for (name,) in orders.rows("SELECT name FROM calls")} == {"Always", "late", "plain"}
    orders.run("TRUNCATE calls")

    orders.options = {"key": ["id"], "triggers": False}
    assert orders.deliver(rows((1, 2), (2, 1), (3, 1))) == Outcome(created=2, updated=1)
    assert (orders.rows("SELECT * FROM calls"), states(orders)) == ([], STATES)
    outcome = orders.deliver(rows((1, 2)), kind=Kind.REFRESH, key=("id",))
    assert outcome == Outcome(equal=1, deleted=2)
    assert (orders.rows("SELECT * FROM calls"), states(orders)) == ([], STATES)

    with pytest.raises(StreamFailed, match="a foreign key has no matching row"):
        orders.deliver(rows((4, 1), (5, 99)))
    assert (orders.rows("SELECT id FROM orders"), states(orders)) == ([(1,)], STATES)
    orders.options = {"key": ["id"], "triggers": False, "bad_rows": "quarantine"}
    assert orders.deliver(rows((4, 1), (5, 99))) == Outcome(created=1, quarantined=1)
    assert (orders.rows("SELECT * FROM calls"), states(orders)) == ([], STATES)

    orders.run("INSERT INTO orders VALUES (9, 1)")
    assert {name for (name,) in orders.rows("SELECT name FROM calls")} == {"Always", "late", "plain"}


def test_in_partitions_each_is_set_back_to_its_own_state(database: str) -> None:
    orders = Deliveries(database, {"key": ["id"], "triggers": False})
    orders.run(
        TABLES
        + """
        CREATE TABLE orders (id bigint PRIMARY KEY, of bigint) PARTITION BY RANGE (id);
        CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10);
        CREATE TABLE high PARTITION OF orders FOR VALUES FROM (10) TO (20);
        CREATE TRIGGER plain AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION counted();
        CREATE TRIGGER own AFTER INSERT ON high FOR EACH ROW EXECUTE FUNCTION counted();
        ALTER TABLE low DISABLE TRIGGER plain;
        ALTER TABLE high ENABLE ALWAYS TRIGGER own
        """
    )
    query = "SELECT tgrelid::regclass::text, tgname::text, tgenabled::text FROM pg_trigger ORDER BY 1, 2"
    before = orders.rows(query)
    assert len(before) == 4
    assert orders.deliver(rows((1, 1), (11, 1))) == Outcome(created=2)
    assert (orders.rows("SELECT * FROM calls"), orders.rows(query)) == ([], before)
    orders.run("INSERT INTO orders VALUES (2, 1), (12, 1)")
    assert orders.rows("SELECT name FROM calls ORDER BY 1") == [("own",), ("plain",)]


def test_only_the_owner_may_switch_them_off(database: str) -> None:
    orders = Deliveries(database, {"key": ["id"], "triggers": False})
    with psycopg.connect(database, autocommit=True) as db:
        name = db.info.dbname
        db.execute(f"CREATE ROLE writer_{name} LOGIN PASSWORD 'penstock'".encode())
        db.execute(
            f"CREATE TABLE orders (id bigint PRIMARY KEY, of bigint); GRANT ALL ON orders TO writer_{name};"
            f"GRANT CREATE ON DATABASE {name} TO writer_{name}".encode()
        )
        try:
            writer = Deliveries(database.replace("penstock:", f"writer_{name}:", 1), orders.options)
            with pytest.raises(
                StreamRefused, match=r"`triggers: false` requires the role to own public\.orders"
            ) as refused:
                writer.deliver(rows((1, 1)))
            assert "member of the owner" in str(refused.value.next_step)
            writer.options = {"key": ["id"]}
            assert writer.deliver(rows((1, 1))) == Outcome(created=1)
        finally:
            db.execute(f"DROP OWNED BY writer_{name} CASCADE; DROP ROLE writer_{name}".encode())


@pytest.mark.parametrize("options", [{"key": ["id"]}, {"mode": "append"}], ids=["upsert", "append"])
def test_a_trigger_that_takes_no_row_is_named(database: str, options: dict[str, Any]) -> None:
    """A BEFORE trigger that returns NULL: nobody else writes there, and trying again does not help."""
    orders = Deliveries(database, options)
    orders.run(TABLES + ORDERS)
    orders.run(
        "CREATE FUNCTION odd_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.id % 2 = 1 THEN RETURN NEW; END IF; RETURN NULL; END $$; "
        'CREATE TRIGGER "odd only" BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION odd_only()'
    )
    with pytest.raises(StreamFailed) as failed:
        orders.deliver(rows((1, 1), (2, 1), (3, 1)))
    assert failed.value.what == (
        "public.orders did not take 1 of 3 rows: its trigger odd only (BEFORE INSERT) returns NULL for them"
    )
    assert "`triggers: false`" in failed.value.next_step
    assert orders.rows() == []
    orders.options = {**options, "triggers": False}
    assert orders.deliver(rows((1, 1), (2, 1), (3, 1))) == Outcome(created=3)


def test_a_trigger_that_keeps_a_row_as_it_is_is_named(database: str) -> None:
    orders = Deliveries(database, {"key": ["id"]})
    orders.run(TABLES + ORDERS)
    orders.deliver(rows((1, 1), (2, 1)))
    orders.run(
        "CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; "
        "CREATE TRIGGER never BEFORE UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION never()"
    )
    with pytest.raises(StreamFailed, match=r"2 of 3 rows: its trigger never \(BEFORE UPDATE OR DELETE\) returns NULL"):
        orders.deliver(rows((1, 2), (2, 2), (3, 1)))
    other = Deliveries(database, {"key": ["id"]}, pipeline="other")
    with pytest.raises(StreamFailed, match=r"1 of 2 rows: its trigger never \(BEFORE UPDATE OR DELETE\) returns NULL"):
        other.deliver(rows((1, 1), (2, 1)).append_column("_change", pa.array(["delete", "upsert"])))


@pytest.mark.parametrize("key", [("id",), ()], ids=["by key", "whole"])
def test_a_refresh_that_a_trigger_keeps_from_deleting_changes_nothing(database: str, key: tuple[str, ...]) -> None:
    orders = Deliveries(database, {})
    orders.run(TABLES + ORDERS)
    orders.deliver(rows((1, 1), (2, 1)), kind=Kind.REFRESH, key=key)
    orders.run(
        "CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; "
        "CREATE TRIGGER never BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION never()"
    )
    before = orders.rows()
    with pytest.raises(StreamFailed, match="rows that the full refresh deletes: its trigger never returns NULL"):
        orders.deliver(rows((3, 1), (4, 1)), kind=Kind.REFRESH, key=key)
    assert orders.rows() == before
    orders.options = {"triggers": False}
    orders.deliver(rows((3, 1), (4, 1)), kind=Kind.REFRESH, key=key)
    assert [row[0] for row in orders.rows()] == [3, 4]
