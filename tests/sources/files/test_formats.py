"""Each format gives the rows of its files, exactly, whole or cut, with columns that are declared or their own."""

from __future__ import annotations

import gzip
import io
import json
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyarrow import csv, orc, parquet
from tests.sources.files.folders import Inbox, table, write

from penstock.core.content import Content
from penstock.core.types import parse_type
from penstock.sources.files.conversion import Fitter
from penstock.sources.files.cutting import PART_BYTES

TYPES = {
    "id": "int64",
    "small": "int16",
    "price": "decimal(12,3)",
    "share": "float64",
    "paid": "bool",
    "day": "date",
    "clock": "time",
    "at": "timestamptz",
    "local": "timestamp",
    "more": "json",
    "note": "string",
}
ROW: dict[str, Any] = {
    "id": 2**62,
    "small": -3,
    "price": Decimal("1234567.125"),
    "share": 0.1,
    "paid": True,
    "day": date(2024, 2, 29),
    "clock": time(23, 59, 59, 999999),
    "at": datetime(2024, 5, 1, 10, 0, 0, 1, tzinfo=UTC),
    "local": datetime(1, 1, 1),  # noqa: DTZ001 (a timestamp without a zone)
    "more": '{"a": [1, 2.50]}',
    "note": 'a "quoted", text\nof two lines',
}
NULLS = dict.fromkeys(ROW)
CSV = (
    "id,small,price,share,paid,day,clock,at,local,more,note\n"
    "4611686018427387904,-3,1234567.125,0.1,true,2024-02-29,23:59:59.999999,2024-05-01T10:00:00.000001Z,"
    '0001-01-01 00:00:00,"{""a"": [1, 2.50]}","a ""quoted"", text\nof two lines"\n'
    ",,,,,,,,,,\n"
)
LINE = (
    '{"id":4611686018427387904,"small":-3,"price":1234567.125,"share":0.1,"paid":true,"day":"2024-02-29",'
    '"clock":"23:59:59.999999","at":"2024-05-01T10:00:00.000001Z","local":"0001-01-01T00:00:00",'
    '"more":{"a": [1, 2.50]},"note":"a \\"quoted\\", text\\nof two lines","unknown":1}'
)


@pytest.mark.parametrize("without", [(), ("more",), ("more", "clock", "price")], ids=str)
def test_text_of_every_type(without: tuple[str, ...], tmp_path: Path) -> None:
    columns = {name: type_ for name, type_ in TYPES.items() if name not in without}
    wanted = [{name: row[name] for name in columns} for row in (ROW, NULLS)]
    for name, text in (
        ("a.csv", CSV),
        ("a.ndjson", f"{LINE}\n\n{{}}\n"),
        ("a.ndjson", f"\ufeff{LINE}\r\n{{}}"),
        ("a.json", f"[{LINE}, {{}}]"),
    ):
        for ending, packed in (("", text.encode()), (".gz", gzip.compress(text.encode()))):
            inbox = Inbox(tmp_path / f"{name}{ending}", path=f"{name}{ending}", columns=columns)
            inbox.put(f"{name}{ending}", packed, time=hash(text) % 1000)
            inbox.last = None
            assert inbox.run() == wanted, name


def test_a_dialect(tmp_path: Path) -> None:
    inbox = Inbox(
        tmp_path,
        path="*.tsv",
        columns={"id": "int64", "note": "string"},
        csv={"delimiter": "\t", "quote": "", "header": False, "encoding": "utf-16", "null_values": ["\\N"]},
    )
    inbox.put("a.tsv", '1\té "x\n2\t\\N\n3\t\n'.encode("utf-16"))
    rows = [(row["id"], row["note"]) for row in inbox.run()]
    assert rows == [(1, 'é "x'), (2, None), (3, "")]


def test_one_column_with_empty_lines(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, path="*.csv", columns={"note": "string"})
    inbox.put("a.csv", 'note\na\n\n""\n')
    assert [row["note"] for row in inbox.run()] == ["a", None, ""]


