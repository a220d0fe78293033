"""The demo's server and its shop: started, filled, and described for the comparison."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import psycopg
from psycopg import sql

from penstock.demo import programs
from penstock.demo.folder import Folder, shop
from penstock.demo.server import LocalServer, PortTaken, free_port

DATABASE = "shop"
#: how often another port is tried, should somebody take the one that was free a moment ago
TRIES = 5


@dataclass(frozen=True)
class Table:
    """One table of the shop."""

    name: str
    key: str
    columns: tuple[str, ...]
    #: the column that tells two versions of a row apart; None: rows are never changed, or are always read whole
    version: str | None = None


CUSTOMERS = Table("customers", "id", ("id", "name", "city", "likes", "updated_at"), "updated_at")
ORDERS = Table(
    "orders", "id", ("id", "customer_id", "status", "amount", "gift", "placed_on", "updated_at"), "updated_at"
)
ORDER_LINES = Table("order_lines", "id", ("id", "order_id", "sku", "quantity"))
EVENTS = Table("events", "id", ("id", "happened_at", "kind", "payload"))
PRODUCTS = Table("products", "sku", ("sku", "title", "price"))
TABLES = (CUSTOMERS, ORDERS, ORDER_LINES, EVENTS, PRODUCTS)


def server_of(folder: Folder, *, stays: bool) -> LocalServer:
    """The folder's server, running or not. `stays`: once started, it goes on without us."""
    directory = folder.server_directory()
    port, password = _remembered(folder) or (free_port(), secrets.token_hex(12))
    return LocalServer(programs.usable(directory), directory, port=port, password=password, ends_with_us=not stays)


def start(folder: Folder, server: LocalServer) -> None:
    """Start the server, on another port if somebody has taken the one it had."""
    for left in reversed(range(TRIES)):
        try:
            _remember(folder, server)
            server.start()
            return
        except PortTaken:
            if not left:
                raise
            server.port = free_port()


def fill(server: LocalServer, orders: int) -> str:
    """A fresh shop; returns its URL. What was filled once is kept aside, and copied the next time."""
    text = shop("shop.sql")
    seed = f"shop_{orders}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    server.drop(DATABASE)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [seed]).fetchone()
    if known is None:
        making = f"{seed}_new"
        server.drop(making)
        with psycopg.connect(server.create(making), autocommit=True) as connection:
            connection.execute("SELECT set_config('demo.orders', %s, false)", [str(orders)])
            connection.execute(text.encode())
        server.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(making), sql.Identifier(seed)))
    return server.create(DATABASE, template=seed)


def counts(url: str) -> dict[str, int]:
    """Rows of each table."""
    with psycopg.connect(url, autocommit=True) as connection:
        return {table.name: _count(connection, table) for table in TABLES}


def _count(connection: psycopg.Connection[tuple[int]], table: Table) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table.name))).fetchone()
    return row[0] if row is not None else 0


def _remember(folder: Folder, server: LocalServer) -> None:
    """Port and password outlive the process; only the owner may read them."""
    kept = folder.path / ".server"
    kept.unlink(missing_ok=True)
    kept.touch(mode=0o600)
    kept.write_text(f"{server.port} {server.password}\n")


def _remembered(folder: Folder) -> tuple[int, str] | None:
    try:
        port, password = (folder.path / ".server").read_text().split()
        return int(port), password
    except (OSError, ValueError):
        return None
