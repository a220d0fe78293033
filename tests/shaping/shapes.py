"""Rows to shape, and a source of them in memory whose batches a test cuts as it likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.core.content import Column, Content
from penstock.core.slices import Part
from penstock.links.arrow_types import type_of
from penstock.ports import Reader
from penstock.shaping.options import Shape
from penstock.shaping.reader import ShapedReader
from penstock.shaping.resolved_shape import resolve

SALT = "a password of some length"

PEOPLE = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "email": pa.array(["ann@example.org", "bob@shop.example", None, "not an address"], pa.string()),
        "phone": pa.array(["+49 170 1234567", "1234567", "", None], pa.string()),
        "paid": pa.array(["1.50", "20.00", None, "-0.10"], pa.string()),
        "total": pa.array([Decimal("1.50"), Decimal("20.00"), None, Decimal("-0.10")], pa.decimal128(12, 2)),
        "born": pa.array([date(1990, 1, 1), None, date(2000, 2, 29), date(1970, 1, 1)], pa.date32()),
        "tags": pa.array([["a"], None, [], ["b", None]], pa.list_(pa.string())),
    }
)


def content_of(schema: pa.Schema) -> Content:
    """What a source would say of these columns."""
    columns = [Column(each.name, type_of(each.type), f"my {each.type}") for each in schema if each.name != "_change"]
    return Content(tuple(columns), identity={"source": "here"})


@dataclass(frozen=True)
class Given:
    """A reader of batches that are there already."""

    batches: Sequence[pa.RecordBatch]
    schema: pa.Schema
    ended: list[bool] = field(default_factory=list)

    def open(self, part: Part) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._all())

    def _all(self) -> Any:
        try:
            yield from self.batches
        finally:
            self.ended.append(True)


def shaped_content(table: pa.Table, shape: Shape) -> Content:
    content = content_of(table.schema)
    return resolve("people", shape, content).add_to(content)


def reader(table: pa.Table, shape: Shape, most: int = 1000) -> Reader:
    given = Given(table.to_batches(max_chunksize=most), table.schema)
    salt = shape.salt.get_secret_value() if shape.salt else ""
    return ShapedReader(given, "people", shaped_content(table, shape).text, salt.encode())


def shaped(table: pa.Table = PEOPLE, *, most: int = 1000, **rules: Any) -> pa.Table:
    """A table's rows in a shape; what the content says of its columns is what comes."""
    shape = Shape.model_validate(rules)
    found = reader(table, shape, most).open(Part(0, "{}")).read_all()
    found.validate(full=True)
    told = [(each.name, type_of(each.type)) for each in found.schema if each.name != "_change"]
    assert [(column.name, column.type) for column in shaped_content(table, shape).columns] == told
    return found