@pytest.mark.parametrize("name", ["a.csv", "a.ndjson", "a.parquet", "a.orc"])
def test_files_that_are_cut_give_the_same_rows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.files.cutting.PART_BYTES", 1)
    monkeypatch.setattr("penstock.sources.files.text._STEP", 64)
    rows = pa.table({"id": list(range(3000)), "note": [f"é{'x' * (n % 90)}" for n in range(3000)]})
    for case, change in (("plain", rows), ("quoted", rows.set_column(1, "note", pa.array(['a\n"b"\n'] * 3000)))):
        inbox = Inbox(tmp_path / case, path=f"*{Path(name).suffix}")
        path = inbox.place / name
        if name == "a.csv":
            csv.write_csv(change, path, csv.WriteOptions(quoting_style="needed"))
        elif name == "a.orc":
            orc.write_table(change, path, stripe_size=1024, batch_size=100)
        elif name == "a.parquet":
            parquet.write_table(change, path, row_group_size=100)
        else:
            write(path, change)
        inbox.many_parts = True
        assert inbox.run() == change.to_pylist()
        assert inbox.parts > 3, case


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 99), st.text('a,"\n\r é', max_size=5)), max_size=30),
    quoting=st.sampled_from(["needed", "all_valid"]),
)
def test_whatever_is_in_a_csv_file(rows: list[tuple[int, str]], quoting: str) -> None:
    from penstock.sources.files.csv import Csv
    from penstock.sources.files.options import CsvOptions
    from penstock.sources.files.places import File, LocalFolder
    from penstock.sources.files.text import Compression

    out = io.BytesIO()
    given_rows = pa.table({"id": pa.array([n for n, _ in rows], pa.int64()), "note": [text for _, text in rows]})
    given_rows = given_rows.set_column(1, "note", given_rows["note"].cast(pa.string()))
    csv.write_csv(given_rows, out, csv.WriteOptions(quoting_style=quoting))
    import tempfile

    from penstock.core.content import Column
    from penstock.core.types import Plain

    columns = (Column("id", Plain.INT64), Column("note", Plain.STRING))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.sources.files.text._STEP", 8)
        patch.setattr("penstock.sources.files.text.BLOCK_BYTES", 16)
        Path(folder, "a.csv").write_bytes(out.getvalue())
        place = LocalFolder(folder)
        version = place.version("a.csv")
        assert version
        file, format_ = File("a.csv", version), Csv(CsvOptions(), Compression("auto"), "fail")
        pieces = format_.cut(place, file, format_.inspect(place, file, "s"), 16, "s")
        found = [
            row
            for piece in pieces
            for batch in format_.read(place, file, (piece.start, piece.end), columns, "s")
            for row in batch.to_pylist()
        ]
    assert [(row["id"], row["note"]) for row in found] == rows
    event(f"pieces: {len(pieces)}")


