"""Which streams a source offers: those that are configured, and those that it discovers."""

import pytest
from tests.sources.tables import execute, source

from penstock.core.slices import Kind
from penstock.errors import InputError
from penstock.ports import StreamInfo

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, at date);
CREATE TABLE lines (a int, b int, PRIMARY KEY (b, a));
CREATE TABLE audit_1 (id int PRIMARY KEY);
CREATE TABLE notes (text text);
CREATE TABLE events (at date, id int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE events_2024 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE VIEW seen AS SELECT * FROM orders;
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id int PRIMARY KEY);
"""
NO_KEY = "it has no primary key; list it under `streams` to read it whole in every run"


@pytest.fixture
def shop(database: str) -> str:
    execute(database, TABLES)
    return database


def catalog(url: str, *args: object, **options: object) -> list[StreamInfo]:
    origin = source(url, *args, **options)  # type: ignore[arg-type]  # passed on as they are
    return list(origin.catalog())


def test_without_streams_every_table_with_a_primary_key(shop: str) -> None:
    assert catalog(shop) == [
        StreamInfo("audit_1", Kind.REFRESH, ("id",)),
        StreamInfo("events", Kind.REFRESH, ("id", "at")),
        StreamInfo("lines", Kind.REFRESH, ("b", "a")),
        StreamInfo("notes", Kind.REFRESH, skipped=NO_KEY),
        StreamInfo("orders", Kind.REFRESH, ("id",)),
    ]


def test_discovered_streams_can_be_read(shop: str) -> None:
    origin = source(shop)
    assert [origin.content(info.name).identity["table"] for info in origin.catalog()] == [
        "public.audit_1",
        "public.events",
        "public.lines",
        "public.notes",
        "public.orders",
    ]


def test_names_and_patterns_are_left_out(shop: str) -> None:
    names = [info.name for info in catalog(shop, exclude=["audit_*", "notes", "public.l?nes", "ORDERS"])]
    assert names == ["events", "orders"]


def test_configured_streams_alone(shop: str) -> None:
    streams = {
        "orders": {"cursor": "at", "tiebreaker": "id", "accept_drop": True},
        "sold": {"table": "sales.orders"},
        "gone": {},
        "no.table.name": {},
        "notes": {},
    }
    assert catalog(shop, streams) == [
        StreamInfo("orders", Kind.ROWS, ("id",), ("at", "id"), accept_drop=True),
        StreamInfo("sold", Kind.REFRESH, ("id",)),
        StreamInfo("gone", Kind.REFRESH),
        StreamInfo("no.table.name", Kind.REFRESH),
        StreamInfo("notes", Kind.REFRESH),
    ]


def test_both(shop: str) -> None:
    streams = {"bills": {"table": "orders", "cursor": "id", "unique": True}, "lines": {}}
    infos = catalog(shop, streams, discover=True, exclude=["audit_1", "lines"])
    assert [(info.name, info.kind) for info in infos] == [
        ("bills", Kind.ROWS),
        ("lines", Kind.REFRESH),
        ("events", Kind.REFRESH),
        ("notes", Kind.REFRESH),
    ]


def test_a_discovered_table_does_not_take_a_configured_streams_name(shop: str) -> None:
    infos = catalog(
        shop, {"orders": {"table": "sales.orders"}}, discover=True, exclude=["lines", "notes", "events", "audit_1"]
    )
    assert [info.name for info in infos] == ["orders", "public.orders"]


def test_a_discovered_table_with_a_dot_in_its_name(shop: str) -> None:
    execute(shop, "CREATE SCHEMA odd", 'CREATE TABLE odd."a.b" (id int PRIMARY KEY)')
    origin = source(shop, schema="odd")
    [info] = origin.catalog()
    assert info.name == 'odd."a.b"'
    assert origin.content(info.name).identity["table"] == 'odd."a.b"'


def test_another_schema(shop: str) -> None:
    assert [info.name for info in catalog(shop, schema="sales")] == ["orders"]
    assert catalog(shop, discover=False) == []


def test_a_misspelt_schema(shop: str) -> None:
    with pytest.raises(InputError) as refused:
        catalog(shop, schema="sale")
    assert refused.value.what == (
        f"there is no schema sale in database {shop.rpartition('/')[2]}; did you mean 'sales'?"
    )
    assert refused.value.next_step == "set `schema: sales`"


def test_a_schema_without_tables(shop: str) -> None:
    execute(shop, "CREATE SCHEMA bare")
    assert catalog(shop, schema="bare") == []
