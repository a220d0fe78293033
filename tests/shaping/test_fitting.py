"""Batches in the sink's columns: NULL for what is gone, exact casts, one column for what was put aside."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from penstock.core.slices import Part
from penstock.core.types import Type, parse_type
from penstock.errors import StreamFailed
from penstock.links.arrow_types import type_of
from penstock.shaping.fitting import FittedReader

PART = Part(0, "{}")


@dataclass(frozen=True)
class Given:
    """Gives one batch, and remembers whether it was let go of."""

    columns: Sequence[tuple[str, pa.Array]]
    ended: list[str] = field(default_factory=list)

    def open(self, part: Part) -> pa.RecordBatchReader:
        batch = pa.RecordBatch.from_arrays([array for _, array in self.columns], [name for name, _ in self.columns])

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                yield batch
                yield batch
            finally:
                self.ended.append("ended")

        return pa.RecordBatchReader.from_batches(batch.schema, batches())


def typed(*columns: tuple[str, str]) -> tuple[tuple[str, Type], ...]:
    return tuple((name, parse_type(type_)) for name, type_ in columns)


def fitted(
    given: Sequence[tuple[str, pa.Array]], columns: Sequence[tuple[str, str]], aside: Sequence[str] = ()
) -> pa.Table:
    return FittedReader(Given(given), typed(*columns), tuple(aside)).open(PART).read_all().slice(0, len(given[0][1]))


def test_columns_by_name_in_the_sinks_order() -> None:
    given = [("b", pa.array([1, 2], pa.int32())), ("a", pa.array(["x", "y"])), ("_change", pa.array(["upsert"] * 2))]
    found = fitted(given, [("a", "string"), ("gone", "decimal(12,2)"), ("b", "int64")])
    assert found.schema == pa.schema(
        [("a", pa.string()), ("gone", pa.decimal128(12, 2)), ("b", pa.int64()), ("_change", pa.string())]
    )
    assert found.to_pylist()[0] == {"a": "x", "gone": None, "b": 1, "_change": "upsert"}


def test_what_does_not_fit_is_put_aside_row_by_row() -> None:
    given = [
        ("id", pa.array([1, 2, 3])),
        ("n", pa.array([7, 2**40, None])),
        ("t", pa.array(["x", None, None])),
        ("new", pa.array([True, None, None])),
    ]
    columns = [("id", "int64"), ("n", "int32"), ("t", "int64"), ("_quarantined", "string")]
    found = fitted(given, columns, aside=["n", "t", "new"]).to_pylist()
    assert [(row["n"], row["t"]) for row in found] == [(7, None), (None, None), (None, None)]
    assert [row["_quarantined"] and json.loads(row["_quarantined"]) for row in found] == [
        {"t": "x", "new": "true"},
        {"n": str(2**40)},
        None,
    ]


def test_a_column_to_put_aside_in_that_is_not_needed_any_more_is_null() -> None:
    found = fitted([("id", pa.array([1]))], [("id", "int64"), ("_quarantined", "string")])
    assert found.to_pylist() == [{"id": 1, "_quarantined": None}]


def test_a_narrower_column_takes_what_fits_and_fails_at_what_does_not() -> None:
    assert fitted([("n", pa.array([1, None]))], [("n", "int32")]).column("n").type == pa.int32()
    with pytest.raises(StreamFailed) as failed:
        fitted([("n", pa.array([1, 2**40, 2**41]))], [("n", "int32")])
    assert f"2 of its values do not fit, such as {2**40}" in failed.value.what
    assert "state recover" in failed.value.next_step
    with pytest.raises(StreamFailed):
        fitted([("n", pa.array([0.1]))], [("n", "float32")])


def test_a_type_that_nobody_planned_fails() -> None:
    with pytest.raises(StreamFailed, match="column n comes as string, and int32 was planned"):
        fitted([("n", pa.array(["1"]))], [("n", "int32")])


def test_lists_may_name_their_elements_otherwise() -> None:
    found = fitted([("l", pa.array([[1], None], pa.list_(pa.field("element", pa.int32()))))], [("l", "list<int32>")])
    assert found.column("l").to_pylist() == [[1], None]


def test_a_column_that_already_has_the_type_passes_as_it_is() -> None:
    for odd in (pa.array([{"a: b": 1}]), pa.array(["x"], pa.large_string()), pa.array(["x"]).dictionary_encode()):
        given = [("s", odd), ("x", pa.array([1]))]
        assert fitted(given, [("x", "int64"), ("s", str(type_of(odd.type)))]).column("s").type == odd.type


def test_the_reader_inside_is_let_go_of_with_this_one() -> None:
    given = Given([("id", pa.array([1]))])
    with FittedReader(given, typed(("id", "int64"), ("gone", "string"))).open(PART) as batches:
        batches.read_next_batch()
        assert given.ended == []
    del batches
    assert given.ended == ["ended"]


def test_it_travels_to_a_worker() -> None:
    reader = pickle.loads(pickle.dumps(FittedReader(Given([("id", pa.array([1]))]), typed(("id", "int64")), ("x",))))
    assert reader.open(PART).read_all().num_rows == 2
