"""Loads from files that were made elsewhere: the stream waits for them, and nothing is missing in between."""

from __future__ import annotations

import os
import random
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.sources.outbox.shops import IMAGES, SCHEMA, TRUTH, Shop, mark_of
from tests.sources.outbox.test_load_requests import ask, loads
from tests.sources.outbox.test_loads import FILL, Application, finish, states

from penstock.core.marks import Position
from penstock.errors import InputError, StreamFailed, StreamRefused
from penstock.ports import Budget
from penstock.sources.outbox.load import planning, reading, waiting
from penstock.sources.outbox.load.dump_files import find_files
from penstock.sources.outbox.load.requests import choose_loads, declaration_of, drop_loads
from penstock.sources.outbox.marks import OutboxMark, sees_all
from penstock.sources.outbox.server import Server

TAGS = "public.image_tags.tags"
NULLS = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)


@pytest.fixture
def shop(database: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(planning, "PART_BYTES", 1)
    monkeypatch.setattr(reading, "_wait_until_durable", lambda cursor: None)
    monkeypatch.setattr(Server, "wait_until_durable", lambda server, lsn: None)
    shop = Shop(database, first_load=True, keep_hours=0)
    shop.execute(SCHEMA, *FILL)
    shop.apply()
    return shop


def hold(shop: Shop, *tables: str) -> datetime:
    horizon: datetime = _with_server(
        shop, tables, lambda server, chosen, known: waiting.hold_streams(server, "shop", chosen, known)
    )
    return horizon


def load_from(
    shop: Shop, table: str, paths: list[Path], *, made_at: datetime | None = None, limit: int | None = None
) -> None:
    made_at = made_at or datetime.now(UTC)
    _with_server(
        shop,
        (table,),
        lambda server, chosen, known: waiting.load_from(server, "shop", chosen, known, paths, made_at, limit),
    )


def _with_server(shop: Shop, tables: tuple[str, ...], do: Any) -> Any:
    server = Server(shop.options, shop.context)
    try:
        known = loads(shop, server)
        return do(server, choose_loads(known, "public", tables), declared(shop))
    finally:
        server.close()


def declared(shop: Shop) -> dict[str, str]:
    source = shop.source()
    source._loads = {}
    return {"images": declaration_of(source._declared_loads("images"))}


def dump(shop: Shop, folder: Path, table: str, format_: str, pieces: int = 3) -> list[Path]:
    """As COPY writes it, or as Parquet with typed columns; one snapshot."""
    folder.mkdir(exist_ok=True)
    with (
        shop.connect() as connection,
        connection.cursor().copy(
            f"COPY (SELECT * FROM {table} ORDER BY random()) TO STDOUT (FORMAT csv, HEADER)".encode()
        ) as copy,
    ):
        text = b"".join(bytes(each) for each in copy)
    path = folder / f"{table}.csv"
    path.write_bytes(text)
    if format_ == "csv":
        return [path]
    rows = csv.read_csv(
        path, convert_options=csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    )
    path.unlink()
    size = max(1, -(-rows.num_rows // pieces))
    pq.write_table(rows, folder / f"{table}.parquet", row_group_size=size)
    return [folder / f"{table}.parquet"]


@pytest.mark.parametrize(("table", "format_"), [("images", "csv"), ("image_tags", "parquet"), ("posts", "csv")])
def test_a_dump_stands_in_for_the_table(shop: Shop, tmp_path: Path, table: str, format_: str) -> None:
    finish(shop)
    before = len(shop.documents["images"])
    hold(shop, table)
    shop.execute("UPDATE images SET url = url || ' while it waits' WHERE id % 3 = 0")
    assert shop.read() == 0, "it waits"
    files = dump(shop, tmp_path, table, format_)
    # The triggers had a gap, which `apply` closes: a dump from before is void.
    shop.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    shop.apply()
    with pytest.raises(InputError, match="have changed since it began to wait"):
        load_from(shop, table, files)
    hold(shop, table)
    files = dump(shop, tmp_path, table, format_)
    shop.execute("UPDATE images SET post_id = 1 WHERE id = 9", "DELETE FROM images WHERE id = 10")
    load_from(shop, table, files)
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)
    assert set(states(shop).values()) == {"complete"}
    assert len(shop.documents["images"]) > before
    if table != "images":
        assert next(each for each in OutboxMark.of(mark_of(shop)).loads if table in each.name).columns == ("piece",)


def test_what_is_read_is_the_files(shop: Shop, tmp_path: Path) -> None:
    """Every kind of value, and values that need quotes."""
    shop.execute(
        "UPDATE images SET url = E'a \"quoted\",\\nline' WHERE id = 1; UPDATE images SET url = '' WHERE id = 2;"
        "UPDATE images SET url = NULL, size = NULL WHERE id = 3; UPDATE images SET url = 'NULL' WHERE id = 4"
    )
    finish(shop)
    hold(shop, "images")
    files = dump(shop, tmp_path, "images", "csv")
    truth = shop.rows(TRUTH)
    # Nobody tells the outbox of it, so only the files know the old rows.
    shop.execute("CREATE TABLE kept AS SELECT * FROM images")
    load_from(shop, "images", files)
    shop.read()
    assert shop.current() == truth


@pytest.mark.parametrize("seed", range(3))
def test_an_application_that_writes_before_and_after_the_dump(shop: Shop, tmp_path: Path, seed: int) -> None:
    """The stream waits from some time on, in the middle of a load or not; slices are killed and read again."""
    application, draw = Application(shop, 200 + seed), random.Random(seed)
    budget = Budget(1 << 20, rows=draw.choice((7, 20)), workers=2)

    def go(most: int) -> None:
        shop.read(
            budget=budget,
            most=most,
            prepared=application.change,
            meanwhile=application.change,
            killed=lambda: draw.random() < 0.2,
        )

    go(draw.choice((0, 2, 50)))
    table = ("images", "image_tags", "posts")[seed]
    hold(shop, table)
    application.change()
    go(3)
    application.change()
    files = dump(shop, tmp_path, table, draw.choice(("csv", "parquet")))
    application.change()
    go(3)
    load_from(shop, table, files)
    application.change()
    for _ in range(4):
        go(draw.choice((1, 3)))
    application.close()
    finish(shop)
    assert set(states(shop).values()) == {"complete"}
    assert shop.current() == shop.rows(TRUTH)
    assert shop.folded().early == {}


def test_a_stream_that_does_not_wait_loses_changes(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: what was delivered after the dump was made is put back."""
    monkeypatch.setattr("penstock.sources.outbox.source.OutboxSource._hold", lambda *_: None)
    finish(shop)
    hold(shop, "images")
    files = dump(shop, tmp_path, "images", "csv")
    shop.execute("UPDATE images SET url = 'newer' WHERE id = 1")
    finish(shop)
    load_from(shop, "images", files)
    finish(shop)
    assert shop.current() != shop.rows(TRUTH)


def test_a_trial_with_a_few_rows(shop: Shop, tmp_path: Path) -> None:
    finish(shop)
    hold(shop, "images")
    load_from(shop, "images", dump(shop, tmp_path, "images", "csv"), limit=4)
    finish(shop)
    assert states(shop)["public.images"] == "trial"
    assert len(shop.current()) == 4
    hold(shop, "images")
    load_from(shop, "images", dump(shop, tmp_path, "images", "parquet", 7), limit=6)
    finish(shop)
    assert len(shop.current()) == 6
    ask(shop, waiting_start(), "images")
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)


def waiting_start() -> Any:
    from penstock.sources.outbox.load.requests import start_loads

    return start_loads


def test_a_wait_that_is_ended(shop: Shop) -> None:
    finish(shop)
    hold(shop, "images")
    shop.execute("UPDATE images SET url = 'later'")
    assert shop.read() == 0
    source = shop.source()
    content = source.content("images")
    ceiling = source.ceiling("images", content, "run", mark_of(shop))
    assert ceiling is not None
    assert ceiling["held"] is True
    assert source.remaining("images", content, mark_of(shop), ceiling).warning == (
        "the stream waits for a dump of public.images; changes are kept in the outbox meanwhile. Name its files with "
        "`penstock loads start FILE --from`, or end the wait with `penstock loads drop FILE`"
    )
    ask(shop, drop_loads, "images")
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)
    assert set(states(shop).values()) == {"complete"}


def test_files_that_would_leave_a_gap(shop: Shop, tmp_path: Path) -> None:
    finish(shop)
    early = dump(shop, tmp_path / "early", "images", "csv")
    with pytest.raises(
        InputError, match=r"^stream images does not wait for files of public\.images: changes made betw"
    ):
        load_from(shop, "images", early)
    began = datetime.now(UTC)
    os.utime(early[0], (time.time() - 5, time.time() - 5))
    hold(shop, "images")
    with pytest.raises(
        InputError, match=r"^the dump was begun at .*, and the stream waits since .*Z: changes made in be"
    ):
        load_from(shop, "images", early, made_at=began)
    with pytest.raises(InputError, match=r"^images\.csv was last written at .*, and the stream waits since"):
        load_from(shop, "images", early, made_at=datetime.now(UTC) + timedelta(seconds=9))


def test_files_for_a_stream_that_began_again(shop: Shop, tmp_path: Path) -> None:
    """After a reset, the files would be loaded again: what was delivered and deleted since then would be missing."""
    finish(shop)
    hold(shop, "images")
    load_from(shop, "images", dump(shop, tmp_path, "images", "csv"))
    finish(shop)
    shop.execute("UPDATE images SET url = 'deleted from the outbox' WHERE id = 1")
    finish(shop)
    last = shop.last["images"]
    shop.last["images"] = Position(last.number + 1, "reset", None, last.content)
    with pytest.raises(
        StreamRefused, match=r"^images: the files of a dump are older than what the stream has read"
    ) as no:
        shop.read()
    assert "penstock loads start FILE --stream images" in no.value.next_step
    ask(shop, waiting_start(), "images")
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)


def test_a_declaration_that_changes_makes_files_void(shop: Shop, tmp_path: Path) -> None:
    finish(shop)
    hold(shop, "images")
    load_from(shop, "images", dump(shop, tmp_path, "images", "csv"), limit=3)
    fan_out = [{**IMAGES["fan_out"][0], "computed": {"post_title": "upper({title})"}}]
    other = Shop(shop.url, {"images": {**IMAGES, "fan_out": fan_out}}, first_load=True, keep_hours=0)
    other.last, other.documents = shop.last, shop.documents
    other.apply()
    finish(other)
    assert len(other.current()) == 30, "the table was read"


def test_a_file_that_changes_before_it_is_read(shop: Shop, tmp_path: Path) -> None:
    finish(shop)
    hold(shop, "images")
    files = dump(shop, tmp_path, "images", "csv")
    load_from(shop, "images", files)
    kept = files[0].read_bytes()
    files[0].write_bytes(kept + b"\n")
    with pytest.raises(
        StreamFailed, match=r"^images: images\.csv cannot be loaded: it was changed after `penstock loads start`"
    ):
        shop.read()
    files[0].unlink()
    with pytest.raises(StreamFailed, match=r"^images: images\.csv cannot be loaded: .*No such file"):
        shop.read()


BAD = [
    ("missing.csv", None, "there is no file {}/missing.csv"),
    ("s3://bucket/images.csv", None, "s3://bucket/images.csv is no local file"),
    ("images.txt", b"id\n", "images.txt is neither a .csv nor a .parquet file"),
    ("a.csv", b"id,ulr,post_id,size\n", "a.csv has no column url, which public.images needs; did you mean 'ulr'?"),
    ("b.csv", b"id,id,url,post_id,size\n", "b.csv has two columns id"),
    ("c.csv", b"", "c.csv cannot be read: Empty CSV file"),
    ("d.parquet", b"PAR", "d.parquet cannot be read: Parquet file size is 3 bytes"),
    (
        "e.parquet",
        pa.table({"id": [[1]]}),
        "column id of e.parquet is list<element: int64>, for which there is no text",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=[each[0] for each in BAD])
def test_files_that_are_no_dump(shop: Shop, tmp_path: Path, name: str, content: Any, message: str) -> None:
    hold(shop, "images")
    path = tmp_path / name if "://" not in name else Path(name)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        pq.write_table(content, path)
    with pytest.raises(InputError, match=re.escape(message.format(tmp_path))):
        load_from(shop, "images", find_files([name if "://" in name else str(path)]))


def test_a_value_that_does_not_fit_its_column(shop: Shop, tmp_path: Path) -> None:
    hold(shop, "images")
    (tmp_path / "a.csv").write_text("id,url,post_id,size\n1,x,many,2\n")
    load_from(shop, "images", [tmp_path / "a.csv"])
    with pytest.raises(Exception, match=r'public\.images.*invalid input syntax for type bigint: "many"'):
        shop.read()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("10:10:", "10:10:", True),
        ("10:12:10", "10:10:", True),
        ("10:10:", "10:12:10", False),
        ("9:12:9", "9:10:9", True),
        ("9:12:9", "10:10:", False),
        ("9:12:9,11", "9:10:9", True),
        ("9:12:9,11", "9:12:9", False),
        ("10:12:", "1:1:", True),
    ],
)
def test_snapshots_that_see_all_of_others(one: str, other: str, expected: bool) -> None:
    assert sees_all(one, other) is expected
