"""A small table of orders to read from, and sources on it."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.ports import Context, NoProbe
from penstock.sources.postgres import Options, PostgresSource, StreamOptions, build

ORDERS = """
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    updated_at timestamptz,
    status text NOT NULL DEFAULT 'new',
    amount numeric(12, 2),
    payload json
);
CREATE INDEX ON orders (updated_at, id);
"""

#: a trigger that gives each updated order another place
STAMP = """
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$;
CREATE TRIGGER stamp BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION stamp();
"""

#: closed when the test ends
OPENED: list[PostgresSource] = []


def source(url: str, streams: Mapping[str, Mapping[str, Any]] | None = None, **options: Any) -> PostgresSource:
    """A source as a pipeline file would build it."""
    said = {name: StreamOptions.model_validate(stream) for name, stream in (streams or {}).items()}
    context = Context(pipeline="shop", folder=".", probe=NoProbe())
    OPENED.append(build(Options.model_validate({"url": url, **options}), said, context))
    return OPENED[-1]


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


class Table:
    """The orders as the origin of a contract: batches of rows share one `updated_at`."""

    stream = "orders"

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.options = options
        execute(url, ORDERS)

    def open(self) -> PostgresSource:
        return source(self.url, {"orders": self.options})

    def open_with(self, stream: str, options: Mapping[str, Any]) -> PostgresSource:
        return source(self.url, {stream: options})

    def arrive(self, count: int) -> None:
        statement = sql.SQL(
            "INSERT INTO orders (updated_at, amount) SELECT coalesce(max(m.updated_at), '2024-01-01Z')"
            " + interval '1 microsecond', 1.25 FROM (SELECT max(updated_at) FROM orders) m (updated_at)"
            " CROSS JOIN generate_series(1, {}) GROUP BY m.updated_at, generate_series"
        ).format(sql.Literal(count))
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def rows(self) -> Sequence[Hashable]:
        return [row[0] for row in rows(self.url, "SELECT id FROM orders")]

    def traces(self) -> Hashable:
        """Every row's version and place, and every relation with its file."""
        versions = rows(self.url, "SELECT xmin::text, ctid::text FROM orders ORDER BY ctid")
        relations = rows(self.url, "SELECT oid, relname, relfilenode, relnatts FROM pg_class ORDER BY oid")
        return (*versions, *relations)

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        ids: list[Hashable] = batch.column("id").to_pylist()
        return ids
