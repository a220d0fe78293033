"""Reads plain documents in Arrow, a column at a time: what Spark SQL and Python workers need not look at.

A plain document has no more than what triggers write: a key of the declared types, and ops whose values are strings,
numbers, booleans or null. Documents of all entities are read by `plain_streams`. Those that are not plain are left to
`documents`, and mean there what they mean here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.ops import Layout
from penstock.core.types import Plain
from penstock.lake.folding.plain_json import (
    HEADER,
    INTEGER,
    LETTERS,
    OP,
    OP_PATTERN,
    STRING,
    VARIANT,
    Mask,
    Places,
    all_of,
    array_of,
    equals,
    flatten,
    has_any,
    is_one_of,
    json_types,
    make_open_rows,
    make_rows,
    mask_at,
    mask_of,
    matches,
    number_ops,
    object_of,
    parts_of,
    raw_of,
    read_lines,
)
from penstock.lake.folding.plain_streams import StreamReader

_INTEGERS = (Plain.INT8, Plain.INT16, Plain.INT32, Plain.INT64)


@dataclass(frozen=True)
class Ops:
    """The ops of plain documents, one after the other; arrays of the same length."""

    #: the place of its document in the batch
    parent: Places
    #: its number in its document
    n: Places
    #: s, a, r or d; see `documents`
    kind: pa.Array
    field: pa.Array
    #: as Spark's variants tell it
    json: pa.Array
    #: the value's text; NULL is null, or none
    raw: pa.Array


@dataclass(frozen=True)
class PlainBatch:
    """Documents of a batch, which of them are plain, and what these say."""

    documents: pa.RecordBatch
    #: for each document
    is_plain: pa.BooleanArray
    #: the rest is about plain ones only, in their order: the places of them in the batch
    places: Places
    #: texts of the key's columns
    key: Sequence[pa.Array]
    creates: pa.BooleanArray
    ops: Ops

    @property
    def is_whole(self) -> bool:
        """Whether all documents are plain."""
        return bool(len(self.places) == self.documents.num_rows)


@dataclass(frozen=True)
class PlainReader:
    """Reads batches of documents of one stream."""

    layout: Layout

    def read(self, documents: pa.RecordBatch) -> PlainBatch:
        """Read a batch that has a column `document`."""
        texts = documents.column("document")
        plain = pc.fill_null(pc.match_substring_regex(texts, self._pattern), False)
        rows = read_lines(texts.filter(plain), self._schema, self._replacements)
        if rows is None:
            plain, rows = pa.repeat(pa.scalar(False), len(texts)), self._schema.empty_table()
        parent, ops = flatten(rows.column("ops"))
        kinds = self._kinds(ops)
        regular = self._is_regular(rows, parent, kinds)
        places = np.flatnonzero(mask_of(plain))
        if not regular.all():
            places, keep = places[regular], pa.array(regular)
            chosen = regular[parent]
            rows, kinds, ops = rows.filter(keep), kinds.filter(pa.array(chosen)), ops.filter(pa.array(chosen))
            parent = (np.cumsum(regular) - 1)[parent[chosen]]
        return PlainBatch(
            documents,
            mask_at(places, len(texts)),
            places,
            [rows.column(f"key{i}").combine_chunks() for i in range(len(self.layout.key))],
            pc.fill_null(rows.column("creates").combine_chunks(), False),
            Ops(parent, number_ops(parent), kinds, ops.column("field"), json_types(ops), raw_of(ops)),
        )

    def rows(self, found: PlainBatch, without: Mask | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a batch: `documents.RAW`. Plain documents may be left out."""
        if not found.is_whole:
            rest = found.documents.filter(pc.invert(found.is_plain))
            others, left = self._streams.read(rest)
            yield from others
            if left.num_rows:
                yield make_open_rows(left)
        wanted = np.ones(len(found.places), np.bool_) if without is None else ~without
        if not wanted.any():
            return
        own = found.documents.take(pa.array(found.places))
        keys = self._key_rows(found.key)
        born = np.flatnonzero(mask_of(found.creates) & wanted)
        if len(born):
            yield make_rows(own, keys.take(pa.array(born)), born, t="b", n=-1)
        ops, mine = found.ops, wanted[found.ops.parent]
        if mine.any():
            own_ops = [column.filter(pa.array(mine)) for column in (ops.kind, ops.field, ops.json, ops.raw)]
            parent = ops.parent[mine]
            values = dict(zip(("t", "f", "kind", "raw"), own_ops, strict=True))
            yield make_rows(own, keys.take(pa.array(parent)), parent, n=ops.n[mine], **values)

    @cached_property
    def _streams(self) -> StreamReader:
        return StreamReader(self.layout)

    def _key_rows(self, key: Sequence[pa.Array]) -> pa.Array:
        """Each key as an array of its parts."""
        kinds = ["BIGINT" if each is INTEGER else "STRING" for each in self._keys]
        parts = [
            pa.StructArray.from_arrays([pa.repeat(pa.scalar(kind), len(texts)), texts], fields=list(VARIANT))
            for kind, texts in zip(kinds, key, strict=True)
        ]
        count, size = len(key[0]), len(parts)
        order = np.arange(count * size).reshape(size, count).T.ravel()
        values = pa.concat_arrays(parts).take(pa.array(order)) if size > 1 else parts[0]
        offsets = pa.array(np.arange(0, count * size + 1, size, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, values)

    # ------------------------------------------------------------ what a document is

    @cached_property
    def _keys(self) -> list[str]:
        """The spelling of each part of a key. Its text is that of its type, or is judged by `documents`."""
        return [INTEGER if column.type in _INTEGERS else STRING for column in self.layout.key]

    @cached_property
    def _pattern(self) -> str:
        """What a whole document is."""
        key = parts_of(self._keys)
        members = [*HEADER, f'"key": *{key}', f'"ops": *{array_of(OP_PATTERN)}']
        return f"^{object_of(members)}$"

    @cached_property
    def _replacements(self) -> list[tuple[str, str]]:
        """What makes a column of each part of the key."""
        parts = [f"({INTEGER})" if each is INTEGER else f'"({LETTERS})"' for each in self._keys]
        named = ",".join(rf'"key{i}":"\{i + 1}"' for i in range(len(parts)))
        return [(f'"key": *{parts_of(parts)}', named)]

    @cached_property
    def _schema(self) -> pa.Schema:
        keys = [(f"key{i}", pa.string()) for i in range(len(self.layout.key))]
        members = [("v", pa.int64()), ("table", pa.string()), ("creates", pa.bool_()), ("ops", pa.list_(OP))]
        return pa.schema([*members, *keys])

    # ------------------------------------------------------------ what ops are

    def _kinds(self, ops: pa.RecordBatch) -> pa.Array:
        """The kind of each op, as `documents` names it; NULL: not plain."""
        scalars, multi = (is_one_of(ops.column("field"), each) for each in (self.layout.scalars, self.layout.multi))
        op = ops.column("op")
        has, has_old = has_any(ops, "string", "other"), has_any(ops, "old_string", "old_other")
        none = pc.is_null(ops.column("field"))
        # A null, a fraction, and what is not a value at all, are no values of a multi-value field.
        simple = pc.or_(pc.is_valid(ops.column("string")), pc.invert(matches(ops.column("other"), "^null$|[.]")))
        # Variants spell a fraction in a JSON field in a way of their own.
        jsons = [column for column in self.layout.scalars if column.type is Plain.JSON]
        odd = pc.and_(is_one_of(ops.column("field"), jsons), matches(ops.column("other"), "[.]"))
        both = pc.and_(pc.is_valid(ops.column("string")), pc.is_valid(ops.column("other")))
        cases: list[tuple[str | None, Any]] = [
            (None, both),
            ("s", all_of(equals(op, "set"), scalars, has, pc.invert(odd))),
            ("s", all_of(equals(op, "remove"), scalars, pc.invert(has))),
            ("a", all_of(equals(op, "add"), multi, has, simple, pc.invert(has_old))),
            ("r", all_of(equals(op, "remove"), multi, has, simple)),
            ("d", all_of(equals(op, "delete"), none, pc.invert(has), pc.invert(has_old))),
        ]
        conditions = pa.StructArray.from_arrays([each for _, each in cases], names=list(map(str, range(len(cases)))))
        return pc.case_when(conditions, *(pa.scalar(kind, pa.string()) for kind, _ in cases))

    def _is_regular(self, rows: pa.Table, parent: Places, kinds: pa.Array) -> Mask:
        """Which documents have the members that they need, and plain ops only."""
        count = rows.num_rows
        regular = mask_of(pc.is_valid(rows.column("v")))
        regular = regular & mask_of(pc.fill_null(pc.greater(pc.binary_length(rows.column("table")), 0), False))
        for i in range(len(self.layout.key)):
            regular = regular & mask_of(pc.is_valid(rows.column(f"key{i}")))
        creates = mask_of(pc.fill_null(rows.column("creates"), False))
        sizes = np.bincount(parent, minlength=count)
        regular = regular & mask_of(pc.is_valid(rows.column("ops"))) & (creates | (sizes > 0))
        odd = np.bincount(parent[mask_of(pc.is_null(kinds))], minlength=count) > 0
        deletes = np.bincount(parent[mask_of(pc.fill_null(pc.equal(kinds, "d"), False))], minlength=count) > 0
        found: Mask = regular & ~odd & ~(deletes & (creates | (sizes > 1)))
        return found


def rows_of(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of documents, as `documents.raw_rows` makes them; documents that are not plain are rows of kind `?`."""
    reader = PlainReader(layout)
    for batch in batches:
        if batch.num_rows:
            yield from reader.rows(reader.read(batch))
