"""Writes entities that a slice creates, straight from the documents of one part, without a fold. Runs in a worker.

A first load creates nearly all of its entities by one document each, which sets fields and nothing else. Such a
document is the entity's row, but only if nothing else concerns the entity: no other document of the slice, no row of
the table, no early op, no value of a fan-out. What one part can know of this is decided here; `proof` decides the rest,
before any of the rows counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from penstock.core.ops import Layout
from penstock.core.types import Decimal, Plain, Type
from penstock.lake.fitting import CHANGE, make_fitting
from penstock.lake.folding.plain import PlainBatch, PlainReader
from penstock.lake.folding.plain_json import Mask, mask_of
from penstock.lake.folding.side_data import read_files
from penstock.lake.parquet import FileLayout, remove
from penstock.lake.writing import NUMBERS_PER_PART, PartFiles

_INTEGERS = {Plain.INT8: pa.int8(), Plain.INT16: pa.int16(), Plain.INT32: pa.int32(), Plain.INT64: pa.int64()}
_FLOATS = {Plain.FLOAT32: pa.float32(), Plain.FLOAT64: pa.float64()}
_DAY = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIME = "[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
_ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
#: strings that Arrow converts as Spark does
_SPELLINGS: Mapping[Any, tuple[str, pa.DataType]] = {
    Plain.DATE: (f"^{_DAY}$", pa.date32()),
    Plain.TIMESTAMP: (f"^{_DAY}{_TIME}$", pa.timestamp("us")),
    Plain.TIMESTAMPTZ: (f"^{_DAY}{_TIME}{_ZONE}$", pa.timestamp("us", "UTC")),
}
#: types whose texts are what documents have: a key, or a match, is compared by them
OWN_TEXT = (*_INTEGERS, Plain.STRING)


@dataclass(frozen=True)
class Beside:
    """What the side data hold about entities to come; all of it is taken as valid, though later rows may end it."""

    #: keys with early ops
    waiting: pa.Array
    #: for each fan-out, the matches with values
    matches: Sequence[pa.Array]


@dataclass(frozen=True)
class Written:
    """The new entities of one part."""

    files: list[DataFile]
    rows: int
    ops: int
    #: the highest number
    last: int
    #: the least and the greatest first column of their keys, as in bounds of data files
    low: Any
    high: Any
    #: the place of the first document
    first_place: int
    #: when the last one was written
    last_at: int


def is_possible(layout: Layout) -> bool:
    """Whether entities of this layout can be written without a fold."""
    types = {column.name: column.type for column in layout.scalars}
    return all(column.type in OWN_TEXT for column in layout.key) and all(
        len(each.match) == 1 and types[each.match[0]] in (*OWN_TEXT, Plain.BOOL) for each in layout.fan_outs
    )


def read_beside(files: FileLayout, paths: Sequence[str], ids: Sequence[str]) -> Beside:
    """`ids`: of the fan-outs, as `fold.fan_out_id` has them."""
    batches = list(read_files(files.file_io(), paths))
    rows = pa.Table.from_batches(batches) if batches else None

    def texts(kind: str, about: str) -> pa.Array:
        if rows is None:
            return pa.array([], pa.string())
        found = rows.filter(pc.and_(pc.equal(rows["kind"], kind), pc.equal(rows["a"], about)))
        return pc.unique(found["b"])

    return Beside(texts("early", ""), [texts("fan", each) for each in ids])


@dataclass
class NewEntities:
    """Takes the new entities out of one part, and writes them."""

    layout: Layout
    files: FileLayout
    beside: Beside
    #: beginning of every file's name: stream, slice number, attempt
    name: str
    #: the number of the first row
    first: int
    part: int
    #: keys of all rows, by column
    keys: list[list[pa.Array]] = field(default_factory=list)
    rows: int = 0
    ops: int = 0
    first_place: int | None = None
    last_at: int = 0

    @cached_property
    def reader(self) -> PlainReader:
        return PlainReader(self.layout)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Written | None]:
        """The rows of the other documents, as `plain.rows_of` gives them; at last, what was written.

        None: two documents create one entity, so nothing was written, and the part must be read again.
        """
        own, fit = uuid.uuid4().hex[:8], None
        with PartFiles(self.files, lambda k: f"{self.name}-{self.part}n-{k}-{own}.parquet") as files:
            for batch in batches:
                found = self.reader.read(batch)
                chosen, rows = self._choose(found)
                if rows is not None and rows.num_rows:
                    fit = fit or make_fitting(rows.schema, self.files.schema, self.files.key)
                    files.add(fit(rows, self.first + self.rows))
                    self._count(found, chosen, rows)
                yield from self.reader.rows(found, without=chosen)
            written = files.finish()
        if not self._is_unique():
            for file in written:
                remove(file.file_path, self.files.file_io())
            yield None
        elif self.rows:
            lowest = pc.min_max(pa.chunked_array([batch[0] for batch in self.keys]))
            low, high = lowest["min"].as_py(), lowest["max"].as_py()
            assert self.first_place is not None
            last = self.first + self.rows - 1
            yield Written(written, self.rows, self.ops, last, low, high, self.first_place, self.last_at)

    def _count(self, found: PlainBatch, chosen: Mask, rows: pa.RecordBatch) -> None:
        assert self.rows + rows.num_rows <= NUMBERS_PER_PART
        documents = found.documents.take(pa.array(found.places[chosen]))
        if self.first_place is None:
            self.first_place = documents.column("pos")[0].as_py()
        self.last_at = max(self.last_at, pc.max(documents.column("at")).as_py() or 0)
        self.keys.append([rows.column(column.name) for column in self.layout.key])
        self.rows += rows.num_rows
        self.ops += int(chosen[found.ops.parent].sum())

    def _is_unique(self) -> bool:
        """Whether each document created an entity of its own."""
        if not self.keys:
            return True
        names = [str(i) for i in range(len(self.layout.key))]
        keys = pa.Table.from_batches([pa.RecordBatch.from_arrays(batch, names=names) for batch in self.keys])
        if len(names) == 1:
            return bool(pc.count_distinct(keys.column(0)).as_py() == self.rows)
        return bool(keys.group_by(names).aggregate([]).num_rows == self.rows)

    # ------------------------------------------------------------ one batch

    def _choose(self, found: PlainBatch) -> tuple[Mask, pa.RecordBatch | None]:
        """Which of the plain documents are a row each, and these rows."""
        ops, count = found.ops, len(found.places)
        chosen = mask_of(found.creates)
        other = ~mask_of(pc.fill_null(pc.equal(ops.kind, "s"), False))
        columns: dict[str, pa.Array] = {}
        try:
            for column, texts in zip(self.layout.key, found.key, strict=True):
                columns[column.name] = texts.cast(_INTEGERS[column.type]) if column.type in _INTEGERS else texts
            for column in self.layout.scalars:
                mine = np.flatnonzero(mask_of(pc.fill_null(pc.equal(ops.field, column.name), False)) & ~other)
                values, odd = _convert(ops.raw.take(pa.array(mine)), ops.json.take(pa.array(mine)), column.type)
                other[mine[odd]] = True
                place = np.full(count, -1)
                place[ops.parent[mine]] = np.arange(len(mine))
                other[mine[place[ops.parent[mine]] != np.arange(len(mine))]] = True
                columns[column.name] = values.take(pa.array(place, mask=place < 0))
        except pa.ArrowInvalid:
            return np.zeros(count, np.bool_), None
        chosen[ops.parent[other]] = False
        if len(self.beside.waiting):
            # The text of a key with several columns is made by Spark only.
            single = len(found.key) == 1
            chosen &= ~mask_of(pc.is_in(found.key[0], self.beside.waiting)) if single else False
        for fan_out, matches in zip(self.layout.fan_outs, self.beside.matches, strict=True):
            if len(matches):
                chosen &= ~mask_of(pc.is_in(columns[fan_out.match[0]].cast(pa.string()), matches))
        for column in self.layout.multi:
            columns[column.name] = _empty_lists(count, _item_type(column.type))
        columns[CHANGE] = pa.repeat(pa.scalar("upsert"), count)
        return chosen, pa.RecordBatch.from_pydict(columns).filter(pa.array(chosen))


# ------------------------------------------------------------ values


def _convert(raw: pa.Array, json: pa.Array, type_: Type) -> tuple[pa.Array, Mask]:
    """Values as the table has them, and which ones Spark must convert, or refuse; ArrowInvalid: perhaps all of them."""
    if type_ in _INTEGERS:
        fits, target = pc.equal(json, "BIGINT"), _INTEGERS[type_]
    elif type_ in _FLOATS:
        fits, target = pc.is_in(json, pa.array(["BIGINT", "DECIMAL"])), _FLOATS[type_]
    elif type_ is Plain.BOOL:
        fits, target = pc.equal(json, "BOOLEAN"), pa.bool_()
    elif isinstance(type_, Decimal):
        digits = rf"^-?[0-9]+([.][0-9]{{0,{type_.scale}}})?$" if type_.scale else "^-?[0-9]+$"
        fits = pc.and_(pc.not_equal(json, "BOOLEAN"), _matches(raw, digits))
        target = pa.decimal128(type_.precision, type_.scale)
    elif type_ in _SPELLINGS:
        pattern, target = _SPELLINGS[type_]
        fits = pc.and_(pc.equal(json, "STRING"), _matches(raw, pattern))
    elif type_ is Plain.JSON:
        fits, target = pa.repeat(pa.scalar(True), len(raw)), pa.string()
    else:
        fits, target = pc.equal(json, "STRING"), pa.string()
    fits = pc.or_(fits, pc.equal(json, "VOID"))
    values = pc.if_else(fits, raw, pa.scalar(None, pa.string())).cast(target)
    if type_ in _FLOATS:
        # 0.0 and -0.0 are one value.
        values = pc.add(values, pa.scalar(0.0, target))
    return values, ~mask_of(fits)


def _matches(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(texts, pattern), False)


def _item_type(type_: Type) -> pa.DataType:
    if isinstance(type_, Decimal):
        return pa.decimal128(type_.precision, type_.scale)
    if type_ in _SPELLINGS:
        return _SPELLINGS[type_][1]
    if not isinstance(type_, Plain):
        return pa.string()
    return {**_INTEGERS, **_FLOATS, Plain.BOOL: pa.bool_()}.get(type_, pa.string())


def _empty_lists(count: int, type_: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], type_))
