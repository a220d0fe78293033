"""Bad input: a clear error that names the thing and the next step, word for word; nothing is lost."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import sources
from penstock.store.schema import HEAD
from tests.acceptance.bad_input import CASES, said
from tests.acceptance.shop import Shop
from tests.cli.looked import undated

MARK = "Nothing was lost: the mark has not moved."
FILE = "Nothing was read or written.\nNext: correct the file, then run the same command again"
RESET = "run `penstock state reset shop.yaml --stream orders` to read the table from the beginning"
STORE = "It was not changed, and it is not taken for an empty one."

EXPECTED = {
    "typo in a key": (
        2,
        f"error: shop.yaml:7: pipelines.shop.slice_byts: unknown key; did you mean 'slice_bytes'?\n{FILE}",
    ),
    "unknown source type": (
        2,
        "error: shop.yaml:5: pipelines.shop.source.type: unknown source type 'postgre'; did you mean 'postgres'? "
        f"Known: {', '.join(sources.types())}\n{FILE}",
    ),
    "missing environment variable": (
        2,
        "error: shop.yaml:5: pipelines.shop.source.url: environment variable DATABASE_URI is not set; did you "
        f"mean ${{DATABASE_URL}}?\n{FILE}",
    ),
    "wrong port": (
        3,
        "error: shop: source: cannot connect to PostgreSQL at 127.0.0.1:1, database shop, user penstock: "
        f"Connection refused\n{MARK}\n"
        "Next: see that PostgreSQL runs there and listens on that port, or correct `url`",
    ),
    "wrong password": (
        3,
        "error: shop: source: cannot connect to PostgreSQL at 127.0.0.1:PORT, database DATABASE, user penstock: "
        f'password authentication failed for user "penstock"\n{MARK}\n'
        "Next: correct the user or the password in `url`",
    ),
    "missing database": (
        3,
        "error: shop: source: cannot connect to PostgreSQL at 127.0.0.1:PORT, database nowhere, user penstock: "
        f'database "nowhere" does not exist\n{MARK}\nNext: correct the database in `url`, or create it',
    ),
    "missing table": (
        2,
        "error: shop/orders: there is no table public.ordres in database DATABASE; did you mean public.orders?\n"
        f"{MARK}\nNext: set `table: public.orders`",
    ),
    "misspelt column": (
        2,
        "error: shop/orders: public.orders has no column update_at (`cursor`; did you mean 'updated_at'?)\n"
        f"{MARK}\nNext: correct `cursor`; the columns are: id, customer_id, amount, note, updated_at",
    ),
    "no SELECT permission": (
        2,
        f"error: shop/orders: user reader_DATABASE may not read public.orders\n{MARK}\n"
        "Next: GRANT SELECT ON public.orders TO reader_DATABASE;",
    ),
    "identical cursor and tiebreaker": (
        2,
        "error: shop.yaml:10: pipelines.shop.streams.orders: `cursor` and `tiebreaker` are the same column, "
        "updated_at; name a `tiebreaker` that distinguishes rows with the same cursor, or replace it by `unique: true` "
        f"if updated_at is unique and only increases\n{FILE}",
    ),
    "non-unique tiebreaker": (
        2,
        "error: shop/orders: the tiebreaker customer_id does not tell rows of public.orders apart: no unique index "
        f"proves it\n{MARK}\nNext: set `tiebreaker: id` (the primary key)",
    ),
    "nullable tiebreaker": (
        2,
        f"error: shop/orders: the tiebreaker note of public.orders is nullable\n{MARK}\n"
        "Next: set `tiebreaker: id` (the primary key)",
    ),
    "json cursor": (
        2,
        f"error: shop/orders: payload of public.orders cannot be the cursor: its type json has no order\n{MARK}\n"
        "Next: name a cursor of a type with an order, such as a timestamp or a number",
    ),
    "missing index": (
        2,
        "error: shop/orders: public.orders has no index on (updated_at, id): every slice would sort the table\n"
        f"{MARK}\nNext: CREATE INDEX CONCURRENTLY ON public.orders (updated_at, id); or set `index: optional`",
    ),
    "NULL cursors": (
        2,
        "error: shop/orders: 1 row of public.orders has NULL as the cursor updated_at and would never be read\n"
        f"{MARK}\nNext: fill updated_at in, or set `nulls: skip` to leave such rows out",
    ),
    "unwritable directory": (
        2,
        "error: shop: the output folder FOLDER/taken/out cannot be written: FOLDER/taken is not a folder\n"
        f"{MARK}\nNext: choose another sink.directory, or give this user the right to write there",
    ),
    "corrupt store": (
        2,
        "error: the store FOLDER/.penstock/store.db is not a SQLite database: it is another kind of file, or it was "
        f"overwritten\n{STORE}\n"
        "Next: name another file for the store; if this one was it, move it aside, with store.db-wal and store.db-shm "
        "if they exist; then restore a copy of it, or run `penstock state recover shop.yaml`, which rebuilds it "
        "from what the sink holds",
    ),
    "store of a newer version": (
        2,
        "error: the store FOLDER/.penstock/store.db was written by penstock 0.1.0 (revision 9999); this is penstock "
        f"0.1.0 (revision {HEAD})\n{STORE}\nNext: upgrade penstock to at least that version",
    ),
    "changed cursor": (
        2,
        "error: shop/orders: the mark was made with cursor updated_at and tiebreaker id, and the stream now has "
        f"cursor id and `unique: true`\n{MARK}\nNext: go back to cursor updated_at and tiebreaker id; or run `penstock "
        "state migrate shop.yaml --stream orders`, which keeps what was delivered elsewhere and reads the table from "
        f"the beginning; or, where the sink has a key, {RESET}",
    ),
    "mark that does not fit the source": (
        2,
        "error: shop/orders: the mark was made when updated_at of public.orders was timestamp with time zone; it is "
        f"bigint now\n{MARK}\nNext: change the column back, or {RESET}",
    ),
    "source database replaced by another one": (
        2,
        "error: shop/orders: the mark was made in database DATABASE (oid N) of cluster N, and now database DATABASE "
        f"(oid N) of cluster N answers: another database\n{MARK}\nNext: point `url` back at the first one, or {RESET}",
    ),
}


def _delivered(shop: Shop) -> dict[str, bytes]:
    out = shop.folder / "out"
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def _marks(shop: Shop) -> object:
    shown = shop.command.run("state", "show", "shop.yaml", "--json")
    if shown.code:
        return None
    # What the last run found, and how it failed, is no mark.
    of_the_run = ("left", "left_exact", "horizon", "proven", "held_back", "blocker", "looked_at", "last_error")
    return [
        [{key: stream[key] for key in stream if key not in of_the_run} for stream in found]
        for found in (pipeline["streams"] for pipeline in json.loads(shown.out)["pipelines"])
    ]


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=300)
    assert shop.command.run("run", "shop.yaml").code == 0
    good = (shop.folder / "shop.yaml").read_text()
    files, marks = _delivered(shop), _marks(shop)
    assert marks is not None
    CASES[name](shop)
    failed = shop.command.run("run", "shop.yaml")
    assert (failed.code, said(undated(failed.err), shop).strip()) == EXPECTED[name]
    assert _delivered(shop) == files
    if "store" not in name:
        (shop.folder / "shop.yaml").write_text(good)
        assert _marks(shop) == marks


def test_full_disk(database: str, tmp_path: Path) -> None:
    """Half a slice on a full disk: an error, nothing visible, nothing left behind; with space, all is delivered."""
    alone = ["unshare", "--mount", "--propagation", "unchanged"]
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = [*alone, *root, sys.executable, "-m", "tests.acceptance.full_disk", database, str(tmp_path)]
    filled = subprocess.run(command, capture_output=True, text=True)
    assert filled.returncode == 0, filled.stderr
    found = json.loads(filled.stdout)
    # How many slices came before it is the disk's business.
    said_ = re.sub(r"slice \d+", "slice N", undated(found["err"]).strip())
    assert (found["code"], said_) == (
        1,
        f"error: shop/orders: no space left for {tmp_path / 'out'}\n"
        "Nothing was lost: the mark is at slice N, up to which everything was delivered, and incomplete files are not "
        "visible.\n"
        "Next: free some space and run again; the slice is moved again from its start",
    )
    assert found["left"] == []
    assert (found["again"], found["same"]) == (0, True)
