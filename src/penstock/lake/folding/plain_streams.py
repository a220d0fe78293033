"""Reads plain documents of all entities in Arrow: `clear`, and declared fan-outs that compare a field with a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.ops import FanOut, Layout
from penstock.core.types import Plain
from penstock.lake.folding.irregular import MAX_STREAM_OPS
from penstock.lake.folding.plain_json import (
    HEADER,
    INTEGER,
    OP,
    OP_PATTERN,
    OTHER,
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
    make_rows,
    mask_of,
    matches,
    number_ops,
    object_of,
    raw_of,
    read_lines,
)

_WHERE = pa.struct([("field", pa.string()), ("string", pa.string()), ("other", pa.string())])
_STREAM_OP = pa.struct([("op", pa.string()), ("field", pa.string()), ("where", _WHERE), ("ops", pa.list_(OP))])
_SCHEMA = pa.schema([("v", pa.int64()), ("table", pa.string()), ("creates", pa.bool_()), ("ops", pa.list_(_STREAM_OP))])
_FILTER = object_of([f'"field": *{STRING}', f'"eq": *(?:{STRING}|{INTEGER}|true|false)'])
_OPS = object_of([f'"(?:op|field)": *{STRING}', f'"where": *{_FILTER}', f'"ops": *{array_of(OP_PATTERN)}'])
_PATTERN = "^" + object_of([*HEADER, f'"ops": *{array_of(_OPS)}']) + "$"
#: the value of a filter, under the names that other values have
_EQ = (('"eq": *"', '"string":"'), (f'"eq": *({OTHER})', r'"other":"\1"'))


@dataclass(frozen=True)
class StreamReader:
    """Reads batches of documents of one stream that are not about one entity."""

    layout: Layout

    def read(self, documents: pa.RecordBatch) -> tuple[list[pa.RecordBatch], pa.RecordBatch]:
        """The rows of plain documents (`documents.RAW`), and the other documents."""
        plain = mask_of(matches(documents.column("document"), _PATTERN))
        chosen = documents.filter(pa.array(plain))
        rows = read_lines(chosen.column("document"), _SCHEMA, _EQ)
        if rows is None or not rows.num_rows:
            return [], documents
        parent, ops = flatten(rows.column("ops"))
        numbers = number_ops(parent)
        tables = _array(rows.column("table")).take(pa.array(parent))
        inner_parent, inner = flatten(ops.column("ops"))
        cleared = self._is_clear(ops)
        sets = self._is_fan_out(tables, ops, inner_parent, inner)
        good = self._good(rows, parent, cleared | sets)
        plain[np.flatnonzero(plain)[~good]] = False
        found = []
        kept = good[parent]
        if (wanted := np.flatnonzero(cleared & kept)).size:
            found.append(self._clear_rows(chosen, parent, numbers, tables, ops, wanted))
        if (wanted := np.flatnonzero((sets & kept)[inner_parent])).size:
            found.append(self._fan_rows(chosen, parent, numbers, tables, ops, inner_parent, inner, wanted))
        return found, documents.filter(pa.array(~plain))

    def _good(self, rows: pa.Table, parent: Places, plain: Mask) -> Mask:
        """Which documents have the members that they need, and plain ops only."""
        count = rows.num_rows
        sizes = np.bincount(parent, minlength=count)
        found: Mask = mask_of(pc.is_valid(_array(rows.column("v"))))
        found = found & mask_of(pc.fill_null(pc.greater(pc.binary_length(_array(rows.column("table"))), 0), False))
        found = found & ~mask_of(pc.fill_null(_array(rows.column("creates")), False))
        found = found & (sizes > 0) & (sizes <= MAX_STREAM_OPS)
        odd = np.bincount(parent[~plain], minlength=count) > 0
        return np.logical_and(found, ~odd)

    def _is_clear(self, ops: pa.RecordBatch) -> Mask:
        known = pc.or_(
            pc.is_null(ops.column("field")),
            is_one_of(ops.column("field"), (*self.layout.scalars, *self.layout.multi)),
        )
        nothing = (pc.is_null(ops.column("where")), pc.is_null(ops.column("ops")))
        return mask_of(all_of(equals(ops.column("op"), "clear"), known, *nothing))

    def _is_fan_out(self, tables: pa.Array, ops: pa.RecordBatch, parent: Places, inner: pa.RecordBatch) -> Mask:
        """Which ops set fields by a declared fan-out."""
        count = ops.num_rows
        found = np.zeros(count, np.bool_)
        where = ops.column("where")
        is_query = all_of(equals(ops.column("op"), "query_op_set"), pc.is_null(ops.column("field")), pc.is_valid(where))
        compared = pc.struct_field(where, "field")
        one = pc.xor(*(pc.is_valid(pc.struct_field(where, name)) for name in ("string", "other")))
        has = has_any(inner, "string", "other")
        both = pc.and_(pc.is_valid(inner.column("string")), pc.is_valid(inner.column("other")))
        sets = pc.or_(
            all_of(equals(inner.column("op"), "set"), has, pc.invert(both)),
            pc.and_(equals(inner.column("op"), "remove"), pc.invert(has)),
        )
        sizes = np.bincount(parent, minlength=count)
        for fan_out in self._fan_outs:
            fits = mask_of(all_of(is_query, one, equals(tables, fan_out.table), equals(compared, fan_out.match[0])))
            own = mask_of(pc.and_(sets, pc.is_in(inner.column("field"), pa.array(fan_out.fields, pa.string()))))
            found |= fits & (sizes > 0) & (np.bincount(parent[~own], minlength=count) == 0)
        return found

    @cached_property
    def _fan_outs(self) -> list[FanOut]:
        jsons = {column.name for column in self.layout.scalars if column.type is Plain.JSON}
        return [each for each in self.layout.fan_outs if len(each.match) == 1 and jsons.isdisjoint(each.fields)]

    def _clear_rows(
        self, documents: pa.RecordBatch, parent: Places, numbers: Places, tables: pa.Array, ops: Any, wanted: Places
    ) -> pa.RecordBatch:
        fields = ops.column("field").take(pa.array(wanted))
        kinds = pc.if_else(pc.is_valid(fields), "k", "c")
        return make_rows(
            documents,
            None,
            parent[wanted],
            t=kinds,
            n=numbers[wanted],
            later=numbers[wanted],
            tbl=tables.take(pa.array(wanted)),
            f=fields,
        )

    def _fan_rows(
        self,
        documents: pa.RecordBatch,
        parent: Places,
        numbers: Places,
        tables: pa.Array,
        ops: pa.RecordBatch,
        inner_parent: Places,
        inner: pa.RecordBatch,
        wanted: Places,
    ) -> pa.RecordBatch:
        own, chosen = inner_parent[wanted], inner.take(pa.array(wanted))
        where = pa.RecordBatch.from_struct_array(ops.column("where").take(pa.array(own)))
        match = pa.StructArray.from_arrays([json_types(where), raw_of(where)], fields=list(VARIANT))
        keys = pa.ListArray.from_arrays(pa.array(np.arange(len(own) + 1, dtype=np.int32)), match)
        return make_rows(
            documents,
            keys,
            parent[own],
            t="f",
            n=number_ops(inner_parent)[wanted],
            later=numbers[own],
            tbl=tables.take(pa.array(own)),
            f=chosen.column("field"),
            kind=json_types(chosen),
            raw=raw_of(chosen),
        )


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
