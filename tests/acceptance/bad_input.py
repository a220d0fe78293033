"""The likeliest bad inputs, each as a shop that was working and is then given one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from urllib.parse import urlsplit

import psycopg

from tests.acceptance.shop import Shop

Case = Callable[[Shop], None]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def register(make: Case) -> Case:
        CASES[name] = make
        return make

    return register


def edit(shop: Shop, old: str, new: str) -> None:
    path = shop.folder / "shop.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def execute(shop: Shop, *statements: str) -> None:
    with psycopg.connect(shop.url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement)


def key(shop: Shop, new: str) -> None:
    edit(shop, "{cursor: updated_at, tiebreaker: id}", new)


@case("typo in a key")
def _(shop: Shop) -> None:
    edit(shop, "slice_bytes:", "slice_byts:")


@case("unknown source type")
def _(shop: Shop) -> None:
    edit(shop, "type: postgres", "type: postgre")


@case("missing environment variable")
def _(shop: Shop) -> None:
    edit(shop, "${DATABASE_URL}", "${DATABASE_URI}")


@case("wrong port")
def _(shop: Shop) -> None:
    edit(shop, "${DATABASE_URL}", "postgresql://penstock:secret@127.0.0.1:1/shop")


@case("wrong password")
def _(shop: Shop) -> None:
    edit(shop, "${DATABASE_URL}", shop.url.replace("penstock:penstock@", "penstock:wrong@"))


@case("missing database")
def _(shop: Shop) -> None:
    edit(shop, "${DATABASE_URL}", shop.url.rsplit("/", 1)[0] + "/nowhere")


@case("missing table")
def _(shop: Shop) -> None:
    edit(shop, "orders: {", "orders: {table: ordres, ")


@case("misspelt column")
def _(shop: Shop) -> None:
    key(shop, "{cursor: update_at, tiebreaker: id}")


@case("no SELECT permission")
def _(shop: Shop) -> None:
    role = "reader_" + shop.url.rsplit("/", 1)[1]
    execute(shop, f"create role {role} login password 'reader'", f"grant usage on schema public to {role}")
    edit(shop, "${DATABASE_URL}", shop.url.replace("penstock:penstock@", f"{role}:reader@"))


@case("identical cursor and tiebreaker")
def _(shop: Shop) -> None:
    key(shop, "{cursor: updated_at, tiebreaker: updated_at}")


@case("non-unique tiebreaker")
def _(shop: Shop) -> None:
    execute(
        shop, "alter table orders alter customer_id set not null", "create index on orders (updated_at, customer_id)"
    )
    key(shop, "{cursor: updated_at, tiebreaker: customer_id}")


@case("nullable tiebreaker")
def _(shop: Shop) -> None:
    execute(shop, "create unique index on orders (note)", "create index on orders (updated_at, note)")
    key(shop, "{cursor: updated_at, tiebreaker: note}")


@case("json cursor")
def _(shop: Shop) -> None:
    execute(shop, "alter table orders add payload json")
    key(shop, "{cursor: payload, tiebreaker: id}")


@case("missing index")
def _(shop: Shop) -> None:
    execute(shop, "drop index orders_updated_at_id_idx")


@case("NULL cursors")
def _(shop: Shop) -> None:
    execute(
        shop, "alter table orders alter updated_at drop not null", "update orders set updated_at = null where id = 5"
    )


@case("unwritable directory")
def _(shop: Shop) -> None:
    (shop.folder / "taken").write_text("a file, not a folder")
    edit(shop, "directory: out", "directory: taken/out")


@case("corrupt store")
def _(shop: Shop) -> None:
    (shop.folder / ".penstock/store.db").write_bytes(b"not a database at all" * 100)


@case("store of a newer version")
def _(shop: Shop) -> None:
    db = sqlite3.connect(shop.folder / ".penstock/store.db")
    db.execute("update revision set version_num = '9999'")
    db.commit()
    db.close()


@case("changed cursor")
def _(shop: Shop) -> None:
    key(shop, "{cursor: id, unique: true}")


@case("mark that does not fit the source")
def _(shop: Shop) -> None:
    execute(
        shop,
        "alter table orders alter updated_at type bigint using extract(epoch from updated_at)",
    )


@case("source database replaced by another one")
def _(shop: Shop) -> None:
    """The same name, the same table, but not the database the mark was made from."""
    name = shop.url.rsplit("/", 1)[1]
    maintenance = shop.url.rsplit("/", 1)[0] + "/postgres"
    with psycopg.connect(maintenance, autocommit=True) as db:
        db.execute(f"alter database {name} rename to {name}_before")
        db.execute(f"create database {name} template {name}_before")
        db.execute(f"drop database {name}_before")


def said(text: str, shop: Shop) -> str:
    """A message without what differs from run to run."""
    url = urlsplit(shop.url)
    for found, name in ((str(shop.folder), "FOLDER"), (f":{url.port},", ":PORT,"), (url.path[1:], "DATABASE")):
        text = text.replace(found, name)
    return re.sub(r"\b(oid|cluster) \d+", r"\1 N", text)