def test_quotes_within_a_field_keep_a_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are part of the field, so that an even number of quotes says nothing."""
    monkeypatch.setattr("penstock.sources.files.cutting.PART_BYTES", 1)
    monkeypatch.setattr("penstock.sources.files.text._STEP", 8)
    inbox = Inbox(tmp_path, path="*.csv", columns={"note": "string", "more": "string"})
    inbox.put("a.csv", "note,more\n" + '5" disk,"a\nb"\n' * 50)
    inbox.many_parts = True
    assert inbox.run() == [{"note": '5" disk', "more": "a\nb"}] * 50
    assert inbox.parts == 1


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(st.from_regex(r"-?[0-9]{0,20}(\.[0-9]{0,4})?([eE]-?[0-9])?", fullmatch=True), max_size=4),
    type_=st.sampled_from(["int16", "int64", "decimal(5,2)", "decimal(38,3)"]),
)
def test_numbers_are_converted_exactly_or_not_at_all(values: list[str], type_: str) -> None:
    wanted = parse_type(type_)
    for some in ([value] for value in values):
        found = Fitter("null").fit("n", pa.array(some, pa.string()), wanted).to_pylist()[0]
        exact = _exact(some[0])
        fits = exact is not None and _fits(exact, type_, some[0])
        assert found == (exact if fits else None), (some, found)
    together = Fitter("null").fit("n", pa.array([*values, None], pa.string()), wanted).to_pylist()
    each = [Fitter("null").fit("n", pa.array([value], pa.string()), wanted).to_pylist()[0] for value in values]
    assert together == [*each, None], "a value does not depend on the others"


def _exact(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except ArithmeticError:
        return None


def _fits(value: Decimal, type_: str, text: str) -> bool:
    if type_.startswith("int"):
        # An integer is written without a point or an exponent.
        return text.lstrip("-").isdigit() and abs(value) < 2 ** (int(type_[3:]) - 1)
    precision, scale = parse_type(type_).precision, parse_type(type_).scale  # type: ignore[union-attr]  # a decimal
    context = Context(prec=100)
    return context.quantize(value, Decimal(1).scaleb(-scale)) == value and abs(value) < 10 ** (precision - scale)


def test_small_files_share_a_part_and_large_ones_are_cut(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, path="*.parquet")
    for number in range(300):
        write(inbox.place / f"{number}.parquet", table([number]), time=number)
    assert [row["id"] for row in inbox.run()] == list(range(300))
    assert inbox.parts == 1
    assert PART_BYTES > 1 << 20


def test_folders_name_values(tmp_path: Path) -> None:
    inbox = Inbox(
        tmp_path,
        path="day=*/**/*.csv",
        columns={"id": "int64"},
        partitions={"day": "date", "shop": "string"},
    )
    inbox.put("day=2026-01-31/shop=a%2Fb/a.csv", "id\n1\n", time=1)
    inbox.put("day=__HIVE_DEFAULT_PARTITION__/shop=ü/b.csv", "id\n2\n", time=2)
    assert inbox.run() == [
        {"id": 1, "day": date(2026, 1, 31), "shop": "a/b"},
        {"id": 2, "day": None, "shop": "ü"},
    ]


def test_since_include_and_exclude(tmp_path: Path) -> None:
    inbox = Inbox(
        tmp_path,
        path="new/*.csv",
        include=["old/**"],
        exclude=["**/x*"],
        since="2023-11-15",
        format="csv",
        columns={"id": "int64"},
    )
    for number, name in enumerate(("new/a.csv", "old/b/c.txt", "new/x.csv", "new/deep/d.csv", "e.csv"), start=1):
        inbox.put(name, f"id\n{number}\n", time=number * 86400)
    inbox.put("new/before.csv", "id\n9\n", time=-86400)
    assert [row["id"] for row in inbox.run()] == [1, 2]


# ---------------------------------------------------------------- columns of their own


def columns_of(inbox: Inbox) -> dict[str, str]:
    source = inbox.open()
    content: Content = source.content("orders")
    return {column.name: str(column.type) for column in content.columns}


def test_columns_that_are_guessed_are_kept(tmp_path: Path) -> None:
    for kind, one, two, three in (
        ("csv", "id,name\n1,a\n", "id,name\n2,7\n", "id,name,more\n3,b,1.5\n"),
        ("ndjson", '{"id":1,"name":"a"}\n', '{"id":2,"name":"7"}\n', '{"id":3,"name":"b","more":1.5}\n'),
    ):
        inbox = Inbox(tmp_path / kind, path=f"*.{kind}")
        for number, text in enumerate((one, two, three)):
            inbox.put(f"{number}.{kind}", text, time=number)
            rows = inbox.run()
            assert [row["id"] for row in rows] == [number + 1], kind
            assert rows[0]["name"] == ("a", "7", "b")[number]
        assert columns_of(inbox) == {"id": "int64", "name": "string", "more": "float64"}, kind


def test_a_file_with_other_columns_begins_another_slice(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, path="*.parquet")
    for number in range(6):
        rows = table([number])
        if number >= 3:
            rows = rows.append_column("more", pa.array([number]))
        write(inbox.place / f"{number}.parquet", rows, time=number)
    found = inbox.run()
    assert [(row["id"], row.get("more")) for row in found] == [(n, n if n >= 3 else None) for n in range(6)]
    assert inbox.last is not None
    assert inbox.last.number == 2


def test_a_field_that_no_column_has_is_not_lost(tmp_path: Path) -> None:
    from penstock.errors import StreamFailed

    inbox = Inbox(tmp_path, path="*.ndjson")
    line = json.dumps({"id": 1, "note": "x" * 100}) + "\n"
    inbox.put("a.ndjson", line * 12_000 + '{"id":2,"note":"","other":1}\n')
    with pytest.raises(StreamFailed, match="line 12,001: it has the field 'other', which the first file did not have"):
        inbox.run()
