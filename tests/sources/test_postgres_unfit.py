"""Values that Arrow cannot hold: none gets through unseen, whatever the driver makes of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.harness.doubles import LoopMover
from tests.harness.postgres import PostgresServer
from tests.sources import tables
from tests.sources.tables import execute
from tests.sources.test_postgres_keyset import WIDE, read, slices
from tests.sources.type_values import MADE, UNFIT
from typer.testing import CliRunner

from penstock import wiring
from penstock.cli import app
from penstock.core.slices import Receipt
from penstock.errors import StreamFailed
from penstock.links.pipe import carry

#: what is left of an array when the elements that do not fit are NULL; any other value is NULL as a whole
LEFT: dict[str, list[Any]] = {
    "{2024-01-01,NULL,infinity}": ["2024-01-01", None, None],
    "{24:00}": [None],
    "{-infinity}": [None],
    "{infinity}": [None],
    "{2024-01-01 00:00Z,10000-01-01 00:00Z}": ["2024-01-01 00:00:00+00:00", None],
    "{NULL,NaN}": [None, None],
    "{1.5,NaN}": ["1.50", None],
}


@pytest.fixture(scope="module")
def misfits(postgres_server: PostgresServer) -> Iterator[str]:
    """A table `t` with a column for each such value; row n has the nth, and NULL elsewhere; row 0 fits."""
    url = postgres_server.database()
    columns = ", ".join(f"c{n} {type_}" for n, (type_, _) in enumerate(UNFIT))
    execute(
        url,
        MADE,
        f"CREATE TABLE t (id int PRIMARY KEY, {columns})",
        "INSERT INTO t VALUES (-1)",
        *(f"INSERT INTO t (id, c{n}) VALUES ({n}, '{value}')" for n, (_, value) in enumerate(UNFIT)),
    )
    yield url
    postgres_server.drop(urlsplit(url).path.removeprefix("/"))


def all_of(url: str, **options: Any) -> pa.Table:
    origin = tables.source(url, {"t": options})
    [slice_] = slices(origin, "t", WIDE)
    return read(origin, slice_).sort_by("id")


def test_each_stops_the_slice_and_is_named(misfits: str) -> None:
    streams: dict[str, dict[str, Any]] = {
        f"s{n}": {"table": "t", "columns": ["id", f"c{n}"], "cursor": "id", "unique": True} for n in range(len(UNFIT))
    }
    origin = tables.source(misfits, streams)
    for number, (type_, value) in enumerate(UNFIT):
        [slice_] = slices(origin, f"s{number}", WIDE)
        with pytest.raises(StreamFailed) as failed:
            read(origin, slice_)
        said = f"public.t has rows whose c{number} is infinity, NaN, 24:00, not in years 1 to 9999 or not a plain "
        assert failed.value.what == f"{said}list, which Arrow cannot hold (one of them: id {number})", (type_, value)


def test_all_of_a_batch_are_named_together(misfits: str) -> None:
    with pytest.raises(StreamFailed) as failed:
        all_of(misfits)
    names = ", ".join(f"c{number}" for number in range(len(UNFIT)))
    assert failed.value.what.startswith(f"public.t has rows whose {names} is")


def test_null_takes_their_place_and_is_counted(misfits: str) -> None:
    origin = tables.source(misfits, {"t": {"unfit": "null"}})
    [slice_] = slices(origin, "t", WIDE)
    writer = CollectingWriter()
    with origin.reading(slice_) as reading:
        receipts = [carry(reading.reader, writer, part) for part in reading.parts]
    assert sum(receipt.nulled for receipt in receipts) == len(UNFIT)
    got = pa.Table.from_batches(writer.batches).sort_by("id")
    got.validate(full=True)
    for number, (_, value) in enumerate(UNFIT):
        [cell] = got.column(f"c{number}").slice(number + 1, 1).to_pylist()
        assert (cell and [None if each is None else str(each) for each in cell]) == LEFT.get(value)
    assert got.schema.field("c0").type == pa.date32()


class CollectingWriter:
    """A writer that keeps batches in memory."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, batches: pa.RecordBatchReader, part: Any) -> Receipt:
        self.batches += list(batches)
        return Receipt(part.index, "a", 0, 0, 0, "", "{}")


def test_text_has_them_as_postgres_prints_them(misfits: str) -> None:
    got = all_of(misfits, unfit="text")
    assert {str(field.type) for field in got.schema} == {"int32", "string"}
    shown = {value: got.column(f"c{number}").to_pylist()[number + 1] for number, (_, value) in enumerate(UNFIT)}
    same = ("infinity", "-infinity", "NaN", "{{1,2},{3,4}}", "[0:1]={1,2}", "{NULL,NaN}", "0001-12-31 BC")
    assert {value: shown[value] for value in same} == {value: value for value in same}
    assert shown["294276-12-31 23:59:59.999999Z"] == "294276-12-31 23:59:59.999999+00"
    assert shown["24:00"] == "24:00:00"


def test_the_content_says_how_it_is_read(misfits: str) -> None:
    streams = {unfit: {"table": "t", "columns": ["id", "c0"], "unfit": unfit} for unfit in ("fail", "null", "text")}
    origin = tables.source(misfits, streams)
    contents = {unfit: origin.content(unfit) for unfit in streams}
    assert {unfit: content.private["unfit"] for unfit, content in contents.items()} == {
        unfit: unfit for unfit in streams
    }
    types = {unfit: str(content.columns[1].type) for unfit, content in contents.items()}
    assert types == {"fail": "date", "null": "date", "text": "string"}


@pytest.mark.parametrize("unfit", ["null", "text"])
def test_the_ways_out_that_the_message_names(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unfit: str
) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda _house: LoopMover())
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz)",
        "INSERT INTO t VALUES (1, '2024-01-01Z'), (2, 'infinity'), (3, '-infinity')",
    )
    file = tmp_path / "shop.yaml"

    def ran(*words: str, unfit: str = "fail") -> tuple[int, list[dict[str, Any]], str]:
        file.write_text(
            f"pipelines:\n  shop:\n    source: {{type: postgres, url: '{database}'}}\n"
            "    sink: {type: files, directory: out}\n"
            f"    streams: {{t: {{cursor: id, unique: true, unfit: '{unfit}'}}}}\n"
        )
        result = CliRunner().invoke(app, [*words, str(file)])
        lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        return result.exit_code, lines, result.output

    code, _, out = ran("run", "--json")
    assert code == 1, out
    assert "`unfit: null` or `unfit: text`" in out
    assert "penstock state recover" in out
    # The open slice is finished as it was begun.
    assert ran("run", "--json", unfit=unfit)[0] == 1
    code, _, out = ran("state", "recover", "--yes", "--stream", "t", unfit=unfit)
    assert code == 0, out
    code, messages, out = ran("run", "--json", unfit=unfit)
    assert code == 0, out
    [written] = (tmp_path / "out" / "t").glob("*.parquet")
    values = pq.read_table(written).sort_by("id").column("at").to_pylist()
    logs = [(each["level"], each["text"]) for each in messages if each["type"] == "log"]
    told = ("warning", "slice 1: 2 values have no exact form and became NULL, as the pipeline file says")
    if unfit == "null":
        assert values[1:] == [None, None]
        assert told in logs
    else:
        assert values == ["2024-01-01 00:00:00+00", "infinity", "-infinity"]
        assert told not in logs
