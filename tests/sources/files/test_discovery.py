"""Streams that are proposed for the files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sources.files.folders import Inbox, make_source, table, write

from penstock.links.globs import compile_pattern, escape
from penstock.ports import discover


def test_a_folder_for_each_kind_of_file(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, path="orders/*.parquet")
    write(inbox.place / "orders" / "a.parquet", table([1]))
    write(inbox.place / "orders" / "b.parquet", table([2]))
    inbox.put("orders/c.csv.gz", b"no gzip")
    inbox.put("visits [1]/day=2026-01-31/shop=7/a.csv", "id,at\n1,2026-01-31\n")
    inbox.put("visits [1]/day=2026-02-01/shop=x/a.csv", "id,at\n2,2026-01-31\n")
    inbox.put("a.ndjson", '{"id": 1, "more": {"a": 1}}\n')
    inbox.put("b.txt", "nothing")
    inbox.put("_hidden/a.csv", "id\n1\n")
    found = {each.name: each for each in discover(inbox.open())}
    assert set(found) == {"orders_parquet", "orders_csv_gz", "visits_1", "ndjson"}
    orders = found["orders_parquet"]
    assert (orders.what, orders.read_by) == ("2 parquet files", "orders")
    assert orders.options == {"path": "orders/*.parquet"}
    assert orders.columns == (("id", "int64"), ("note", "string"))
    assert found["visits_1"].options == {
        "path": "visits [[]1]/**/*.csv",
        "columns": {"id": "int64", "at": "date"},
        "partitions": {"day": "date", "shop": "string"},
    }
    assert found["ndjson"].options == {"path": "*.ndjson", "columns": {"id": "int64", "more": "json"}}
    assert "cannot be read as csv" in (found["orders_csv_gz"].refused or "")
    rows: dict[str, Any] = {}
    for name in ("orders_parquet", "visits_1", "ndjson"):
        options = dict(found[name].options)
        source = make_source(tmp_path, {name: options})
        content = source.content(name)
        assert {(column.name, str(column.type)) for column in content.columns} == set(found[name].columns)
        rows[name] = source.ceiling(name, content, "run")
    assert all(rows.values())


def test_a_name_with_special_characters_is_matched_exactly() -> None:
    for name in ("a*b", "[x]", "a?", "[", "]", "[!a]", "^a"):
        assert compile_pattern(escape(name)).fullmatch(name)
    assert not compile_pattern(escape("a*b")).fullmatch("axb")
    for pattern, path, is_match in (
        ("**/a", "a", True),
        ("**/a", "x/y/a", True),
        ("x/**", "x/y/a", True),
        ("x/**", "x", False),
        ("*", "a/b", False),
        ("[a-c]?", "bx", True),
        ("[!a]", "/", False),
        ("[!a]", "b", True),
        ("a.b", "axb", False),
        ("*", "line\nbreak", True),
    ):
        assert bool(compile_pattern(pattern).fullmatch(path)) == is_match, (pattern, path)
