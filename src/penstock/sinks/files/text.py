"""Format Arrow columns as text, by Arrow's own kernels: never row by row."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from penstock.shaping.misfits import escape_json


def format_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with timestamps in ISO 8601, which every reader understands."""
    columns = [_iso(column) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def format_json_lines(batch: pa.RecordBatch) -> pa.Buffer:
    """The batch as lines of JSON, in one buffer."""
    if batch.num_rows == 0:
        return pa.py_buffer(b"")
    pieces: list[object] = []
    for index, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        key = json.dumps(name, ensure_ascii=False)
        pieces.append(f"{'{' if index == 0 else ','}{key}:")
        pieces.append(_json(column))
    pieces.append("}\n" if batch.num_columns else "{}\n")
    lines = pc.binary_join_element_wise(*[pa.scalar(p) if isinstance(p, str) else p for p in pieces], "")
    lines = lines.cast(pa.large_string())
    return _values(lines)


def _values(lines: pa.LargeStringArray) -> pa.Buffer:
    """The bytes of all strings, one after the other."""
    offsets, data = lines.buffers()[1:]
    first, last = (pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets])[i].as_py() for i in (0, -1))
    return data.slice(first, last - first)


def _iso(column: pa.Array) -> pa.Array:
    """2024-05-01T10:00:00.000000Z. Needs no time zone database: a zoned column stores UTC."""
    zoned = column.type.tz is not None
    naive = column.view(pa.int64()).view(pa.timestamp(column.type.unit)) if zoned else column
    text = pc.replace_substring(naive.cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(text, pa.scalar("Z"), "") if zoned else text


def _json(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        text = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        finite = pc.is_finite(column)
        text = pc.if_else(finite, column.cast(pa.string()), _quoted(column.cast(pa.string())))
    elif pa.types.is_timestamp(kind):
        text = _quoted(_iso(column))
    elif pa.types.is_list(kind):
        text = _json_array(column)
    else:
        text = _quoted(escape_json(column.cast(pa.string())))
    return pc.fill_null(text, "null")


def _json_array(lists: pa.ListArray) -> pa.Array:
    offsets = lists.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    values = _json(lists.values.slice(first, last - first))
    mask = lists.is_null() if lists.null_count else None
    texts = pa.ListArray.from_arrays(pc.subtract(offsets, first), values, mask=mask)
    return pc.binary_join_element_wise(pa.scalar("["), pc.binary_join(texts, ","), pa.scalar("]"), "")


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), text, pa.scalar('"'), "")
