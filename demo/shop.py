"""Starts the demo's server, fills its shop, and describes the tables for the comparison."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import psycopg
from psycopg import sql
from tests.harness.postgres import LocalServer, PortTaken, free_port, newest_programs

from demo.folder import HERE, Folder

DATABASE = "shop"
#: number of ports to try, as another process may take a free one
PORT_ATTEMPTS = 5


@dataclass(frozen=True)
class Table:
    """One table of the shop."""

    name: str
    key: str
    columns: tuple[str, ...]
    #: the column that distinguishes versions of a row; None if rows never change or are fully refreshed
    version: str | None = None


ORDERS = Table("orders", "id", ("id", "sku", "status", "amount", "gift", "placed_on", "updated_at"), "updated_at")
EVENTS = Table("events", "id", ("id", "happened_at", "kind", "payload"))
PRODUCTS = Table("products", "sku", ("sku", "title", "price"))
TABLES = (ORDERS, EVENTS, PRODUCTS)


def server_of(folder: Folder, *, stays: bool) -> LocalServer:
    """The folder's server, running or not; with `stays`, it outlives this process."""
    directory = folder.server_directory()
    port, password = _load_access(folder) or (free_port(), secrets.token_hex(12))
    return LocalServer(newest_programs(), directory, port=port, password=password, ends_with_us=not stays)


def start(folder: Folder, server: LocalServer) -> None:
    """Start the server, on another port if its own is in use."""
    for left in reversed(range(PORT_ATTEMPTS)):
        try:
            _save_access(folder, server)
            server.start()
            return
        except PortTaken:
            if not left:
                raise
            server.port = free_port()


def fill(server: LocalServer, orders: int) -> str:
    """Create the shop and return its URL. The first shop is kept as a template for later ones."""
    text = (HERE / "shop.sql").read_text()
    seed = f"shop_{orders}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    server.drop(DATABASE)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [seed]).fetchone()
    if known is None:
        temporary = f"{seed}_new"
        server.drop(temporary)
        with psycopg.connect(server.create(temporary), autocommit=True) as connection:
            connection.execute("SELECT set_config('demo.orders', %s, false)", [str(orders)])
            connection.execute(text.encode())
        server.execute(
            sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(temporary), sql.Identifier(seed))
        )
    return server.create(DATABASE, template=seed)


def counts(url: str) -> dict[str, int]:
    """Rows of each table."""
    with psycopg.connect(url, autocommit=True) as connection:
        return {table.name: _count(connection, table) for table in TABLES}


def _count(connection: psycopg.Connection[tuple[int]], table: Table) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table.name))).fetchone()
    return row[0] if row is not None else 0


def _save_access(folder: Folder, server: LocalServer) -> None:
    """Save port and password for the next process; only the owner may read them."""
    file = folder.path / ".server"
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(f"{server.port} {server.password}\n")


def _load_access(folder: Folder) -> tuple[int, str] | None:
    try:
        port, password = (folder.path / ".server").read_text().split()
        return int(port), password
    except (OSError, ValueError):
        return None
