"""The page on Postgres' types says what the code does, for every type that the code knows."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.docs.pages import TOP

from penstock.lake.iceberg_types import describe_type, iceberg_type
from penstock.links.arrow_types import arrow_type
from penstock.links.postgres.types import FORMS, choose_form

PAGE = TOP / "docs" / "sources" / "postgres-types.md"
_ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| (.*?)\|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str, str]]:
    """Each type of the first table, with the three cells beside it."""
    found = [(names, cells) for names, *cells, _ in _ROW.findall(PAGE.read_text())]
    types = [
        (name, (cells[0], cells[1], cells[2])) for names, cells in found for name in re.findall(r"`([^`]+)`", names)
    ]
    assert len(dict(types)) == len(types), "a type stands twice in the table"
    return dict(types)


def in_parquet(type_: pa.DataType) -> str:
    """How the files sink's Parquet spells a type: the physical type, and what it means."""
    if pa.types.is_list(type_):
        return f"list of {in_parquet(type_.value_type)}"
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": pa.nulls(1, type_)}), out)
    column = pq.ParquetFile(pa.BufferReader(out.getvalue())).schema.column(0)
    meaning = column.logical_type.type
    return column.physical_type if meaning == "NONE" else f"{column.physical_type}, {meaning}"


def test_every_type_is_in_the_table() -> None:
    assert set(FORMS) - set(rows()) == set()


@pytest.mark.parametrize("type_", sorted(rows()))
def test_a_row_says_what_the_code_does(type_: str) -> None:
    found = choose_form(type_).type
    assert rows()[type_] == (str(found), describe_type(iceberg_type(found)), in_parquet(arrow_type(found)))


def test_no_row_is_about_a_type_that_does_not_exist() -> None:
    examples = {type_ for type_ in rows() if re.search(r"[(\[]", type_)}
    assert set(rows()) - examples <= set(FORMS)
